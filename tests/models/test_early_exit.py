"""Early exits as files: right weights, made once, whole or not there, and refused where the result would be unsound."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.errors import IncompatibleError, ResourceError
from localspec.models import derived_files, exit_files
from localspec.models.exit_files import Exits, Layers, Tuned
from localspec.models.gguf.header import read_header
from tests.integration.gguf_models import EXACT, TINY, never, random_gguf
from tests.models.gguf_files import File, model, tensor

FOUR = replace(TINY, layers=4)
ALL = (0, 1, 2, 3)
TEXT = [1, 40, 300, 7, 7, 211]


@pytest.fixture
def source() -> Path:
    return random_gguf(FOUR)


def logits(path: Path) -> np.ndarray:
    with Model(path, EXACT) as opened, LlamaBackend(opened, EXACT) as backend:
        return np.array([backend.prefill(TEXT[: n + 1], never).logits(0).copy() for n in range(len(TEXT))])


def by_hand(source: Path, layers: Layers, path: Path) -> Path:
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        value = len(layers) if field.name == "llama.block_count" else field.contents()
        writer.add_key_value(field.name, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for item in reader.tensors:
        name = item.name
        if name.startswith("blk."):
            _, layer, rest = name.split(".", 2)
            if int(layer) not in layers:
                continue
            name = f"blk.{layers.index(int(layer))}.{rest}"
        writer.add_tensor(name, np.array(item.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Counting:
    """llama.cpp's quantiser, counted."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, source: Path, target: Path, dropped: Sequence[int]) -> int:
        self.calls += 1
        return exit_files._prune(source, target, dropped)


def test_nothing_dropped_is_the_model_itself(source: Path, tmp_path: Path) -> None:
    """An empty set of layers to drop gives the model's own logits, bit for bit."""
    whole = Exits(read_header(source), tmp_path).file(ALL)
    assert np.array_equal(logits(whole), logits(source))


@pytest.mark.parametrize("layers", [(0,), (0, 1), (0, 1, 2), (1, 3), (0, 2, 3), (3,)], ids=str)
def test_it_is_the_model_with_these_layers_alone(source: Path, tmp_path: Path, layers: Layers) -> None:
    """First layers and any others: the file that a person would write from the same tensors."""
    made = Exits(read_header(source), tmp_path / "cache").file(layers)
    ours, theirs = logits(made), logits(by_hand(source, layers, tmp_path / "by-hand.gguf"))
    assert np.abs(ours - theirs).max() < 1e-4
    assert np.abs(ours - logits(source)).max() > 1e-2  # and not the whole model
    assert read_header(made).metadata["llama.block_count"] == len(layers)


def test_a_file_is_made_once(source: Path, tmp_path: Path) -> None:
    """A second request and a second process's view take the file that is there; other layers are another file."""
    quantise = Counting()
    first = Exits(read_header(source), tmp_path, quantise)
    path = first.file((0, 1))
    again = Exits(read_header(source), tmp_path, quantise).file((0, 1))
    assert again == path == first.file((0, 1))
    assert quantise.calls == 1
    assert first.file((0, 2)) != path
    assert quantise.calls == 2


def test_a_file_belongs_to_the_content_of_its_model(source: Path, tmp_path: Path) -> None:
    """A copy elsewhere is the same model; another model under the same name is not."""
    copy = tmp_path / "copy.gguf"
    shutil.copy(source, copy)
    assert Exits(read_header(copy), tmp_path).path(ALL) == Exits(read_header(source), tmp_path).path(ALL)
    before = Exits(read_header(copy), tmp_path).path(ALL)
    shutil.copy(random_gguf(FOUR, seed=1), copy)
    assert Exits(read_header(copy), tmp_path).path(ALL) != before


def test_large_files_are_told_apart_by_samples_and_time(source: Path, tmp_path: Path, monkeypatch) -> None:
    """Beyond a size only parts are read: a change of time counts, and so does a change of the header."""
    monkeypatch.setattr(derived_files, "_CHEAP", 0)
    copy = tmp_path / "copy.gguf"
    shutil.copy(source, copy)
    os.utime(copy, ns=(1, 1))
    before = derived_files.identity(read_header(copy))
    assert derived_files.identity(read_header(copy)) == before
    os.utime(copy, ns=(1, 2))
    assert derived_files.identity(read_header(copy)) != before
    shutil.copy(random_gguf(FOUR, seed=1), copy)
    os.utime(copy, ns=(1, 1))
    assert derived_files.identity(read_header(copy)) != before


def test_a_damaged_file_is_made_again(source: Path, tmp_path: Path) -> None:
    """A cut file, as a crash of the machine may leave it, is not trusted."""
    quantise = Counting()
    exits = Exits(read_header(source), tmp_path, quantise)
    path = exits.file((0,))
    size = path.stat().st_size
    os.truncate(path, size // 2)
    assert exits.file((0,)).stat().st_size == size
    assert quantise.calls == 2


def child(code: str, *args: object) -> subprocess.Popen[str]:
    """Start a Python process that has `exits` and `folder`."""
    head = """
        import os, sys, time
        from pathlib import Path
        from localspec.models import derived_files, exit_files
        from localspec.models.exit_files import Exits
        from localspec.models.gguf.header import read_header
        source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    """
    program = textwrap.dedent(head) + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", program, *map(str, args)], stdout=subprocess.PIPE, text=True)


def test_two_processes_make_one_file(source: Path, tmp_path: Path) -> None:
    """The second waits for the first and takes its file."""
    code = """
        def slow(source, target, dropped):
            with open(folder / "calls", "a") as calls:
                calls.write("x")
            time.sleep(0.5)
            return exit_files._prune(source, target, dropped)
        print(Exits(read_header(source), folder, slow).file((0, 1)))
    """
    processes = [child(code, source, tmp_path) for _ in range(2)]
    paths = {process.communicate(timeout=60)[0].splitlines()[-1] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(paths) == 1
    assert (tmp_path / "calls").read_text() == "x"
    assert np.isfinite(logits(Path(paths.pop()))).all()


def test_a_process_killed_in_the_middle_leaves_no_half_file(source: Path, tmp_path: Path) -> None:
    """What it wrote is not under the file's name, and the next one clears it away."""
    code = """
        def stuck(source, target, dropped):
            target.write_bytes(source.read_bytes()[:100_000])
            print("half", flush=True)
            time.sleep(60)
        Exits(read_header(source), folder, stuck).file((0, 1))
    """
    process = child(code, source, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert list(tmp_path.glob("*.gguf")) == []
    assert len(list(tmp_path.glob("*.part"))) == 1
    path = Exits(read_header(source), tmp_path).file((0, 1))
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted([path.name, f"{path.name[:24]}.from", "lock"])


def test_a_disk_that_fills_up_is_an_error_of_resources(source: Path, tmp_path: Path) -> None:
    """llama.cpp itself runs out of space: no abort, no rest of a file."""
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        from localspec.errors import ResourceError
        try:
            Exits(read_header(source), folder).file((0, 1))
        except ResourceError as error:
            print("refused:", error.exit_code, error.message)
    """
    said, _ = child(code, source, tmp_path).communicate(timeout=60)
    assert "refused: 7 llama.cpp could not write the early exit" in said
    assert [item.name for item in tmp_path.iterdir()] == ["lock"]


def assert_fails(folder: Path, source: Path, quantise: exit_files.Quantise | None = None) -> ResourceError:
    with pytest.raises(ResourceError) as caught:
        Exits(read_header(source), folder, quantise).file((0,))
    assert "\n" not in caught.value.message + caught.value.hint
    assert caught.value.hint
    return caught.value


def test_failures_leave_nothing(source: Path, tmp_path: Path) -> None:
    """A code, an exception, or a file cut short: the same error, and the folder as it was."""

    def full(source: Path, target: Path, dropped: Sequence[int]) -> int:
        target.write_bytes(b"GGUF")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def short(source: Path, target: Path, dropped: Sequence[int]) -> int:
        target.write_bytes(source.read_bytes()[:-1])
        return 0

    assert "No space left" in assert_fails(tmp_path, source, full).message
    assert "could not write" in assert_fails(tmp_path, source, short).message
    assert "(code 1)" in assert_fails(tmp_path, source, lambda *_: 1).message
    assert [item.name for item in tmp_path.iterdir()] == ["lock"]


def test_a_disk_without_room_is_not_tried(source: Path, tmp_path: Path, monkeypatch) -> None:
    """Before minutes of copying: what is needed and what is free."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    quantise = Counting()
    assert "are free" in assert_fails(tmp_path, source, quantise).message
    assert quantise.calls == 0


def test_a_folder_that_cannot_be_written(source: Path, tmp_path: Path, monkeypatch) -> None:
    """One clear line; what was made before is used all the same."""
    (tmp_path / "file").write_text("")
    assert "cannot be kept in" in assert_fails(tmp_path / "file" / "cache", source).message
    exits = Exits(read_header(source), tmp_path / "cache")
    path = exits.file((0,))

    really_open = os.open

    def read_only(name: object, flags: int, *rest: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return really_open(name, flags, *rest)

    monkeypatch.setattr(exit_files.os, "open", read_only)
    with pytest.raises(ResourceError, match="Read-only file system"):
        exits.store(Tuned((0,), 1.0))
    with pytest.raises(ResourceError, match="Read-only file system"):
        exits.file((1,))
    assert exits.file((0,)) == path


def layered(**wrong: tuple[int, ...]) -> File:
    """Return a model of two layers, each a tensor of 8 numbers or of the shape given for "blk_0" or "blk_1"."""
    file = model()
    for name in ("blk_0", "blk_1"):
        file.data += b"\0" * (-len(file.data) % 32)
        shape = wrong.get(name, (8,))
        if shape:
            file.tensors.append(tensor(f"{name.replace('_', '.')}.w", shape, 0, len(file.data)))
            file.data += bytes(4 * int(np.prod(shape)))
    return file


REFUSED = {
    "heads": (layered().set("llama.attention.head_count_kv", "arr[u32]", [4, 2]), "a value for each layer"),
    "pattern": (
        layered().set("llama.attention.sliding_window_pattern", "arr[bool]", [True, False]),
        "attention.sliding_window_pattern",
    ),
    "nextn": (layered().set("llama.nextn_predict_layers", "u32", 1), "NextN"),
    "dense": (layered().set("llama.leading_dense_block_count", "u32", 1), "leading dense"),
    "shared": (layered().set("llama.attention.shared_kv_layers", "u32", 1), "share a cache"),
    "unlike": (layered(blk_1=(16,)), "not alike"),
    "missing": (layered(blk_1=()), "not named after"),
    "single": (layered(blk_1=()).set("llama.block_count", "u32", 1), "a single layer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_need_all_their_layers_are_refused(name: str, tmp_path: Path) -> None:
    """The quantiser would write a file that is wrong; the reason is said, and nothing is made."""
    file, why = REFUSED[name]
    exits = Exits(read_header(file.write(tmp_path / "m.gguf")), tmp_path / "cache")
    with pytest.raises(IncompatibleError, match=why) as caught:
        exits.file((0,))
    assert "\n" not in caught.value.message
    assert not (tmp_path / "cache").exists()


def test_keys_that_count_nothing_are_no_obstacle(tmp_path: Path) -> None:
    """Zero leading dense layers, and arrays that do not belong to layers."""
    file = layered().set("llama.leading_dense_block_count", "u32", 0)
    file.set("llama.rope.dimension_sections", "arr[i32]", [1, 2, 3, 0])
    file.set("tokenizer.ggml.scores", "arr[f32]", [0.0] * 16)
    header = read_header(file.write(tmp_path / "m.gguf"))
    assert exit_files._obstacle(header) == ""
    exit_files.require_prunable(header)


def test_what_was_tuned_is_remembered(source: Path, tmp_path: Path) -> None:
    """For this model, by anyone; never for another one, and damage is the same as nothing."""
    header = read_header(source)
    assert Exits(header, tmp_path).tuned() is None
    path = Exits(header, tmp_path).store(Tuned((0, 2), 1.25))
    assert Exits(header, tmp_path).tuned() == Tuned((0, 2), 1.25)
    assert Exits(read_header(random_gguf(FOUR, seed=1)), tmp_path).tuned() is None
    for damage in ("", "{", "[]", '{"layers": 3}', '{"layers": [0, 9], "ratio": 1}', '{"layers": [], "ratio": 1}',
                   '{"layers": [2, 0], "ratio": 1}', '{"layers": [0], "ratio": "x"}'):  # fmt: skip
        path.write_text(damage)
        assert Exits(header, tmp_path).tuned() is None
    path.write_bytes(b"\xff\xfe")
    assert Exits(header, tmp_path).tuned() is None
