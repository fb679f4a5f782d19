"""Drafts are ranked by tokens a pass over price, whatever their vocabulary."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from localspec.control.prices import Prices
from localspec.control.profile import Learned, Profile
from localspec.control.trial import Kind, Trial
from localspec.models import candidates
from localspec.models.candidates import (
    ASSUMED,
    MEASURED,
    DraftCandidate,
    Known,
    best_local_draft,
    learned,
    local_candidates,
    look,
)
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from localspec.models.low_bit import LowBitCopy
from localspec.models.pairs import Overlap, PairReport
from localspec.models.plan.machine import Machine, flat
from localspec.models.plan.models import ModelPart, placed
from localspec.models.plan.search import PlacementRequest, best
from localspec.settings.folders import cache_folder
from tests.cli.harness import PAIR
from tests.models.gguf_files import model


def candidate(
    size: int,
    use: float | None = None,
    *,
    kind: str = "",
    fits: bool = True,
    accepted: float | None = None,
    spelled: float = 1.0,
) -> DraftCandidate:
    shared = None if use is None else Overlap(90, 100, use, spelled)
    report = PairReport("t", "d", () if fits else ("no",), (), overlap=shared)
    return DraftCandidate("d", "here", size, report=report, kind=kind, learned=Learned(accepted))


def test_a_small_one_of_another_vocabulary_can_be_better() -> None:
    assert candidate(10, 0.88).gain(100) > candidate(45).gain(100) > 1.0
    assert candidate(10).gain(100) > candidate(10, 0.88).gain(100)


def test_headers_tell_what_a_foreign_draft_cannot_write(tmp_path: Path) -> None:
    """Of two drafts as large, the one with another vocabulary comes second, and a much smaller one first."""
    sample = resources.files("localspec.models").joinpath("sample.txt").read_text("utf-8")
    letters, texts = sorted(set(sample)), sorted({*re.findall("[a-zA-Z]{2,}", sample)})
    foreign = [*letters, *texts[::2], *(f"_{n}" for n in range(len(texts) - len(texts[::2])))]
    own = [*letters, *texts]
    files = {"target": (own, 100), "fits": (own, 40), "foreign": (foreign, 40), "small": (foreign, 8)}
    for name, (tokens, size) in files.items():
        os.truncate(model(tokens).write(tmp_path / f"{name}.gguf"), 10_000 * size)
    target = look(tmp_path / "target.gguf")
    found = {one.path.stem: one for one in local_candidates(target) if one.path is not None}
    shared = found["foreign"].report
    assert shared is not None
    assert shared.overlap is not None
    assert 1.0 < shared.overlap.spelled < 2.0
    assert 0.4 < shared.overlap.use < 1.0
    assert sorted(found, key=lambda name: -found[name].gain(target.bytes)) == ["small", "fits", "foreign"]


def test_what_cannot_draft_gains_nothing() -> None:
    for one in (candidate(10, fits=False), candidate(60), candidate(10, kind="mask-tokens")):
        assert one.gain(100) == 0.0
    assert DraftCandidate("d", "hub", None).gain(100) == 0.0


def test_the_gain_is_that_of_the_formula() -> None:
    """One guess of 0.7, the draft half as large: 1.7 tokens for 1.5 passes, two: 2.19 for 2."""
    assert candidate(50).gain(100) == pytest.approx(1.7 / 1.5)


def test_what_a_trial_found_counts_instead_of_an_assumption() -> None:
    assert candidate(50, 0.5, accepted=0.9).gain(100) == pytest.approx((1 + 0.9 + 0.81 + 0.729) / 2.5)
    assert "90 % accepted (measured), a guess 0.5 (assumed)" in candidate(50, accepted=0.9).worth(100)
    assert "70 % accepted (assumed), a guess 0.5 (assumed)" in candidate(50).worth(100)
    assert candidate(10, accepted=0.2).gain(100) < candidate(40, accepted=0.8).gain(100) < candidate(40).gain(100) + 1


def test_a_draft_that_gains_less_than_a_plain_pass_does_not_pay() -> None:
    dear = replace(candidate(10), learned=Learned(0.6, 0.9, (1.0, 1.8, 2.6)))
    assert dear.worth(100).startswith("does not pay: 0.59 tokens for the price of a pass: ")
    assert candidate(10).worth(100)[0].isdigit()


def test_a_foreign_guess_costs_each_of_its_own_tokens() -> None:
    """The one that fits goes first where the foreign one must write so much more that it costs as much."""
    fits, foreign = candidate(40), candidate(30, 0.9, spelled=1.5)
    assert foreign.guess(100) == Known(pytest.approx(0.45), ASSUMED)
    assert foreign.gain(100) < fits.gain(100) < candidate(30, 0.9).gain(100)


def test_measured_prices_count_instead_of_bytes() -> None:
    """Wider passes that cost more are a loss for the smallest draft."""
    cheap = Learned(0.6, 0.2, (1.0, 1.3, 1.9))
    one = replace(candidate(10), learned=cheap)
    assert one.guess(100) == Known(0.2, MEASURED)
    assert one.gain(100) == pytest.approx(1.6 / 1.5)
    assert "a guess 0.2 (measured)" in one.worth(100)
    assert one.gain(100) < candidate(40).gain(100) < candidate(10).gain(100)


def test_the_trial_of_a_pair_is_found_by_its_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    target, draft = (PAIR / f"{name}-q8_0.gguf" for name in ("target", "draft"))
    assert learned(target, draft) is None
    for name, found in (("refused", Trial()), ("made", Trial({"code": Kind(10.0, 8.0, 6.0, 10.0)}))):
        profile = Profile.of(cache_folder("profiles"), [file_fingerprint(one) for one in (target, draft)], [name])
        profile.trial, profile.prices = found, Prices({1: 0.1, 2: 0.13, 8: 0.4}, 0.02)
        assert profile.save()
    known = learned(target, draft)
    assert known is not None
    assert (known.accepted, known.guess) == pytest.approx((0.6, 0.2))
    assert known.rows is not None
    assert known.rows[:2] == pytest.approx((1.0, 1.3))
    assert learned(draft, target) is None
    assert learned(target, tmp_path / "none.gguf") is None
    (one,) = [one for one in local_candidates(look(target)) if one.path == draft]
    assert one.learned == known


def test_a_plan_goes_by_the_trial() -> None:
    header, small = (read_model(PAIR / f"{name}-q8_0.gguf") for name in ("target", "draft"))
    part, draft = (ModelPart.of(one, model_info(one)) for one in (header, small))
    machine = Machine(8 << 30, 2, (), flat(1e10, "given"))
    asked = PlacementRequest(512, needs_draft=True)
    shared = Overlap(90, 100, 0.9)
    poor, good = (best(machine, placed(part, draft, shared=shared, accepted=each), asked) for each in (0.2, 0.95))
    assert good.seconds < best(machine, placed(part, draft), asked).seconds < poor.seconds


def test_a_share_lowers_what_a_plan_expects() -> None:
    """The same files, half of whose tokens the draft can write, or twice as many for one of the target's."""
    header = read_model(PAIR / "target-q8_0.gguf")
    part = ModelPart.of(header, model_info(header))
    small = read_model(PAIR / "draft-q8_0.gguf")
    draft = ModelPart.of(small, model_info(small))
    machine = Machine(8 << 30, 2, (), flat(1e10, "given"))
    whole, half, long = (
        best(machine, placed(part, draft, shared=Overlap(9, 9, *shared)), PlacementRequest(512, needs_draft=True))
        for shared in ((1.0, 1.0), (0.5, 1.0), (1.0, 2.0))
    )
    assert whole.seconds < half.seconds
    assert whole.seconds < long.seconds


def test_a_smaller_model_goes_before_a_copy_in_fewer_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A copy is several times as large, and right hardly more often; it is taken where no such model is here."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    target, draft = (tmp_path / f"{name}.gguf" for name in ("target", "draft"))
    target.symlink_to(PAIR / "target-q8_0.gguf")
    draft.write_bytes((PAIR / "draft-q8_0.gguf").read_bytes())
    made = LowBitCopy(tmp_path / "copy.gguf", file_fingerprint(target), "Q2_K", 1, 8, 8, has_matrix=True, pays=True)
    monkeypatch.setattr(candidates, "copies_of", lambda _target: [made])
    assert best_local_draft(target) == draft
    draft.unlink()
    assert best_local_draft(target) == made.path
