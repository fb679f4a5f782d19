"""Drafts are ranked by tokens a pass over price, whatever their vocabulary."""

import os
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from localspec.control.chain import ASSUMED, MEASURED, Worth
from localspec.control.prices import Prices
from localspec.control.profile import Learned, Profile
from localspec.control.trial import Kind, Trial
from localspec.heads.target_file import read_tensor
from localspec.heads.writer import write_gguf
from localspec.models import candidates
from localspec.models.candidates import DraftCandidate, best_local_draft, local_candidates, look_at
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.info import model_info
from localspec.models.gguf.layer_sizes import Anatomy, Layer
from localspec.models.gguf.shards import read_model
from localspec.models.gguf.values import KeyValue
from localspec.models.low_bit import KEY, LowBitCopy, copies_of
from localspec.models.overlap import Overlap
from localspec.models.pair_check import PairReport
from localspec.models.plan.compare import compare
from localspec.models.plan.layout_search import PlacementRequest, best
from localspec.models.plan.machine import Machine, flat
from localspec.models.plan.models import TRIED, Guessing, ModelPart, Models, placed
from localspec.models.worth import learned, worth
from localspec.settings.folders import cache_folder, drafts_folder
from tests.cli.harness import PAIR
from tests.models.gguf_files import model

MB = 10**6
DEAR = Prices({1: 0.1, 2: 0.18, 8: 0.9}, 0.09)  # two rows take nearly two passes, a guess nearly one


def parts(n_bytes: int) -> Anatomy:
    """A model that reads so many bytes for a token: no cache, no embedding."""
    return Anatomy((Layer(n_bytes, 0, 0, 0),), 0, 0, True, 64, 64, 1, 100, 0, 0, 0, n_bytes, (("Q8_0", n_bytes),))


def models(size: int, use: float = 1.0, *, accepted: float | None = None, spelled: float = 1.0) -> Models:
    guessing = Guessing(share=use, is_foreign=use < 1.0, spelled=spelled)
    if accepted is not None:
        guessing = replace(guessing, accepted=tuple(accepted**k for k in range(1, 17)), how=TRIED)
    return Models(parts(100 * MB), parts(size * MB), guessing=guessing)


def gain(size: int, use: float = 1.0, *, accepted: float | None = None, spelled: float = 1.0) -> float:
    return worth(models(size, use, accepted=accepted, spelled=spelled)).gain


def candidate(size: int, value: Worth | None = None, *, kind: str = "", fits: bool = True) -> DraftCandidate:
    report = PairReport("t", "d", () if fits else ("no",), ())
    return DraftCandidate("d", "here", size, report=report, kind=kind, worth=value or worth(models(size)))


def pair_in(folder: Path) -> tuple[Path, Path]:
    target, draft = (folder / f"{name}.gguf" for name in ("target", "draft"))
    target.symlink_to(PAIR / "target-q8_0.gguf")
    draft.write_bytes((PAIR / "draft-q8_0.gguf").read_bytes())
    return target, draft


def measured(target: Path, draft: Path, prices: Prices) -> Profile:
    """What a load of both has found, kept: 60 % are accepted."""
    profile = Profile.of(cache_folder("profiles"), [file_fingerprint(one) for one in (target, draft)], [])
    profile.trial, profile.prices = Trial({"code": Kind(10.0, 8.0, 6.0)}), prices
    assert profile.save()
    return profile


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))


def test_a_small_one_of_another_vocabulary_can_be_better() -> None:
    assert gain(10, 0.88) > gain(45) > 1.0
    assert gain(10) > gain(10, 0.88)


def test_headers_tell_what_a_foreign_draft_cannot_write(tmp_path: Path) -> None:
    """What is assumed of another vocabulary is half as much: its drafts come second, the smaller of them first."""
    sample = resources.files("localspec.models").joinpath("sample.txt").read_text("utf-8")
    letters, texts = sorted(set(sample)), sorted({*re.findall("[a-zA-Z]{2,}", sample)})
    foreign = [*letters, *texts[::2], *(f"_{n}" for n in range(len(texts) - len(texts[::2])))]
    own = [*letters, *texts]
    files = {"target": (own, 100), "fits": (own, 40), "foreign": (foreign, 40), "small": (foreign, 8)}
    for name, (tokens, size) in files.items():
        os.truncate(model(tokens, width=32 * size).write(tmp_path / f"{name}.gguf"), 10_000 * size)
    target = look_at(tmp_path / "target.gguf")
    assert target.info is not None
    n_bytes = target.info.bytes
    found = {one.path.stem: one for one in local_candidates(target) if one.path is not None}
    shared = found["foreign"].report
    assert shared is not None
    assert shared.overlap is not None
    assert 1.0 < shared.overlap.spelled < 2.0
    assert 0.4 < shared.overlap.use < 1.0
    assert sorted(found, key=lambda name: -found[name].gain(n_bytes)) == ["fits", "small", "foreign"]
    assert found["foreign"].worth is not None
    assert found["foreign"].worth.accepted == pytest.approx(0.7 * 0.5 * shared.overlap.use)
    assert found["fits"].worth is not None
    assert found["fits"].worth.accepted == 0.7


def test_what_cannot_draft_gains_nothing() -> None:
    for one in (candidate(10, fits=False), candidate(10, kind="mask-tokens")):
        assert one.gain(100) == 0.0
        assert one.worth_in_words(100) == ""
    assert DraftCandidate("d", "hub", None).gain(100) == 0.0
    known = Worth(1, 1.9, 1.5, 0.9, MEASURED, MEASURED, is_timed=True)
    assert candidate(60, known).gain(100) > 1.0, "it was measured"
    checks = replace(known, how=ASSUMED, basis="checks measured here, guesses by typical bandwidths")
    assert candidate(60, checks).gain(100) == 0.0, "the target's passes alone say nothing of this draft"


def test_one_that_is_too_large_says_so_until_timed_passes_say_it() -> None:
    """As `plan --hub`, so `pairs explain`: where one is silent a person takes it that the draft may pay."""
    said = "is too large to pay: 60 % of the target"
    assert (candidate(60).gain(100), candidate(60).worth_in_words(100), candidate(60).too_large(100)) == (
        0.0,
        said,
        said,
    )
    assert candidate(60, fits=False).too_large(100) == ""
    slow = Worth(1, 1.7, 2.5, 0.7, ASSUMED, "checks measured here, guesses by typical bandwidths", is_timed=True)
    assert candidate(60, slow).worth_in_words(100).startswith("is not expected to pay here: ")
    assert candidate(60, replace(slow, price=1.2)).worth_in_words(100) == said


def test_the_gain_is_that_of_the_formula() -> None:
    """One guess of 0.7, the draft half as large: 1.7 tokens for 1.5 passes, two: 2.19 for 2."""
    assert gain(50) == pytest.approx(1.7 / 1.5)


def test_what_a_trial_found_counts_instead_of_an_assumption() -> None:
    assert gain(50, 0.5, accepted=0.9) == pytest.approx((1 + 0.9 + 0.81 + 0.729) / 2.5)
    assert worth(models(50, accepted=0.9)).how == MEASURED
    assert worth(models(50)).how == ASSUMED
    assert gain(10, accepted=0.2) < gain(40, accepted=0.8)


def test_a_draft_that_gains_less_than_a_plain_pass_does_not_pay() -> None:
    """The sentence names each number that decides: those of the guesses, and those of the time."""
    dear = worth(models(10, accepted=0.6), Learned(0.6, 0.9, (1.0, 1.8, 2.6)))
    assert dear.loses
    assert dear.in_words == (
        "does not pay here: a pass with 1 guess brings 1.60 tokens (60 % accepted, measured here) and takes 2.70 times "
        "as long as a plain one (measured here), so 0.59 tokens in the time of one"
    )
    likely = worth(models(10))
    assert not likely.loses
    assert likely.in_words.startswith(
        "is expected to pay here: a pass with 4 guesses brings 2.77 tokens (70 % accepted, "
    )
    poor = worth(models(45, 0.5))
    assert poor.in_words.startswith("is not expected to pay here: ")
    assert poor.in_words.endswith("; its first load measures it")
    assert not poor.loses
    untried = worth(models(10), Learned(None, 0.9, (1.0, 1.8, 2.6)))
    assert untried.loses, "it was loaded, and its guesses are as dear"
    assert untried.in_words.startswith("is not expected to pay here: ")
    assert "(70 % accepted, assumed)" in untried.in_words
    assert not untried.in_words.endswith("its first load measures it")


def test_a_foreign_guess_costs_each_of_its_own_tokens() -> None:
    """The one that fits goes first where the foreign one must write so much more that it costs as much."""
    assert worth(models(30, 0.9, spelled=1.5)).price == pytest.approx(1.45)
    assert gain(30, 0.9, spelled=1.5) < gain(40) < gain(30, 0.9)


def test_measured_prices_count_instead_of_bytes() -> None:
    """Wider passes that cost more are a loss for the smallest draft, and known of a draft that was never loaded."""
    one = worth(models(10, accepted=0.6), Learned(0.6, 0.2, (1.0, 1.3, 1.9)))
    assert (one.gain, one.basis) == (pytest.approx(1.6 / 1.5), MEASURED)
    assert one.gain < gain(40) < gain(10)
    never = worth(models(10), Learned(rows=(1.0, 1.3, 1.9)))
    assert (never.gain, never.is_timed, never.is_measured) == (pytest.approx(1.7 / 1.4), True, False)
    assert never.in_words.startswith("is expected to pay here: ")
    assert never.basis == "checks measured here, guesses by typical bandwidths"


def test_a_plan_has_the_gain_that_was_measured() -> None:
    """As many tokens in the time of a plain pass as everything else says, and so another order than by bytes."""
    drafts = {"": Models(parts(100 * MB)), "dear": models(10), "good": models(40)}
    worths = {"dear": worth(models(10), Learned(0.6, 0.9, (1.0, 1.8, 2.6)))}
    machine = Machine(8 << 30, 2, (), flat(1e10, "given"))
    by_bytes, rows = (compare(machine, drafts, PlacementRequest(512), each) for each in (None, worths))
    assert [row.name for row in by_bytes] == ["dear", "good", ""]
    assert [row.name for row in rows] == ["good", "", "dear"]
    assert rows[1].plan.seconds / rows[2].plan.seconds == pytest.approx(worths["dear"].gain)
    assert rows[2].plan.k == 1
    assert [row.plan.tokens_per_s for row in rows] == [pytest.approx(1 / row.plan.seconds) for row in rows]


def test_the_trial_of_a_pair_is_found_by_its_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    target, draft = (PAIR / f"{name}-q8_0.gguf" for name in ("target", "draft"))
    assert learned(target, draft) is None
    for name, found in (("refused", Trial()), ("made", Trial({"code": Kind(10.0, 8.0, 6.0)}))):
        profile = Profile.of(cache_folder("profiles"), [file_fingerprint(one) for one in (target, draft)], [name])
        profile.trial, profile.prices = found, Prices({1: 0.1, 2: 0.13, 8: 0.4}, 0.02)
        assert profile.save()
    known = learned(target, draft)
    assert known is not None
    assert (known.accepted, known.guess) == pytest.approx((0.6, 0.2))
    assert known.rows is not None
    assert known.rows[:2] == pytest.approx((1.0, 1.3))
    assert learned(draft, target) is None
    other = learned(target, tmp_path / "none.gguf")
    assert other is None, "there is no such file"
    (tmp_path / "other.gguf").write_bytes(b"other")
    other = learned(target, tmp_path / "other.gguf")
    assert known.plain == 0.1
    assert other == Learned(rows=known.rows, plain=0.1), "what a pass of the target takes is known"
    assert known.rows[2] > known.rows[1]
    (one,) = [one for one in local_candidates(look_at(target)) if one.path == draft]
    assert one.worth is not None
    assert (one.worth.accepted, one.worth.basis) == (pytest.approx(0.6), MEASURED)


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
    assert best_local_draft(target) == (draft, "")
    measured(target, draft, DEAR)
    assert best_local_draft(target) == best_local_draft(target, must=True) == (made.path, ""), "the model loses"
    draft.unlink()
    assert best_local_draft(target) == (made.path, "")


def test_auto_takes_no_draft_that_was_measured_to_lose(tmp_path: Path) -> None:
    """Unless one must be loaded; the reason has the words of `plan --hub`, and what to type."""
    target, draft = pair_in(tmp_path)
    profile = measured(target, draft, DEAR)
    (one,) = local_candidates(look_at(target))
    assert one.worth is not None
    found, why = best_local_draft(target)
    assert found is None
    assert why == f"no draft is loaded: {draft} {one.worth.in_words}; -d {draft} loads it all the same"
    assert best_local_draft(target, must=True) == (draft, "")
    profile.prices = Prices({1: 0.1, 2: 0.11, 8: 0.12}, 0.01)
    assert profile.save()
    assert best_local_draft(target) == (draft, "")


def test_auto_takes_a_draft_that_is_assumed_to_lose_until_a_load_has_measured_it(tmp_path: Path) -> None:
    """What a pass of the target takes is known of loads without this draft: that decides nothing about it."""
    target, draft = pair_in(tmp_path)
    alone = Profile.of(cache_folder("profiles"), [file_fingerprint(target)], [])
    alone.prices = Prices(DEAR.measured())
    assert alone.save()
    (one,) = local_candidates(look_at(target))
    assert one.worth is not None
    assert (one.worth.how, one.worth.gain < 1.0, one.is_untried) == (ASSUMED, True, True)
    assert best_local_draft(target) == (draft, "")
    profile = measured(target, draft, DEAR)
    assert best_local_draft(target)[0] is None
    profile.trial = Trial()  # too long, so none was made
    assert profile.save()
    found, why = best_local_draft(target)
    assert found is None
    assert why.startswith(f"no draft is loaded: {draft} is not expected to pay here: ")


def test_copies_of_one_file_are_one_candidate(tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    target.symlink_to(PAIR / "target-q8_0.gguf")
    for name in "cab":
        (tmp_path / f"{name}.gguf").write_bytes((PAIR / "draft-q8_0.gguf").read_bytes())
    (one,) = local_candidates(look_at(target))
    assert (one.name, one.copies) == (f"{tmp_path}/a.gguf", (f"{tmp_path}/b.gguf", f"{tmp_path}/c.gguf"))


def test_a_copy_in_four_bits_drafts_in_the_place_of_its_model(tmp_path: Path) -> None:
    """Of exactly this file: whoever names the model gets the model."""
    target, draft = pair_in(tmp_path)
    source, folder = read_model(draft), drafts_folder()
    folder.mkdir(parents=True)
    copies = {}
    for name, mark, kind in (
        ("four", file_fingerprint(draft), "Q4_0"),
        ("two", file_fingerprint(draft), "Q2_K"),
        ("other", file_fingerprint(target), "Q4_0"),
    ):
        origin = {"target": mark, "kind": kind, "layers": "8 of 8", "matrix": "no", "pays": "yes"}
        pairs = [KeyValue(key, source.types[key], value) for key, value in source.metadata.items()]
        pairs += [KeyValue(f"{KEY}{key}", "str", text) for key, text in origin.items()]
        tensors = [found for one in source.tensors if (found := read_tensor(source, one.name)) is not None]
        write_gguf(copies.setdefault(name, folder / f"{name}.gguf"), pairs, tensors)
    (found,) = local_candidates(look_at(target))
    assert (found.name, found.path, found.bytes) == (str(copies["four"]), copies["four"], copies["four"].stat().st_size)
    assert best_local_draft(target) == (copies["four"], "")
    assert [one.path for one in copies_of(draft)] == [copies["two"]], "one in four bits drafts for others"
    assert copies_of(target) == []
    copies["four"].unlink()
    assert best_local_draft(target) == (draft, "")
