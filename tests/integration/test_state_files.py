"""Files of saved states: whatever happens to one, what comes back is what was written, or nothing."""

import hashlib
import os
import resource
import struct
import subprocess
import sys
import time
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from localspec.backends.saved_state import SavedState
from localspec.session.state_files import StateFolder

KEY, OTHER = b"k" * 32, b"o" * 32
LIMIT = 1 << 20


def state(n: int = 50, seed: int = 0, size: int = 4000) -> SavedState:
    random = np.random.default_rng(seed)
    tokens = random.integers(512, size=n).astype(np.int32)
    return SavedState(tokens, n // 2, random.integers(256, size=size).astype(np.uint8))


def with_points() -> SavedState:
    whole = state()
    return replace(whole, points=((10, whole.data[:300]), (20, whole.data[300:500])))


def with_three() -> SavedState:
    whole = state()
    return replace(whole, points=tuple((n, whole.data[n : 3 * n]) for n in (10, 20, 30)))


def loaded(folder: StateFolder, key: bytes = KEY) -> list[SavedState]:
    return [back for found in folder.of_kind(key) if (back := folder.load(found, key)) is not None]


def same(some: SavedState, other: SavedState) -> bool:
    parts, others = ((each.tokens, each.data, *(data for _, data in each.points)) for each in (some, other))
    is_same = [np.array_equal(part, other_part) for part, other_part in zip(parts, others, strict=True)]
    return all(is_same) and (some.read, some.ends) == (other.read, other.ends)


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*.state")
    return path


@pytest.mark.parametrize("piece", [300, 1 << 22])
@pytest.mark.parametrize(
    "kept",
    [state(), with_points(), with_three(), replace(state(), tokens=state().tokens.astype(np.int64)), state(size=0)],
    ids=["attention", "states", "three states", "wide tokens", "nothing"],
)
def test_a_state_comes_back_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: SavedState, piece: int
) -> None:
    """In whatever pieces it is written and read, and in a folder above which there is none."""
    monkeypatch.setattr("localspec.session.state_files.PIECE", piece)
    folder = StateFolder(tmp_path / "cache" / "states", LIMIT)
    assert folder.write(KEY, kept, 0.01)
    (found,) = folder.of_kind(KEY)
    assert found.seconds == 0.01
    (back,) = loaded(folder)
    assert same(back, kept)
    assert found.ends == kept.ends
    assert not loaded(folder, OTHER)
    assert found.path.parent.stat().st_mode & 0o777 == 0o700
    assert found.path.stat().st_mode & 0o777 == 0o600
    for each in (found, back):
        with pytest.raises(FrozenInstanceError):
            each.read = 0  # type: ignore[misc]
        assert not hasattr(each, "__dict__")


def test_a_state_of_yesterday_is_read_and_written_in_the_same_form(tmp_path: Path) -> None:
    """The form of the file, byte for byte, and its name: another wants another version."""
    kept, store = with_points(), StateFolder(tmp_path, LIMIT)
    head = struct.pack("<16sIIIIQd32s", b"localspec state\n", 1, 50, 25, 2, 4500, 0.01, KEY)
    points = struct.pack("<IQIQ", 10, 300, 20, 200)
    whole = b"".join((head, kept.tokens.tobytes(), points, kept.data.tobytes(), *(d.tobytes() for _, d in kept.points)))
    name = f"{KEY[:8].hex()}-{hashlib.sha256(KEY + kept.tokens.tobytes()).hexdigest()[:16]}.state"
    (tmp_path / name).write_bytes(whole + hashlib.sha256(whole).digest())
    (back,) = loaded(store)
    assert same(back, kept)
    (tmp_path / name).unlink()
    store.write(KEY, kept, 0.01)
    assert only_file(tmp_path).name == name
    assert only_file(tmp_path).read_bytes() == whole + hashlib.sha256(whole).digest()
    (tmp_path / name).write_bytes(whole.replace(b"\x01\0\0\0", b"\x02\0\0\0", 1))
    assert not list(store.of_kind(KEY)), "of another version"


@given(at=st.integers(0, 10**6), flipped=st.integers(1, 255))
@hypothesis_settings(max_examples=200)
def test_a_damaged_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, at: int, flipped: int) -> None:
    folder = tmp_path_factory.mktemp("states")
    store = StateFolder(folder, LIMIT)
    store.write(KEY, with_points(), 0.01)
    path = only_file(folder)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= flipped
    path.write_bytes(data)
    assert not loaded(store)


@given(length=st.integers(0, 10**6), filler=st.sampled_from([b"", b"\0", b"more"]))
@hypothesis_settings(max_examples=100)
def test_a_file_that_is_cut_short_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, length: int, filler: bytes
) -> None:
    folder = tmp_path_factory.mktemp("states")
    store = StateFolder(folder, LIMIT)
    store.write(KEY, state(), 0.01)
    path = only_file(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[: length % len(whole)] + filler)
    assert path.read_bytes() == whole or not loaded(store)


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, LIMIT)
    store.write(KEY, state(), 0.01)
    path = only_file(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert not loaded(store)
    path.unlink()
    os.mkfifo(path)
    n = len(os.listdir("/dev/fd"))
    assert not loaded(store)
    assert len(os.listdir("/dev/fd")) == n


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    states = [state(seed=seed) for seed in range(4)]
    store = StateFolder(tmp_path, 3 * 4500)
    assert store.write(KEY, states[0], 0.01)
    os.utime(only_file(tmp_path), (1, 1))
    for each in states[1:]:
        assert store.write(KEY, each, 0.01)
    kept = loaded(store)
    assert len(kept) == 3
    assert not any(same(each, states[0]) for each in kept)
    assert not store.write(KEY, state(size=20_000), 0.01), "one that is larger than all may be is not written"
    assert len(loaded(store)) == 3


def test_a_state_that_was_read_was_used(tmp_path: Path) -> None:
    states = [state(seed=seed) for seed in range(3)]
    store = StateFolder(tmp_path, 2 * 4500)
    for n, each in enumerate(states[:2], start=1):
        store.write(KEY, each, 0.01)
        for path in tmp_path.glob("*.state"):
            if path.stat().st_mtime > 2:
                os.utime(path, (n, n))
    (first,) = (found for found in store.of_kind(KEY) if np.array_equal(found.tokens, states[0].tokens))
    assert store.load(first, KEY) is not None
    store.write(KEY, states[2], 0.01)
    assert [same(back, states[1]) for back in loaded(store)] == [False, False]


def test_a_state_goes_for_room_alone_and_what_others_write_is_no_state(tmp_path: Path) -> None:
    """However old it is. A part that another process writes just now is not counted, and not deleted."""
    store = StateFolder(tmp_path, 2 * 4500)
    store.write(KEY, state(seed=0), 0.01)
    os.utime(only_file(tmp_path), (1, 1))
    part = tmp_path / ".a-1"
    part.write_bytes(bytes(4000))
    os.utime(part, (time.time() - 30, time.time() - 30))
    store.write(KEY, state(seed=1), 0.01)
    assert len(loaded(store)) == 2
    for path in tmp_path.glob("*.state"):
        os.utime(path)
    store.write(KEY, state(seed=2), 0.01)
    assert len(loaded(store)) == 2
    assert part.exists()


def test_what_fits_exactly_is_kept(tmp_path: Path) -> None:
    StateFolder(tmp_path, LIMIT).write(KEY, state(), 0.01)
    size = only_file(tmp_path).stat().st_size
    assert not StateFolder(tmp_path / "less", size - 1).write(KEY, state(), 0.01)
    store = StateFolder(tmp_path, 2 * size)
    assert store.write(KEY, state(seed=1), 0.01)
    assert len(loaded(store)) == 2
    store = StateFolder(tmp_path, 3 * size - 1)
    assert store.write(OTHER, state(seed=2), 0.01)
    assert len(loaded(store)) + len(loaded(store, OTHER)) == 2, "models share the room"
    assert StateFolder(tmp_path, size).write(KEY, state(seed=3), 0.01)
    assert len(list(tmp_path.glob("*.state"))) == 1


def test_a_folder_of_others_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    folder.mkdir(mode=0o755)
    assert StateFolder(folder, LIMIT).write(KEY, state(), 0.01)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_file_that_is_gone_is_no_state(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, LIMIT)
    store.write(KEY, state(), 0.01)
    (found,) = store.of_kind(KEY)
    store.remove(found)
    store.remove(found)
    assert store.load(found, KEY) is None
    assert not list(tmp_path.iterdir())


def test_a_state_that_is_written_twice_stays(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, LIMIT)
    assert store.write(KEY, state(), 0.01)
    assert store.write(KEY, state(), 0.02)
    assert [found.seconds for found in store.of_kind(KEY)] == [0.02]


def test_a_longer_text_takes_the_place_of_its_start(tmp_path: Path) -> None:
    store, whole = StateFolder(tmp_path, LIMIT), state(80)
    store.write(KEY, SavedState(whole.tokens[:40], 0, whole.data), 0.01)
    store.write(KEY, state(seed=1), 0.01)
    store.write(OTHER, SavedState(whole.tokens[:40], 0, whole.data), 0.01)
    store.write(KEY, whole, 0.01)
    assert sorted(len(each.tokens) for each in loaded(store)) == [50, 80]
    assert len(loaded(store, OTHER)) == 1
    store.write(KEY, SavedState(whole.tokens[:30], 0, whole.data), 0.01)
    assert sorted(len(each.tokens) for each in loaded(store)) == [30, 50, 80], "a start takes no place"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, LIMIT)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        assert not store.write(KEY, state(), 0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
    assert store.write(KEY, state(), 0.01)


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "states").write_text("a file")
    store = StateFolder(tmp_path / "states", LIMIT)
    assert not store.write(KEY, state(), 0.01)
    assert not loaded(store)


def test_a_part_that_a_killed_process_left_goes(tmp_path: Path) -> None:
    left, fresh, earlier, other = (tmp_path / name for name in (".a-1", ".b-2", "a.1.part", "notes"))
    for part in (left, fresh, earlier, other):
        part.write_bytes(b"some")
    now = time.time()
    for part in (left, earlier, other):
        os.utime(part, (now - 61, now - 61))
    os.utime(fresh, (now - 30, now - 30))
    StateFolder(tmp_path, LIMIT).write(KEY, state(), 0.01)
    assert [part.exists() for part in (left, fresh, earlier, other)] == [False, True, False, True]


def test_the_rate_that_was_measured_is_known_to_the_next_process(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, 1 << 30)
    assumed = store.rate
    store.write(KEY, state(size=1 << 21), 0.01)
    assert len(loaded(store)) == 1
    assert store.rate != assumed
    assert StateFolder(tmp_path, LIMIT).rate == pytest.approx(store.rate, abs=1)
    measured = store.rate
    (tmp_path / "read-rate").write_text("2000000")
    assert store.rate == measured, "it is read once"
    (tmp_path / "read-rate").write_bytes(b"\xff\xfenan")
    assert StateFolder(tmp_path, LIMIT).rate == assumed


@pytest.mark.parametrize(
    ("told", "rate"),
    [("1e6", 1e6), ("999999", 150e6), ("1e12", 1e12), ("1.1e12", 150e6), ("nan", 150e6), ("fast", 150e6), ("", 150e6)],
)
def test_a_rate_that_no_disk_has_is_not_believed(tmp_path: Path, told: str, rate: float) -> None:
    (tmp_path / "read-rate").write_text(told)
    assert StateFolder(tmp_path, LIMIT).rate == rate


@pytest.mark.parametrize(("size", "is_measured"), [(1 << 20, True), ((1 << 20) - 1, False)])
def test_a_small_state_tells_no_rate(tmp_path: Path, size: int, is_measured: bool) -> None:
    store = StateFolder(tmp_path, 1 << 30)
    store.write(KEY, state(size=size), 0.01)
    assert len(loaded(store)) == 1
    assert (tmp_path / "read-rate").exists() == (store.rate != 150e6) == is_measured
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("seconds", "rate"), [(0.0, 150e6), (0.01, (150e6 + (1 << 21) / 0.01) / 2)])
def test_a_reading_changes_the_rate_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, rate: float
) -> None:
    """One that takes no time on a coarse clock tells nothing."""
    store = StateFolder(tmp_path, 1 << 30)
    store.write(KEY, state(size=1 << 21), 0.01)
    ticks = iter((5.0, 5.0 + seconds))
    monkeypatch.setattr("localspec.session.state_files.time.perf_counter", lambda: next(ticks))
    assert len(loaded(store)) == 1
    assert store.rate == pytest.approx(rate)


WRITER = """
import sys
from pathlib import Path
from tests.integration.test_state_files import KEY, state
from localspec.session.state_files import StateFolder
store = StateFolder(Path(sys.argv[1]), 3 * 4500)
for turn in range(100):
    store.write(KEY, state(seed=turn % 5), 0.01)
"""


def test_two_processes_write_and_one_reads(tmp_path: Path) -> None:
    states = [state(seed=seed) for seed in range(5)]
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen(command, cwd=Path(__file__).parents[2]) for _ in range(2)]
    store = StateFolder(tmp_path, 3 * 4500)
    while any(writer.poll() is None for writer in writers):
        for back in loaded(store):
            assert any(same(back, each) for each in states)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert loaded(store)
    assert not list(tmp_path.glob(".*"))
