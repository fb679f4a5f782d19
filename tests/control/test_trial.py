"""What a trial keeps, and what a plan may expect by it."""

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from localspec.control.prices import Prices
from localspec.control.profile import Profile, profiles_of
from localspec.control.trial import Trial
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


@pytest.mark.parametrize(("share", "tenth"), [(0.0, 0), (0.099, 0), (0.1, 1), (0.55, 5), (0.9, 9), (1.0, 9)])
def test_likeliest_tokens_count_in_the_tenth_of_their_probability(share: float, tenth: int) -> None:
    trial = Trial()
    trial.likeliest_is("code", share, True)
    trial.likeliest_is("code", share, False)
    assert trial.likeliest == tuple([n if each == tenth else 0.0 for each in range(10)] for n in (2.0, 1.0))


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


def test_a_single_token_is_an_example_and_none_is_the_prior() -> None:
    single, none = (trial.acceptance(Draw.COUPLED, is_greedy=False) for trial in (tried(1, 1), Trial()))
    assert single.mean == Acceptance.like(Draw.COUPLED, 1.0, 0.7).mean
    assert none.mean == Acceptance.like(Draw.COUPLED, 0.0, 0.0).mean == Acceptance(Draw.COUPLED).mean


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


@pytest.mark.parametrize("name", ["kinds", "likeliest", "drawn", "seconds", "spelled"])
def test_a_damaged_trial_is_none(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**msgspec.to_builtins(tried()), name: [[-1.0]]}, Trial)


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
