"""What is kept of a pair between runs: found again by what it depends on, and never in the way."""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.control.auto import Auto
from localspec.control.prices import Prices
from localspec.control.profile import Profile
from localspec.engine import events
from localspec.engine.acceptance import Acceptance, CopyAcceptance, CopyKind
from localspec.engine.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.engine.protocols import Plan
from localspec.models.gguf.fingerprint import END_BYTES, file_fingerprint
from localspec.session.controllers import PairController

SETTINGS = (("CPU",), 2, "auto", "auto", "f16", "auto", "build 1")


def profile_of(folder: Path, models: Sequence[Path], settings: Sequence[object]) -> Profile:
    return Profile.of(folder, [file_fingerprint(path) for path in models], settings)


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """Two files that stand for models; nothing of them but their bytes is read."""
    paths = [tmp_path / "target.gguf", tmp_path / "draft.gguf"]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * (3 * END_BYTES))
    return paths


def learned() -> Acceptance:
    acceptance = Acceptance(Draw.IID)
    draft = Draft.of([0, 1, 2], [-1, 0, 1], draw=Draw.IID, shares=[1.0, 0.7, 0.3])
    for i in range(40):
        kept = i % 3
        verdict = Verdict(tuple(range(1, kept + 1)), 5, Source.CORRECTED)
        acceptance.observe(Step(draft, verdict, (5,), (Source.CORRECTED,), (0, *verdict.path), 1, Times(), Plan()))
    return acceptance


def copied() -> CopyAcceptance:
    known = CopyAcceptance()
    for i in range(40):
        known.observe(CopyKind.ONLY, 9, i % 3 == 0)
    return known


def calibrated(times: dict[int, float], when: float) -> Prices:
    """Return what somebody measured who asked for it."""
    return Prices(times, 0.003, 0.0001, calibrated=when)


def test_what_is_saved_is_read_again(models: list[Path], tmp_path: Path) -> None:
    profile = profile_of(tmp_path / "profiles", models, SETTINGS)
    assert profile.prices is None
    profile.prices = Prices({1: 0.01, 4: 0.012, 9: 0.03}, 0.002, 0.0001)
    profile.acceptance["chain"] = learned()
    profile.exact_widths = (1, 2, 3)
    profile.copies["0.8"] = copied()
    assert profile.save()
    again = profile_of(tmp_path / "profiles", models, SETTINGS)
    assert again.prices is not None
    assert again.prices.measured() == pytest.approx({1: 0.01, 4: 0.012, 9: 0.03})
    assert (again.prices.draft.value, again.prices.read.value) == (0.002, 0.0001)
    for rank in range(4):
        for share in (0.05, 0.35, 0.75, 0.95):
            assert again.accepted("chain", Draw.IID).chance(share, rank) == learned().chance(share, rank)
    assert again.accepted("chain", Draw.IID).chance(0.75, 0) != Acceptance(Draw.IID).chance(0.75, 0)
    assert again.exact_widths == (1, 2, 3)
    chances = [one.chance(CopyKind.ONLY, 9) for one in (again.copied("0.8"), copied(), again.copied("0"))]
    assert chances[0] == pytest.approx(chances[1])
    assert chances[0] < 0.9 * chances[2], "another temperature has copies of its own"
    assert [path.suffix for path in (tmp_path / "profiles").iterdir()] == [".json"], "no part of a file is left"


def opened(models: list[Path], folder: Path, times: dict[int, float]) -> Profile:
    """Return a profile of `models` that knows `times`, saved."""
    profile = profile_of(folder, models, SETTINGS)
    profile.prices = Prices(times, 0.002, 0.0001)
    assert profile.save()
    return profile


def kept(models: list[Path], folder: Path) -> dict[int, float]:
    """Return the times that a process which starts now would find."""
    prices = profile_of(folder, models, SETTINGS).prices
    assert prices is not None
    return prices.measured()


def test_a_calibration_beside_a_chat_is_taken_up(models: list[Path], tmp_path: Path) -> None:
    """In a second terminal, while the chat goes on with what it read before."""
    chat = opened(models, tmp_path, {1: 0.01, 4: 0.012})
    other = profile_of(tmp_path, models, SETTINGS)
    other.renew(calibrated({1: 0.02, 9: 0.03}, 100.0))
    assert other.save()
    assert chat.save()
    assert kept(models, tmp_path) == pytest.approx({1: 0.02, 4: 0.024, 9: 0.03}), "others stay, in plain passes"


def test_a_chat_that_is_saved_beside_a_calibration_does_not_undo_it(models: list[Path], tmp_path: Path) -> None:
    chat = opened(models, tmp_path, {1: 0.01, 4: 0.012})
    other = profile_of(tmp_path, models, SETTINGS)
    assert chat.prices is not None
    for _ in range(3):
        chat.prices.observe(7, 0.02)
    assert chat.save(), "while the other measures"
    other.renew(calibrated({1: 0.02, 9: 0.03}, 100.0))
    assert other.save()
    assert kept(models, tmp_path) == pytest.approx({1: 0.02, 4: 0.024, 7: 0.04, 9: 0.03})


def test_a_calibration_counts_whatever_the_clock_says(models: list[Path], tmp_path: Path) -> None:
    """The one before was made while the clock was ahead."""
    ahead = opened(models, tmp_path, {1: 0.01})
    ahead.renew(calibrated({1: 0.02, 4: 0.03}, 9e9))
    assert ahead.save()
    chat, other = (profile_of(tmp_path, models, SETTINGS) for _ in range(2))
    other.renew(calibrated({1: 0.05, 4: 0.06}, 100.0))
    assert other.save()
    assert chat.save()
    assert kept(models, tmp_path) == pytest.approx({1: 0.05, 4: 0.06})
    assert other.save()
    assert kept(models, tmp_path) == pytest.approx({1: 0.05, 4: 0.06})


def test_a_calibration_of_ours_is_not_undone_by_an_older_file(models: list[Path], tmp_path: Path) -> None:
    """A chat saved while this process measured, and wrote the calibration that both had read."""
    ours = opened(models, tmp_path, {1: 0.01})
    ours.renew(calibrated({1: 0.02}, 100.0))
    assert ours.save()
    chat = profile_of(tmp_path, models, SETTINGS)
    ours.renew(calibrated({1: 0.05}, 200.0))
    assert chat.save()
    assert ours.save()
    assert kept(models, tmp_path) == {1: 0.05}


def test_two_chats_do_not_keep_each_other_from_learning(models: list[Path], tmp_path: Path) -> None:
    """Each finds the file written by the other, who knew the prices of a busier hour."""
    chats = [opened(models, tmp_path, {1: 0.12}), profile_of(tmp_path, models, SETTINGS)]
    for chat in chats * 5:
        assert chat.prices is not None
        for _ in range(20):
            chat.prices.observe_plain(0.06)
        assert chat.save()
    assert kept(models, tmp_path)[1] == pytest.approx(0.06, rel=0.02)


def test_what_another_process_saw_accepted_is_kept(models: list[Path], tmp_path: Path) -> None:
    """Also of a kind of draft that was known here and not used since; the second time both know of it."""
    for known in (learned(), Acceptance(Draw.IID)):
        chat, other = (profile_of(tmp_path, models, SETTINGS) for _ in range(2))
        other.acceptance["chain"] = known
        assert other.save()
        assert chat.save()
        chance = profile_of(tmp_path, models, SETTINGS).accepted("chain", Draw.IID).chance(0.75, 0)
        assert chance == known.chance(0.75, 0)


def test_what_another_process_saw_copied_is_kept(models: list[Path], tmp_path: Path) -> None:
    """Unless this one learned of it too: then the last to save tells."""
    for known in (copied(), CopyAcceptance()):
        chat, other = (profile_of(tmp_path, models, SETTINGS) for _ in range(2))
        other.copies["0"] = known
        assert other.save()
        assert chat.save()
        chance = profile_of(tmp_path, models, SETTINGS).copied("0").chance(CopyKind.ONLY, 9)
        assert chance == pytest.approx(known.chance(CopyKind.ONLY, 9))
    chat, other = (profile_of(tmp_path, models, SETTINGS) for _ in range(2))
    for _ in range(50):
        chat.copied("0").observe(CopyKind.ONLY, 9, is_right=False)
    other.copies["0"] = copied()
    assert other.save()
    assert chat.save()
    chance = profile_of(tmp_path, models, SETTINGS).copied("0").chance(CopyKind.ONLY, 9)
    assert chance == pytest.approx(chat.copied("0").chance(CopyKind.ONLY, 9))


def test_widths_that_another_process_measured_are_kept(models: list[Path], tmp_path: Path) -> None:
    """A file that was written without any has none."""
    chat = opened(models, tmp_path, {1: 0.01})
    assert profile_of(tmp_path, models, SETTINGS).exact_widths is None
    other = profile_of(tmp_path, models, SETTINGS)
    other.exact_widths = (1, 2)
    assert other.save()
    assert chat.save()
    assert profile_of(tmp_path, models, SETTINGS).exact_widths == (1, 2)


@pytest.mark.parametrize("change", ["threads", "cache type", "build", "draft", "beginning", "end", "length"])
def test_other_circumstances_are_another_profile(models: list[Path], tmp_path: Path, change: str) -> None:
    settings, pair = list(SETTINGS), list(models)
    before = profile_of(tmp_path, models, SETTINGS).file
    bytes_before = models[0].read_bytes()
    match change:
        case "threads":
            settings[1] = 4
        case "cache type":
            settings[4] = "q8_0"
        case "build":
            settings[6] = "build 2"
        case "draft":
            del pair[1]
        case "beginning":
            models[0].write_bytes(b"x" + bytes_before[1:])
        case "end":
            models[0].write_bytes(bytes_before[:-1] + b"x")
        case "length":
            models[0].write_bytes(bytes_before + bytes_before[-1:])
    assert profile_of(tmp_path, pair, settings).file != before


def test_a_file_of_the_same_bytes_elsewhere_is_the_same_model(models: list[Path], tmp_path: Path) -> None:
    before = profile_of(tmp_path, models, SETTINGS).file
    moved = models[0].rename(tmp_path / "moved.gguf")
    assert profile_of(tmp_path, [moved, models[1]], SETTINGS).file == before


PRICES: dict[str, Any] = {
    "rows": {"1": 0.01, "4": 0.02},
    "draft": 0.1,
    "read": 0.1,
    "lone": 1,
    "calibrated": 0,
    "change": 0,
    "singly": False,
}
GOOD: dict[str, Any] = {"prices": PRICES, "acceptance": {}, "copies": {}}
TABLE = {"draw": "iid", "reached": [[0.0] * 10] * 4, "accepted": [[0.0] * 10] * 4, "waited": None}
DAMAGED = {
    "cut off": '{"version": 1, "prices": {"row',
    "empty": "",
    "no object": "[]",
    "a number": "7",
    "no widths": json.dumps({**GOOD, "exact_widths": []}),
    "widths with a gap": json.dumps({**GOOD, "exact_widths": [1, 3]}),
    "widths that are none": json.dumps({**GOOD, "exact_widths": 3}),
    "without prices": '{"acceptance": {}, "copies": {}}',
    "without copies": json.dumps({"prices": PRICES, "acceptance": {}}),
    "a negative time": json.dumps({**GOOD, "prices": {**PRICES, "rows": {"1": -1}}}),
    "a pass of no time": json.dumps({**GOOD, "prices": {**PRICES, "rows": {"1": 0.0, "2": 1.0}}}),
    "no time": json.dumps({**GOOD, "prices": {**PRICES, "draft": "soon"}}),
    "not finite": json.dumps({**GOOD, "prices": {**PRICES, "read": float("nan")}}),
    "a pass of no rows": json.dumps({**GOOD, "prices": {**PRICES, "lone": 0}}),
    "no rows": json.dumps({**GOOD, "prices": {**PRICES, "rows": {"one": 1}}}),
    "no plain pass": json.dumps({**GOOD, "prices": {**PRICES, "rows": {"4": 0.01}}}),
    "more rows than a pass has": json.dumps({**GOOD, "prices": {**PRICES, "rows": {"1": 0.01, "700": 0.01}}}),
    "fewer rows than none": json.dumps({**GOOD, "prices": {**PRICES, "rows": {"1": 0.01, "-1": 0.01}}}),
    "acceptance in a list": json.dumps({**GOOD, "acceptance": []}),
    "an unknown draw": json.dumps({**GOOD, "acceptance": {"x": {**TABLE, "draw": "magic"}}}),
    "a short table": json.dumps({**GOOD, "acceptance": {"x": {**TABLE, "reached": [[0.0] * 10]}}}),
    "waited for ever and a day": json.dumps({**GOOD, "acceptance": {"x": {**TABLE, "waited": "long"}}}),
    "another table": json.dumps({**GOOD, "acceptance": {"x": {**TABLE, "accepted": [[float("inf")] * 10] * 4}}}),
    "copies in a list": json.dumps({**GOOD, "copies": []}),
    "copies of another shape": json.dumps({**GOOD, "copies": {"0": {"seen": [[1.0]], "right": [[0.0]]}}}),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_as_good_as_none(models: list[Path], tmp_path: Path, damage: str) -> None:
    """Whole or not at all: prices are not taken from a file whose acceptance cannot be read. It is written anew."""
    profile = profile_of(tmp_path, models, SETTINGS)
    profile.file.write_text(json.dumps(GOOD))
    assert profile_of(tmp_path, models, SETTINGS).prices is not None, "the undamaged one is read"
    profile.file.write_text(DAMAGED[damage])
    again = profile_of(tmp_path, models, SETTINGS)
    assert (again.prices, again.acceptance, again.copies, again.exact_widths) == (None, {}, {}, None)
    assert again.save()
    assert json.loads(profile.file.read_text())["prices"] is None


def test_bytes_that_are_no_text_are_ignored(models: list[Path], tmp_path: Path) -> None:
    profile = profile_of(tmp_path, models, SETTINGS)
    profile.file.write_bytes(b"\xff\xfe\x00")
    assert profile_of(tmp_path, models, SETTINGS).prices is None


@pytest.mark.parametrize("learned_by", ["a controller", "a first measurement"])
def test_a_folder_that_cannot_be_written_is_told_once(models: list[Path], tmp_path: Path, learned_by: str) -> None:
    """Where something was to be kept. Then it is gone on with, and nothing is left behind."""
    (tmp_path / "file").touch()
    profile = profile_of(tmp_path / "file" / "profiles", models, SETTINGS)
    ticks = count()
    controllers = PairController(profile, lambda: 0.01 * next(ticks))
    assert not list(controllers.keep()), "nothing was learned that is worth a warning"
    if learned_by == "a controller":
        controllers._auto = Auto(Prices(), [])
    else:  # as for plain decoding, which has no planner
        capabilities = SimpleNamespace(max_rows=64, n_ctx=512, settles=1, max_leaves=1, is_lane=False)
        timed: Any = SimpleNamespace(time_rows=lambda rows: 0.01 * rows, capabilities=capabilities)
        list(controllers.measure(timed, None, lambda: False))
    (told,) = [event for _ in range(3) for event in controllers.keep()]
    assert isinstance(told, events.Warned)
    assert "cannot be written" in told.message
    assert (tmp_path / "file").read_bytes() == b""
