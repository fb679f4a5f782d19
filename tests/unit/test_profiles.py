"""What is kept of a pair between runs: found again by what it depends on, and never in the way."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec import events
from localspec.acceptance import Acceptance
from localspec.control.cost import Costs, DraftCosts
from localspec.control.ledger import Ledger
from localspec.control.row_costs import RowCosts
from localspec.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.profiles import ENDS, Profile
from localspec.protocols import Plan
from localspec.steering import Steering

SETTINGS = (("CPU",), 2, "auto", "auto", "f16", "auto", "build 1")


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """Two files that stand for models; nothing of them but their bytes is read."""
    paths = [tmp_path / "target.gguf", tmp_path / "draft.gguf"]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * (3 * ENDS))
    return paths


def learned() -> Acceptance:
    """Return an acceptance that has seen forty passes."""
    acceptance = Acceptance(Draw.IID)
    draft = Draft.of([0, 1, 2], [-1, 0, 1], draw=Draw.IID, shares=[1.0, 0.7, 0.3])
    for i in range(40):
        kept = i % 3
        verdict = Verdict(tuple(range(1, kept + 1)), 5, Source.CORRECTED)
        acceptance.observe(Step(draft, verdict, (5,), (Source.CORRECTED,), (0, *verdict.path), 1, Times(), Plan()))
    return acceptance


def test_what_is_saved_is_read_again(models: list[Path], tmp_path: Path) -> None:
    profile = Profile.of(tmp_path / "profiles", models, SETTINGS)
    assert profile.costs is None
    profile.costs = Costs(RowCosts({1: 0.01, 4: 0.012, 9: 0.03}), DraftCosts(0.002), 0.0001)
    profile.costs.at(3000).add({1: 0.02, 4: 0.03, 9: 0.09})
    profile.acceptance["chain"] = learned()
    profile.exact_widths = (1, 2, 3)
    assert profile.save()
    again = Profile.of(tmp_path / "profiles", models, SETTINGS)
    assert again.costs is not None
    assert again.costs.target.measured() == {1: 0.01, 4: 0.012, 9: 0.03}
    assert again.costs.at(3000).measured() == {1: 0.02, 4: 0.03, 9: 0.09}
    assert again.costs.read == 0.0001
    assert again.costs.draft.of(4) == pytest.approx(0.008)
    for rank in range(4):
        for share in (0.05, 0.35, 0.75, 0.95):
            assert again.accepted("chain", Draw.IID).chance(share, rank) == learned().chance(share, rank)
    assert again.accepted("chain", Draw.IID).chance(0.75, 0) != Acceptance(Draw.IID).chance(0.75, 0)
    assert again.exact_widths == (1, 2, 3)
    assert [path.suffix for path in (tmp_path / "profiles").iterdir()] == [".json"], "no part of a file is left"


def opened(models: list[Path], folder: Path, times: dict[int, float]) -> Profile:
    """Return a profile of `models` that knows `times`, saved."""
    profile = Profile.of(folder, models, SETTINGS)
    profile.costs = Costs(RowCosts(times), DraftCosts(0.002), 0.0001)
    assert profile.save()
    return profile


def kept(models: list[Path], folder: Path) -> dict[int, float]:
    """Return the times that a process which starts now would find."""
    costs = Profile.of(folder, models, SETTINGS).costs
    assert costs is not None
    return costs.at(0).measured()


def test_a_calibration_beside_a_chat_is_taken_up(models: list[Path], tmp_path: Path) -> None:
    """In a second terminal, while the chat goes on with what it read before."""
    chat = opened(models, tmp_path, {1: 0.01, 4: 0.012})
    other = Profile.of(tmp_path, models, SETTINGS)
    other.renew(Costs(RowCosts({1: 0.02, 9: 0.03}), DraftCosts(0.003), 0.0001, calibrated=100.0))
    assert other.save()
    assert chat.save()
    assert kept(models, tmp_path) == {1: 0.02, 4: 0.012, 9: 0.03}


def test_a_chat_that_is_saved_beside_a_calibration_does_not_undo_it(models: list[Path], tmp_path: Path) -> None:
    chat = opened(models, tmp_path, {1: 0.01, 4: 0.012})
    other = Profile.of(tmp_path, models, SETTINGS)
    assert chat.costs is not None
    for _ in range(3):
        chat.costs.at(0).observe(7, 0.02)
    assert chat.save(), "while the other measures"
    other.renew(Costs(RowCosts({1: 0.02, 9: 0.03}), DraftCosts(0.003), 0.0001, calibrated=100.0))
    assert other.save()
    assert kept(models, tmp_path) == pytest.approx({1: 0.02, 4: 0.012, 7: 0.02, 9: 0.03})


def test_a_calibration_counts_whatever_the_clock_says(models: list[Path], tmp_path: Path) -> None:
    """The one before was made while the clock was ahead."""
    ahead = opened(models, tmp_path, {1: 0.01})
    ahead.renew(Costs(RowCosts({1: 0.02, 4: 0.03}), DraftCosts(0.003), 0.0001, calibrated=9e9))
    assert ahead.save()
    chat, other = (Profile.of(tmp_path, models, SETTINGS) for _ in range(2))
    other.renew(Costs(RowCosts({1: 0.05, 4: 0.06}), DraftCosts(0.003), 0.0001, calibrated=100.0))
    assert other.save()
    assert chat.save()
    assert kept(models, tmp_path) == {1: 0.05, 4: 0.06}
    assert other.save()
    assert kept(models, tmp_path) == {1: 0.05, 4: 0.06}


def test_a_calibration_of_ours_is_not_undone_by_an_older_file(models: list[Path], tmp_path: Path) -> None:
    """A chat saved while this process measured, and wrote the calibration that both had read."""
    ours = opened(models, tmp_path, {1: 0.01})
    ours.renew(Costs(RowCosts({1: 0.02}), DraftCosts(0.003), 0.0001, calibrated=100.0))
    assert ours.save()
    chat = Profile.of(tmp_path, models, SETTINGS)
    ours.renew(Costs(RowCosts({1: 0.05}), DraftCosts(0.003), 0.0001, calibrated=200.0))
    assert chat.save()
    assert ours.save()
    assert kept(models, tmp_path) == {1: 0.05}


def test_two_chats_do_not_keep_each_other_from_learning(models: list[Path], tmp_path: Path) -> None:
    """Each finds the file written by the other, who knew the prices of a busier hour."""
    chats = [opened(models, tmp_path, {1: 0.12}), Profile.of(tmp_path, models, SETTINGS)]
    for chat in chats * 5:
        assert chat.costs is not None
        for _ in range(20):
            chat.costs.at(0).observe(1, 0.06)
        assert chat.save()
    assert kept(models, tmp_path)[1] == pytest.approx(0.06, rel=0.02)


def test_what_another_process_saw_accepted_is_kept(models: list[Path], tmp_path: Path) -> None:
    """Also of a kind of draft that was known here and not used since."""
    for _ in range(2):
        chat, other = (Profile.of(tmp_path, models, SETTINGS) for _ in range(2))
        other.acceptance["chain"] = learned()
        assert other.save()
        assert chat.save()
        chance = Profile.of(tmp_path, models, SETTINGS).accepted("chain", Draw.IID).chance(0.75, 0)
        assert chance == learned().chance(0.75, 0)


def test_widths_that_another_process_measured_are_kept(models: list[Path], tmp_path: Path) -> None:
    """A file that was written without any has none."""
    chat = opened(models, tmp_path, {1: 0.01})
    assert Profile.of(tmp_path, models, SETTINGS).exact_widths is None
    other = Profile.of(tmp_path, models, SETTINGS)
    other.exact_widths = (1, 2)
    assert other.save()
    assert chat.save()
    assert Profile.of(tmp_path, models, SETTINGS).exact_widths == (1, 2)


@pytest.mark.parametrize("change", ["threads", "cache type", "build", "draft", "beginning", "end", "length"])
def test_other_circumstances_are_another_profile(models: list[Path], tmp_path: Path, change: str) -> None:
    settings, pair = list(SETTINGS), list(models)
    before = Profile.of(tmp_path, models, SETTINGS).file
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
    assert Profile.of(tmp_path, pair, settings).file != before


def test_a_file_of_the_same_bytes_elsewhere_is_the_same_model(models: list[Path], tmp_path: Path) -> None:
    before = Profile.of(tmp_path, models, SETTINGS).file
    moved = models[0].rename(tmp_path / "moved.gguf")
    assert Profile.of(tmp_path, [moved, models[1]], SETTINGS).file == before


COSTS: dict[str, Any] = {
    "target": {"0": {"1": 0.01}, "512": {"1": 0.02}},
    "draft": 0.1,
    "read": 0.1,
    "lone": 1,
    "calibrated": 0,
}
GOOD: dict[str, Any] = {"costs": COSTS, "acceptance": {}}
TABLE = {"draw": "iid", "reached": [[0.0] * 10] * 4, "accepted": [[0.0] * 10] * 4, "waited": None}
DAMAGED = {
    "cut off": '{"version": 1, "costs": {"tar',
    "empty": "",
    "no object": "[]",
    "a number": "7",
    "without costs": '{"acceptance": {}}',
    "a negative time": json.dumps({**GOOD, "costs": {**COSTS, "target": {"0": {"1": -1}}}}),
    "a pass of no time": json.dumps({**GOOD, "costs": {**COSTS, "target": {"0": {"1": 0.0, "2": 1.0}}}}),
    "no time": json.dumps({**GOOD, "costs": {**COSTS, "draft": "soon"}}),
    "not finite": json.dumps({**GOOD, "costs": {**COSTS, "read": float("nan")}}),
    "a pass of no rows": json.dumps({**GOOD, "costs": {**COSTS, "lone": 0}}),
    "no rows": json.dumps({**GOOD, "costs": {**COSTS, "target": {"0": {"one": 1}}}}),
    "no lengths": json.dumps({**GOOD, "costs": {**COSTS, "target": {}}}),
    "a length in between": json.dumps({**GOOD, "costs": {**COSTS, "target": {"700": {"1": 0.01}}}}),
    "no widths": json.dumps({**GOOD, "exact_widths": []}),
    "widths with a gap": json.dumps({**GOOD, "exact_widths": [1, 3]}),
    "widths that are none": json.dumps({**GOOD, "exact_widths": 3}),
    "acceptance in a list": json.dumps({**GOOD, "acceptance": []}),
    "an unknown draw": json.dumps({**GOOD, "acceptance": {"x": {**TABLE, "draw": "magic"}}}),
    "a short table": json.dumps({**GOOD, "acceptance": {"x": {**TABLE, "reached": [[0.0] * 10]}}}),
    "waited for ever and a day": json.dumps({**GOOD, "acceptance": {"x": {**TABLE, "waited": "long"}}}),
    "another table": json.dumps({**GOOD, "acceptance": {"x": {**TABLE, "accepted": [[float("inf")] * 10] * 4}}}),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_as_good_as_none(models: list[Path], tmp_path: Path, damage: str) -> None:
    """Whole or not at all: costs are not taken from a file whose acceptance cannot be read. It is written anew."""
    profile = Profile.of(tmp_path, models, SETTINGS)
    profile.file.write_text(json.dumps(GOOD))
    assert Profile.of(tmp_path, models, SETTINGS).costs is not None, "the undamaged one is read"
    profile.file.write_text(DAMAGED[damage])
    again = Profile.of(tmp_path, models, SETTINGS)
    assert (again.costs, again.acceptance, again.exact_widths) == (None, {}, None)
    assert again.save()
    assert json.loads(profile.file.read_text())["costs"] is None


def test_bytes_that_are_no_text_are_ignored(models: list[Path], tmp_path: Path) -> None:
    profile = Profile.of(tmp_path, models, SETTINGS)
    profile.file.write_bytes(b"\xff\xfe\x00")
    assert Profile.of(tmp_path, models, SETTINGS).costs is None


@pytest.mark.parametrize("learned_by", ["a controller", "a first measurement"])
def test_a_folder_that_cannot_be_written_is_told_once(models: list[Path], tmp_path: Path, learned_by: str) -> None:
    """Where something was to be kept. Then it is gone on with, and nothing is left behind."""
    (tmp_path / "file").touch()
    profile = Profile.of(tmp_path / "file" / "profiles", models, SETTINGS)
    ticks = count()
    steering = Steering(profile, lambda: 0.01 * next(ticks))
    assert not list(steering.keep()), "nothing was learned that is worth a warning"
    if learned_by == "a controller":
        steering._ledger = Ledger(Costs())
    else:  # as for plain decoding, which has no ledger
        timed: Any = SimpleNamespace(time_rows=lambda rows: 0.01 * rows)
        list(steering.measure(timed, None, lambda: False))
    (told,) = [event for _ in range(3) for event in steering.keep()]
    assert isinstance(told, events.Warned)
    assert "cannot be written" in told.message
    assert (tmp_path / "file").read_bytes() == b""
