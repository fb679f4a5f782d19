"""Early exits do not pile up, and nothing is removed that is not theirs, is wanted, or is about to be opened."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.models.derived_files import KEPT, in_use
from localspec.models.exit_files import Exits, Layers, Tuned
from localspec.models.gguf.header import read_header
from tests.integration.gguf_models import TINY, random_gguf

FIVE = replace(TINY, layers=5)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model of five layers that a test may change or remove."""
    (tmp_path / "models").mkdir()
    return Path(shutil.copy(random_gguf(FIVE), tmp_path / "models" / "m.gguf"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def exits_of(source: Path, folder: Path) -> Exits:
    return Exits(read_header(source), folder)


def use(exits: Exits, layers: Layers, at: int) -> Path:
    with exits.held(layers) as path:
        os.utime(path, ns=(at, path.stat().st_mtime_ns))
        return path


def there(folder: Path) -> set[Path]:
    return set(folder.glob("*.gguf"))


def test_the_last_used_stay(source: Path, folder: Path) -> None:
    """Using one again counts as use; each new one takes the place of the least recent."""
    exits = exits_of(source, folder)
    first, second = use(exits, (0,), 1), use(exits, (0, 1), 2)
    assert there(folder) == {first, second}
    use(exits, (0,), 3)
    third = use(exits, (0, 1, 2), 4)
    assert there(folder) == {first, third}
    assert len(there(folder)) == KEPT


def test_use_is_noted(source: Path, folder: Path) -> None:
    """By the time of access, which is set; the time of change is that of the making."""
    with exits_of(source, folder).held((0,)) as path:
        made = path.stat().st_mtime_ns
        os.utime(path, ns=(1, made))
    with exits_of(source, folder).held((0,)):
        assert path.stat().st_atime_ns > 10**18
        assert path.stat().st_mtime_ns == made


def test_the_tuned_one_stays(source: Path, folder: Path) -> None:
    """However long ago it was used."""
    exits = exits_of(source, folder)
    tuned = use(exits, (0, 2), 1)
    exits.store(Tuned((0, 2), 1.5))
    last = [use(exits, tuple(range(n)), 1 + n) for n in (1, 2, 3, 4)]
    assert there(folder) == {tuned, *last[-KEPT:]}
    assert exits.tuned() == Tuned((0, 2), 1.5)


def other(tmp_path: Path, folder: Path) -> None:
    """Have the exit of another model made, which is when the folder is looked after."""
    path = tmp_path / "other.gguf"
    shutil.copy(random_gguf(FIVE, seed=1), path)
    exits_of(path, folder).file((0, 1, 2))


@pytest.mark.parametrize("change", ["removed", "replaced", "kept", "unmounted", "note damaged", "note lost"])
def test_what_belongs_to_a_model_that_is_gone(tmp_path: Path, source: Path, folder: Path, change: str) -> None:
    """Removed or replaced: all of it goes, tuning too. Where that is not known for certain it stays."""
    exits = exits_of(source, folder)
    path = exits.file((0,))
    note = folder / f"{path.name[:24]}.from"
    stored = exits.store(Tuned((0,), 1.0))
    if change == "removed":
        source.unlink()
    elif change == "replaced":
        shutil.copy(random_gguf(FIVE, seed=2), source)
    elif change == "unmounted":
        shutil.rmtree(source.parent)
    elif change == "note damaged":
        note.write_text("{")
        source.unlink()
    elif change == "note lost":
        note.unlink()
        source.unlink()
    other(tmp_path, folder)
    gone = change in ("removed", "replaced")
    assert path.exists() != gone
    assert stored.exists() != gone
    assert note.exists() == (not gone and change != "note lost")
    assert len(there(folder)) == (1 if gone else 2)


def test_nothing_else_is_touched(tmp_path: Path, source: Path, folder: Path) -> None:
    """Files of others in that folder, links that bear our names, and what they point to."""
    path = exits_of(source, folder).file((0,))
    ours = path.name[:24]
    precious = tmp_path / "precious.gguf"
    precious.write_text("mine")
    link = folder / f"{ours}-{'0' * 12}.gguf"
    link.symlink_to(precious)
    (folder / f"{ours}-{'1' * 12}.gguf").mkdir()
    for name in ("notes.json", "big.gguf", f"{ours}.txt", f"{ours.upper()}-{'0' * 12}.gguf", f"x{path.name}"):
        (folder / name).write_text("mine")
    before = {item.name for item in folder.iterdir()}
    source.unlink()
    other(tmp_path, folder)
    assert before - {item.name for item in folder.iterdir()} == {path.name, f"{ours}.from"}
    assert precious.read_text() == "mine"


def test_what_another_process_is_about_to_open_stays(tmp_path: Path, source: Path, folder: Path) -> None:
    """It is held from before the path is given out until the model is loaded, or the process dies."""
    path = exits_of(source, folder).file((0,))
    script = (
        "import sys, time; from pathlib import Path\n"
        "from localspec.models.exit_files import Exits\n"
        "from localspec.models.gguf.header import read_header\n"
        "with Exits(read_header(Path(sys.argv[1])), Path(sys.argv[2])).held((0,)) as path:\n"
        "    print(path, flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, source, folder], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{path}\n"
        source.unlink()
        other(tmp_path, folder)
        assert path.exists()
    finally:
        process.kill()
        process.communicate()
    (tmp_path / "other.gguf").unlink()
    third = shutil.copy(random_gguf(FIVE, seed=3), tmp_path / "third.gguf")
    kept = exits_of(Path(third), folder).file((0,))
    assert there(folder) == {kept}


def test_a_file_that_went_meanwhile_is_made_again(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between being asked for and being held another process may have removed it."""
    exits = exits_of(source, folder)
    really = exits.file
    calls = []

    def vanishing(layers: Layers) -> Path:
        path = really(layers)
        calls.append(path)
        if len(calls) == 1:
            path.unlink()
        return path

    monkeypatch.setattr(exits, "file", vanishing)
    with exits.held((0,)) as path:
        assert path.exists()
    assert len(calls) == 2
    path.unlink()
    with in_use(path) as is_there:
        assert not is_there
