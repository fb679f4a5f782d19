"""Paths that are no readable file, and odd ones that are, given to the real program.

tests/models/test_gguf_paths.py has those that the reader of headers alone refuses.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.errors import IntegrityError, LocalspecError, NotFoundError
from localspec.session.loaded_model import inspect_model, load_model
from tests.cli.harness import REAL, TIMEOUT, assert_advice, assert_one_line, environment
from tests.cli.sandbox import Sandbox
from tests.integration.gguf_models import EXACT, random_gguf
from tests.models.gguf_files import model


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def _locked(folder: Path) -> str:
    model().write(folder / "locked.gguf").chmod(0)
    return "./locked.gguf"


def _locked_folder(folder: Path) -> str:
    (folder / "shut").mkdir()
    model().write(folder / "shut" / "m.gguf")
    (folder / "shut").chmod(0)
    return "./shut/m.gguf"


def _pipe(folder: Path) -> str:
    os.mkfifo(folder / "p.gguf")
    return "./p.gguf"


def _link(target: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / "l.gguf").symlink_to(target)
        return "./l.gguf"

    return make


def _name(text: str) -> Callable[[Path], str]:
    return lambda _folder: text


UNREADABLE: dict[str, tuple[Callable[[Path], str], str]] = {
    "a pipe nobody writes to": (_pipe, "a pipe or a device"),
    "a link to a device": (_link("/dev/zero"), "a pipe or a device"),
    "without permission": (_locked, "may not be read"),
    "in a folder without permission": (_locked_folder, ""),
    "a home of nobody": (_name("~nobody-of-that-name/m.gguf"), "does not exist"),
    "a drive": (_name("C:\\models\\m.gguf"), "C:\\models\\m.gguf does not exist"),
    "a share": (_name("\\\\host\\share\\m.gguf"), "m.gguf does not exist"),
    "escapes in a name": (_name("./\x1b]0;x\x07\u202e\n.gguf"), r"\x1b]0;x\x07\u202e\n.gguf does not exist"),
}


@pytest.mark.parametrize(("make", "text"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_not_found(sandbox: Sandbox, make: Callable[[Path], str], text: str) -> None:
    done = sandbox.run("show", make(sandbox.files))
    line = assert_one_line(done, 3, text)
    assert_advice(line)
    assert line.rstrip("\n").isprintable()
    assert done.stdout == b""


@pytest.mark.parametrize("case", ["a pipe nobody writes to", "without permission"])
def test_neither_can_it_be_loaded(sandbox: Sandbox, case: str) -> None:
    make, text = UNREADABLE[case]
    assert_advice(assert_one_line(sandbox.run("run", "-m", make(sandbox.files), "hi"), 3, text))


@pytest.mark.parametrize(
    "name",
    [
        *("--help.gguf", "~user.gguf", "C:\\m.gguf", "hf:org.gguf", "a\nb\x1b[2J.gguf", b"\xff\xfe.gguf"),
    ],
    ids=lambda name: ascii(name)[:24],
)
def test_an_odd_name_is_read_and_shown_harmlessly(sandbox: Sandbox, name: str | bytes) -> None:
    raw = os.fsencode(name)
    model().write(Path(os.fsdecode(os.path.join(os.fsencode(sandbox.files), raw))))
    done = sandbox.run("show", b"./" + raw)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode()
    assert "file           " in shown
    assert not [c for c in shown if not c.isprintable() and c != "\n"]


def test_a_name_that_begins_like_an_option_needs_its_folder(sandbox: Sandbox) -> None:
    model().write(sandbox.files / "-v.gguf")
    assert_one_line(sandbox.run("show", "-v.gguf"), 2, "-v")
    assert sandbox.run("show", "--", "-v.gguf").returncode == 0


def _deleted(path: Path) -> None:
    path.unlink()


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _replaced(path: Path) -> None:
    path.with_name("other").write_text("no model")
    path.with_name("other").replace(path)


def _halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_deleted, NotFoundError),
        (_emptied, IntegrityError),
        (_replaced, IntegrityError),
        (_halved, IntegrityError),
    ],
)
def test_a_file_that_changes_between_the_look_and_the_load(
    tmp_path: Path, change: Callable[[Path], None], error: type[LocalspecError]
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(random_gguf().read_bytes())
    looked = inspect_model(str(path))
    change(path)
    with pytest.raises(error, match=r"m\.gguf") as caught:
        list(load_model(looked, EXACT, "target", lambda: False))
    assert caught.value.hint


def test_a_file_that_shrinks_while_it_is_mapped(tmp_path: Path) -> None:
    """What was there is gone in the middle of the work: the engine's process ends, and the line says why."""
    path = tmp_path / "m.gguf"
    path.write_bytes(random_gguf().read_bytes())
    chat = subprocess.Popen(
        [*REAL, "chat", "-q", "-m", str(path), "-n", "4", "--temp", "0"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write(b"one\n")
    chat.stdin.flush()
    assert chat.stdout.readline()
    os.truncate(path, 0)
    _, said = chat.communicate(b"two\n", timeout=TIMEOUT)
    assert chat.returncode == 9, said
    assert b"Traceback" not in said
    assert b"the model file may have changed" in said
