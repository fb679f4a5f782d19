"""What the trial of llama.cpp's AMX kernels says: real child processes, dying and not."""

import json
from pathlib import Path

import pytest

from localspec.backends import amx, bandwidth, build
from localspec.backends.devices import handle_of

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.fixture
def has_amx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the home folder of a machine whose llama.cpp announces AMX."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(build.api, "llama_print_system_info", lambda: b"CPU : AMX_INT8 = 1 | LLAMAFILE = 1 |")
    amx.is_amx_broken.cache_clear()
    yield tmp_path
    amx.is_amx_broken.cache_clear()


@pytest.mark.parametrize(("trial", "is_broken"), [(DIES, True), ("pass", False)])
def test_only_a_crash_counts(has_amx: Path, monkeypatch: pytest.MonkeyPatch, trial: str, is_broken: bool) -> None:
    monkeypatch.setattr(amx, "_TRY", trial)
    assert amx.is_amx_broken() is is_broken
    (note,) = (has_amx / "cache" / "amx").iterdir()
    assert json.loads(note.read_text()) == {"is_broken": is_broken}


@pytest.mark.parametrize("trial", ["import sys; sys.exit(1)", DIES.replace("SIGSEGV", "SIGKILL")])
def test_what_found_nothing_out_is_not_kept(has_amx: Path, monkeypatch: pytest.MonkeyPatch, trial: str) -> None:
    """The next load tries again: a killer of processes that take much memory says nothing of AMX."""
    monkeypatch.setattr(amx, "_TRY", trial)
    assert not amx.is_amx_broken()
    assert not (has_amx / "cache" / "amx").exists()


def test_bandwidths_are_measured_without_the_kernels_that_crash(has_amx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "_TRY", DIES)
    assert bandwidth._extra_buffer_types(handle_of("CPU")) == []


def test_the_answer_is_kept_and_a_damaged_note_is_asked_again(has_amx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "_TRY", DIES)
    assert amx.is_amx_broken()
    monkeypatch.setattr(amx, "_TRY", "pass")
    amx.is_amx_broken.cache_clear()
    assert amx.is_amx_broken()  # the note's word
    (note,) = (has_amx / "cache" / "amx").iterdir()
    note.write_text("{")
    amx.is_amx_broken.cache_clear()
    assert not amx.is_amx_broken()


def test_a_cache_that_cannot_be_written_is_done_without(has_amx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (has_amx / "cache").write_text("a file in the way")
    monkeypatch.setattr(amx, "_TRY", DIES)
    assert amx.is_amx_broken()


def test_a_build_without_amx_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.api, "llama_print_system_info", lambda: b"CPU : AVX512 = 1 |")
    monkeypatch.setattr(amx, "_TRY", DIES)
    amx.is_amx_broken.cache_clear()
    assert not amx.is_amx_broken()
    amx.is_amx_broken.cache_clear()


def test_another_kernel_is_asked_again(has_amx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "_TRY", DIES)
    assert amx.is_amx_broken()
    amx.is_amx_broken.cache_clear()
    monkeypatch.setattr(amx.platform, "release", lambda: "another")
    monkeypatch.setattr(amx, "_TRY", "pass")
    assert not amx.is_amx_broken()
    assert len(list((has_amx / "cache" / "amx").iterdir())) == 2
