"""What a trial keeps, and what a plan may expect by it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from localspec.control.prices import Prices
from localspec.control.profile import Profile, profiles_of
from localspec.control.trial import Kind, Trial
from localspec.engine.acceptance import Acceptance
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draw


def dist(**probs: float) -> Distribution:
    return Distribution(np.array([ord(one) for one in probs], np.int32), np.array(list(probs.values())))


def tried(n: int = 40, right: int = 10) -> Trial:
    trial = Trial(seconds=2.0)
    for at in range(n):
        trial.likeliest_is("code", 0.95, at < right)
        trial.drawn_from("code", dist(a=0.5, b=0.5), dist(a=0.8, b=0.2))
    return trial


def test_drawn_tokens_are_accepted_with_the_mass_that_both_have() -> None:
    trial = tried(1, 1)
    assert trial.total.drawn == pytest.approx(0.5 + 0.2)
    reached, accepted = trial.drawn
    assert (reached[8], accepted[8]) == pytest.approx((0.8, 0.5))
    assert (reached[2], accepted[2]) == pytest.approx((0.2, 0.2))


def test_a_token_of_the_target_tells_the_same_on_average() -> None:
    """Over all that the target may draw, with the chance of each; so do the shares that a plan asks for."""
    p, q = dist(a=0.5, b=0.3, c=0.2), dist(a=0.85, c=0.1, d=0.05)
    whole, drawn = Trial(), Trial()
    whole.drawn_from("chat", p, q)
    for token, chance in zip(p.ids.tolist(), p.probs.tolist(), strict=True):
        one = Trial()
        one.drawn_at("chat", q, token, chance)
        assert one.total.n_drawn == 1.0
        drawn.kinds.setdefault("chat", Kind()).drawn += chance * one.total.drawn
        for mine, its in zip(drawn.drawn, one.drawn, strict=True):
            mine[:] = (a + chance * b for a, b in zip(mine, its, strict=True))
    assert drawn.total.drawn == pytest.approx(whole.total.drawn) == pytest.approx(0.5 + 0.1)
    assert np.allclose(drawn.drawn, whole.drawn)


def test_trials_add_up_and_what_is_known_fades() -> None:
    one, other = tried(), tried(20, 20)
    one.add(other)
    assert (one.total.n, one.total.likeliest, one.total.n_drawn) == (60.0, 30.0, 60.0)
    assert one == Trial.from_wire(one.to_wire())
    known = tried(4000, 0).acceptance(Draw.COUPLED, is_greedy=True)
    known.absorb(tried(400, 400).acceptance(Draw.COUPLED, is_greedy=True))
    assert known.chance(0.95, 0) == pytest.approx(400 / (4000 * 0.998**400 + 400), abs=0.01)
    assert known.measured == pytest.approx(known.chance(0.95, 0), abs=0.01)


def test_answers_with_temperature_alone_are_a_trial_too(tmp_path: Path) -> None:
    """Of what is left to chance they tell; of temperature 0 they say nothing."""
    profile, heard = Profile.of(tmp_path, ["t", "d"], []), Trial()
    for _ in range(400):
        heard.drawn_at("chat", dist(a=0.05, b=0.95), ord("a"), 0.5)
    profile.hear(heard)
    assert profile.accepted("drawn", Draw.IID, profile.trial).mean < 0.3
    assert profile.accepted("greedy", Draw.COUPLED, profile.trial, is_greedy=True).mean == Acceptance(Draw.COUPLED).mean


def test_a_profile_of_before_has_a_place_of_drawn_tokens_for_each() -> None:
    wire = tried().to_wire()
    wire["kinds"] = {name: sums[:3] for name, sums in wire["kinds"].items()}
    assert Trial.from_wire(wire) == tried()


@pytest.mark.parametrize(
    ("draw", "is_greedy", "share", "expected"),
    [(Draw.COUPLED, True, 0.95, 0.25), (Draw.IID, False, 0.85, 0.5 / 0.8), (Draw.IID, False, 0.25, 1.0)],
)
def test_a_plan_expects_what_was_seen(draw: Draw, is_greedy: bool, share: float, expected: float) -> None:
    found = tried(4000, 1000).acceptance(draw, is_greedy=is_greedy)
    assert found.chance(share, 0) == pytest.approx(expected, abs=0.01)
    assert found.waited == 0.0, "a trial is a look at the draft"


def test_of_other_rules_the_prior_is_moved() -> None:
    found, usual = tried().acceptance(Draw.COUPLED, is_greedy=False), Acceptance(Draw.COUPLED)
    poor = Trial()
    for _ in range(40):
        poor.likeliest_is("code", 0.5, False)
        poor.drawn_from("code", dist(a=0.1, b=0.9), dist(a=1.0))
    worse = poor.acceptance(Draw.COUPLED, is_greedy=False)
    assert worse.mean < 0.4 < usual.mean
    assert found.mean == pytest.approx(usual.mean, abs=0.05)  # 0.7 of its tokens, as the usual pair


def test_it_is_kept_and_used_where_nothing_else_is_known(tmp_path: Path) -> None:
    profile = Profile.of(tmp_path, ["t", "d"], [])
    profile.trial = tried()
    profile.prices = Prices({1: 0.1, 2: 0.12, 4: 0.14}, 0.02)
    assert profile.save()
    again = Profile.of(tmp_path, ["t", "d"], [])
    assert again.trial == profile.trial
    assert again.accepted("draft-model greedy", Draw.COUPLED, again.trial, is_greedy=True).chance(0.95, 0) < 0.4
    learned = again.acceptance["kept"] = Acceptance(Draw.IID)
    assert again.accepted("kept", Draw.IID, again.trial) is learned
    assert again.accepted("copies", Draw.IID).mean == Acceptance(Draw.IID).mean
    assert again.accepted("refused", Draw.IID, Trial()).mean == Acceptance(Draw.IID).mean


def test_profiles_of_files_are_found_whatever_their_settings(tmp_path: Path) -> None:
    for number, settings in enumerate(([], ["two threads"])):
        profile = Profile.of(tmp_path, ["t", "d"], settings)
        profile.trial = tried(10 + number)
        assert profile.save()
        os.utime(profile.file, (number, number))
    assert Profile.of(tmp_path, ["d", "t"], []).save()
    (tmp_path / "damaged.json").write_text("{")
    found = [one.trial.total.n for one in profiles_of(tmp_path, ["t", "d"]) if one.trial is not None]
    assert found == [11.0, 10.0], "the latest first"
    assert profiles_of(tmp_path / "none", ["t", "d"]) == []


def test_another_process_has_made_the_trial(tmp_path: Path) -> None:
    first, second = (Profile.of(tmp_path, ["t", "d"], []) for _ in range(2))
    first.trial = tried()
    assert first.save()
    assert second.save()
    assert Profile.of(tmp_path, ["t", "d"], []).trial == first.trial


def test_one_that_was_refused_does_not_hide_another_process_s(tmp_path: Path) -> None:
    first, second = (Profile.of(tmp_path, ["t", "d"], []) for _ in range(2))
    first.trial, second.trial = tried(), Trial()
    assert first.save()
    assert second.save()
    assert Profile.of(tmp_path, ["t", "d"], []).trial == first.trial


def test_what_was_heard_outlives_the_file_of_another_process(tmp_path: Path) -> None:
    """A draft model that never drafted has no passes, and yet something is known of it."""
    profile, other = (Profile.of(tmp_path, ["t", "d"], []) for _ in range(2))
    for one in (profile, other):
        one.accepted("greedy", Draw.COUPLED)
    profile.acceptance["greedy"].absorb(tried(400, 0).acceptance(Draw.COUPLED, is_greedy=True))
    assert other.save()
    assert profile.save()
    assert Profile.of(tmp_path, ["t", "d"], []).accepted("greedy", Draw.COUPLED).measured == 0.0


@pytest.mark.parametrize("name", ["kinds", "likeliest", "drawn", "seconds", "spelled"])
def test_a_damaged_trial_is_none(name: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Trial.from_wire({**tried().to_wire(), name: [[-1.0]]})


def test_a_guess_in_other_tokens_costs_several_passes() -> None:
    """Until drafts are timed, the price is that of a pass of the draft; of what is kept the price is known already."""
    profile = Profile(Path("nowhere"), trial=Trial(spelled=1.25))
    profile.measured(Prices({1: 0.1, 2: 0.12}, 0.02))
    assert profile.prices is not None
    assert profile.prices.draft.value == pytest.approx(0.025)
    profile.renew(profile.prices)
    assert profile.prices.draft.value == pytest.approx(0.025)
    profile.trial = Trial(spelled=0.9)  # a pass is the least that a guess takes
    profile.measured(Prices({1: 0.1, 2: 0.12}, 0.02))
    assert profile.prices.draft.value == pytest.approx(0.02)
