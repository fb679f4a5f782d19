"""What the doctor concludes from figures: each cause from figures that have it, and from none that have not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.answers import Answer, SurveyReport
from localspec.bench.diagnosis import Evidence, Tried
from localspec.bench.race import Race, Round
from localspec.cli.doctor.case import Case, Finding
from localspec.cli.doctor.causes import causes
from localspec.cli.doctor.pair import verdict
from localspec.control.chain import Worth
from localspec.control.prices import Prices, best_chain, break_even
from localspec.engine.events import Committed, Loaded, ModelFacts, Piece, Started, StepMs
from localspec.models.gguf.layer_sizes import Anatomy, Layer
from localspec.settings.request import Request
from localspec.tuning import SIZES
from localspec.ui.stats import Stats

TARGET = ModelFacts("/t.gguf", 4_000_000_000, "llama", "Q4_0", 7_000_000_000, 100, 32, 1, ("CPU",))
DRAFT = replace(TARGET, path="/d.gguf", bytes=400_000_000, n_params=700_000_000)
LOADED = Loaded("pair", TARGET, DRAFT, 4096, 2, 1.0, {})
PARTS = Anatomy(
    (Layer(90, 0, 1, 1),), 10, 10, is_tied=False, width=1, ff=1, n_heads=1, n_vocab=100, n_experts=0, n_used=0,
    n_next=0, largest=1, types=(),
)  # fmt: skip
DRAFTS = replace(PARTS, layers=(Layer(300_000_000, 0, 1, 1),), embedding=900_000_000, output=100_000_000)
MIXTURE = replace(
    PARTS, layers=(Layer(500_000_000, 8_000_000_000, 1, 1),) * 2, embedding=900_000_000, output=1_000_000_000,
    n_experts=64, n_used=8,
)  # fmt: skip
EXPERTS = replace(PARTS, layers=(Layer(10, 900, 1, 1),), n_experts=64, n_used=8)
MOSTLY_DENSE = replace(EXPERTS, layers=(Layer(900, 90, 1, 1),))
HIGH, LOW, NONE = Tried(800, 1000, 3), Tried(200, 1000, 3), Tried(0, 0, 3)


def passes(
    cost: Callable[[int], float] = lambda rows: 99 + rows, draft: float | None = 8.0, **facts: Any
) -> SurveyReport:
    """Return what a survey tells of a machine whose target passes take `cost` ms by rows."""

    def times(ms: Callable[[int], float], sizes: tuple[int, ...]) -> dict[str, Any]:
        return {"ms": [[rows, ms(rows)] for rows in sizes], "deep_ms": [], "position": 0, "why_not_deep": "small"}

    usual = {
        "target": times(cost, SIZES), "draft": draft and times(lambda rows: draft * rows, (1, 2)), "threads": 2,
        "draft_threads": draft and 1, "cores": 2, "can_rollback": True, "draft_can_rollback": draft and True,
        "profile": {"ms": [], "lone": 1},
    }  # fmt: skip
    return SurveyReport({**usual, **facts})


def raced(verify: str = "token") -> Race:
    """Return a race of ten passes, of which each took 10 ms of the draft and 100 ms of the target."""
    stats = Stats(passes=11, draft_ms=100.0, verify_ms=1000.0, sample_ms=4.0, other_ms=6.0)
    stats.started = Started("draft-model", "chain", "auto", 8, verify, 1, False, 9)
    return Race((Round(Answer(Request()), Answer(Request(), stats), None),))


def healthy(**changes: Any) -> Evidence:
    """Return the figures of a pair with which nothing is wrong."""
    usual: dict[str, Any] = {
        "first": passes(), "tried": {"greedy": HIGH, "sampled": HIGH}, "began_ms": 100.0,
        "ended_ms": 101.0, "race": raced(), "swapped_bytes": 0,
    }  # fmt: skip
    return Evidence(**{**usual, **changes})


def found(evidence: Evidence, loaded: Loaded = LOADED, parts: Anatomy = PARTS) -> dict[str, Finding]:
    drafts = None if loaded.draft is None else DRAFTS
    return {one.name: one for one in causes(Case(loaded, parts, drafts, evidence))}


def cliff_at_three(rows: int) -> float:
    return 100.0 if rows <= 2 else 190.0 + 0.1 * rows


def cliff_at_nine(rows: int) -> float:
    return 100.0 + rows if rows <= 8 else 195.0 + rows


def cliffs_at_three_and_nine(rows: int) -> float:
    return 100.0 if rows <= 2 else 160.0 if rows <= 8 else 290.0 + 0.1 * rows


def steep(rows: int) -> float:
    """Return a staircase without a cliff, of which every row costs more than half a pass."""
    return 100.0 * ({1: 1.0, 2: 1.73, 3: 2.37, 4: 2.71}.get(rows) or 3.45 + 0.58 * (rows - 5))


def quicker_by_four(rows: int) -> float:
    """Return the cost of a machine whose four rows take half of what one takes, as do all up to four of a profile's."""
    return 100.0 if rows < 4 else 50.0 if rows == 4 else 48.0 + rows


LONE = {"target": {"ms": [[1, 100.0], [5, 53.0]], "deep_ms": []}}
LONE_CASES: dict[str, tuple[SurveyReport, str]] = {
    "of a survey": (
        passes(quicker_by_four, draft=20.0),
        "0.4 of a target pass, 50 ms of 4 rows, which take less than one; by these costs guesses pay only if 41% of",
    ),
    "of a profile": (
        passes(quicker_by_four, draft=20.0, profile={"ms": [[1, 53.0]], "lone": 5}),
        "0.38 of a target pass, 53 ms of 5 rows",
    ),
    "of a width that was not timed": (
        passes(draft=20.0, profile={"ms": [[1, 53.0]], "lone": 7}, **LONE), "0.2 of a target pass, 100 ms;",
    ),
}  # fmt: skip
STEEP: dict[str, Any] = {"first": passes(steep, draft=3.0), "tried": {"sampled": Tried(620, 1000, 3)}}
ON_GPU = replace(LOADED, target=replace(TARGET, devices=("CPU", "CUDA0")))
ON_TWO = replace(
    LOADED,
    target=replace(TARGET, devices=("CPU", "CUDA0", "CUDA1")),
    draft=replace(DRAFT, devices=("CPU", "CUDA0")),
)
CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "the draft on one of two": ({"loaded": ON_TWO}, "devices", "ok", "CUDA1"),
    "what a mixture reads": ({"parts": MIXTURE}, "devices", "ok", "40.0 GB/s of weights; draft on CPU, 50.0 GB/s"),
    "the draft lacks the GPU": (
        {"loaded": ON_GPU, "parts": MIXTURE, "first": passes(draft=20.0)},
        "devices", "bad", "20.0 GB/s: the draft does not use CUDA0",
    ),
    "the draft lacks it and reads as fast": (
        {"loaded": ON_GPU, "parts": MIXTURE},
        "devices", "ok", "50.0 GB/s: the draft does not use CUDA0, which the target does, and is not slower for it",
    ),
    "an early cliff": ({"first": passes(cliff_at_three)}, "rows", "bad", "3 rows cost 1.90x of 2"),
    "a late cliff": ({"first": passes(cliff_at_nine)}, "rows", "note", "9 rows cost 1.89x of 8"),
    "an early cliff before a larger one": (
        {"first": passes(cliffs_at_three_and_nine)}, "rows", "bad", "; 3 rows cost 1.60x of 2",
    ),
    "rows that grow dear": (
        {"first": passes(target={"ms": [[1, 100], [5, 110]], "deep_ms": [[1, 120], [5, 240]], "position": 900})},
        "rows", "note", "5 rows cost 1.10x of 1, 2.00x with 900 tokens in the context",
    ),
    "rows that do not": (
        {"first": passes(target={"ms": [[1, 100], [5, 110]], "deep_ms": [[1, 200], [5, 220]], "position": 900})},
        "rows", "ok", "1.10x with 900 tokens",
    ),
    "rows too dear for what is accepted": (STEEP, "rows", "note", "they pay only if 77% are accepted; 62% were"),
    "too few accepted for dear rows": (STEEP, "accepted", "bad", "guesses pay only if 77% are accepted"),
    "dear rows, and enough accepted": (
        {"first": passes(steep, draft=3.0), "tried": {"sampled": Tried(900, 1000, 3)}}, "rows", "ok", "3.45x of 1",
    ),
    "rows that are not why": (
        {"first": passes(draft=40.0), "tried": {"sampled": LOW}}, "rows", "ok", "no width is a cliff",
    ),
    "rows for which nothing is enough": (
        {"first": passes(lambda rows: 100.0 * rows)}, "rows", "bad", "none pays, even if all are accepted",
    ),
    "rows that never pay, no draft judged": (
        {"first": passes(lambda rows: 100.0 * rows), "tried": {}}, "rows", "bad", "none pays, even if all",
    ),
    "rows that would pay with another draft": (
        {"first": passes(lambda rows: 60.0 + 40.0 * rows, draft=70.0)}, "rows", "ok", "no width is a cliff",
    ),
    "the draft with which they do not": (
        {"first": passes(lambda rows: 60.0 + 40.0 * rows, draft=70.0)}, "draft", "bad", "guesses never pay, even if",
    ),
    "acceptance for which nothing is enough": (
        {"first": passes(lambda rows: 100.0 * rows)}, "accepted", "ok", "80 %",
    ),
    "one width only": ({"first": passes(target={"ms": [[1, 9.0]]})}, "rows", "note", "not measured"),
    "nothing known of rows": ({"first": passes(target={"ms": [[1, 100.0]]})}, "draft", "ok", "was not measured"),
    "a dear draft": ({"first": passes(draft=40.0)}, "draft", "bad", "0.4 of a target pass"),
    "a draft that is not cheap": ({"first": passes(draft=25.0)}, "draft", "note", "0.25 of a target pass"),
    "a draft that rows keep from paying": (
        {"first": passes(lambda rows: 100.0 * rows, draft=2.0)}, "draft", "ok", "guesses never pay, even if",
    ),
    "few accepted": ({"tried": {"greedy": LOW, "sampled": LOW}}, "accepted", "bad", "20 % (± 3)"),
    "acceptance by another rule": (
        {"race": raced(verify="block")}, "accepted", "ok", "of 1000 judged by --verify token (the race: block)",
    ),
    "acceptance by the same rule": ({}, "accepted", "ok", "of 1000 judged"),
    "temperature": ({"tried": {"greedy": HIGH, "sampled": LOW}}, "sampling", "note", "costs 60%"),
    "prompts that differ by more than settings": (
        {"tried": {"greedy": Tried(75, 100, 3, ((30, 33), (33, 34), (12, 33))), "sampled": Tried(650, 1000, 3)}},
        "sampling", "ok", "accepted 75 % (± 38) at T=0, 65 % (± 3) at T=0.8: no difference beyond chance",
    ),
    "the other way round": ({"tried": {"greedy": LOW, "sampled": HIGH}}, "sampling", "ok", "costs nothing"),
    "too few to tell": (
        {"tried": {"greedy": Tried(9, 12, 1), "sampled": Tried(7, 12, 1)}}, "sampling", "ok", "beyond chance",
    ),
    "the draft's template, which is no better": (
        {"tried": {"greedy": LOW, "draft template": LOW}}, "template", "ok", "is not what costs",
    ),
    "a template": ({"tried": {"greedy": LOW, "draft template": HIGH}}, "template", "bad", "60% fewer"),
    "no template": ({"tried": {"greedy": HIGH, "sampled": HIGH}}, "template", "ok", "the draft has no other one"),
    "nothing judged": ({"tried": {"greedy": NONE, "sampled": NONE}}, "sampling", "note", "not measured"),
    "a template that fails": (
        {"refused": {"draft template": "it does not end"}}, "template", "ok", "with the draft's own: it does not end",
    ),
    "experts": (
        {"parts": EXPERTS, "first": passes(lambda rows: 80.0 + 60 * rows)}, "experts", "bad",
        "two rows cost 1.43x of one; by bytes, were routing even, 1.74x",
    ),
    "experts that are few beside the rest": (
        {"parts": MOSTLY_DENSE, "first": passes(lambda rows: 50.0 + 50 * rows)}, "experts", "note",
        "two rows cost 1.50x of one; by bytes, were routing even, 1.01x: more experts are not why",
    ),
    "experts that are no matter": ({"parts": EXPERTS}, "experts", "ok", "8 of 64"),
    "a state": ({"first": passes(can_rollback=False)}, "rollback", "bad", "the target cannot take tokens back"),
    "a draft with a state": ({"first": passes(draft_can_rollback=False)}, "rollback", "bad", "the draft cannot"),
    "swapped": ({"swapped_bytes": 5 << 30}, "memory", "note", "5.4 GB swapped out"),
    "swapped and read back": ({"swapped_bytes": 5 << 30, "major_faults": 11}, "memory", "bad", "11 pages read"),
    "a little swapped": ({"swapped_bytes": 40_000_000}, "memory", "ok", "40.0 MB swapped out"),
    "a fault": ({"major_faults": 1}, "memory", "ok", "1 page read"),
    "a few faults": ({"major_faults": 11}, "memory", "note", "11 pages read"),
    "many faults": ({"major_faults": 1000}, "memory", "bad", "1000 pages"),
    "a system that does not say": ({"swapped_bytes": None}, "memory", "ok", "does not say"),
    "too many threads": ({"first": passes(threads=8)}, "threads", "note", "8 for the target"),
    "slower at the end": ({"ended_ms": 130.0}, "drift", "note", "1.30x"),
    "faster at the end": ({"ended_ms": 50.0}, "drift", "note", "0.50x"),
    "stopped": ({"ended_ms": None}, "drift", "note", "not measured"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "name", "state", "words"), CASES.values(), ids=CASES)
def test_a_cause_is_named_with_its_number(changes: dict[str, Any], name: str, state: str, words: str) -> None:
    told = dict(changes)
    made = found(healthy(**{k: v for k, v in told.items() if k not in ("loaded", "parts")}),
                 told.get("loaded", LOADED), told.get("parts", PARTS))[name]  # fmt: skip
    assert made.state == state, made
    assert words in made.message, made
    if made.is_measured and found(healthy())[name].facts:
        assert made.facts, made
    if state == "bad":
        assert made.hint, made


@pytest.mark.parametrize(("first", "words"), LONE_CASES.values(), ids=LONE_CASES)
def test_a_plain_pass_is_the_one_that_decoding_makes(first: SurveyReport, words: str) -> None:
    """A token alone gets the rows that are quickest: what is computed is against that."""
    made = found(healthy(first=first))
    assert words in made["draft"].message
    facts, table = made["draft"].facts, dict(first.content["target"]["ms"])
    assert facts["ratio"] == facts["draft_ms"] / table[facts["target_rows"]], "as the table of the survey has it"
    assert facts["break_even"] == made["accepted"].facts["break_even"]


def test_a_healthy_pair_has_nothing_bad() -> None:
    checks = found(healthy())
    assert {one.state for one in checks.values()} == {"ok"}, checks
    assert len(checks) == 11
    for one in checks.values():
        assert any(char.isdigit() for char in one.message) or one.name in ("experts", "rollback"), one


def timed(*ratios: float, drafted: int = 1) -> Race:
    """Return a race of which only its ratios are known, and what was drafted for each token."""
    return Race(tuple(Round(_answer(1.0), _answer(ratio, drafted), None) for ratio in ratios))


def _answer(speed: float, drafted: int = 0) -> Answer:
    stats = Stats()
    for index in range(2):  # the first is the prompt's own pass
        piece, ms = Piece(1, "x", "plain"), StepMs(0.0, 1000.0 / speed, 0.0, 0.0)
        stats.observe(Committed(index, 9 + index, drafted, 0, 0, (piece,), "x", ms, False, ""))
    return Answer(Request(), stats)


VERDICTS: dict[str, tuple[Race, str]] = {
    "rounds that agree": (
        timed(1.4, 1.4, 1.5, 1.5, 1.6, 1.8),
        "speculation pays here: auto is 1.50× plain (median of 6 rounds at T=0.8, one prompt, 1.40 to 1.80)",
    ),
    "rounds that agree, far apart": (
        timed(1.1, 1.4, 1.5, 1.5, 1.6, 2.0),
        "speculation pays here: auto is 1.10 to 2.00× plain (6 rounds at T=0.8, one prompt: too far apart for one",
    ),
    "rounds that do not": (
        timed(0.8, 0.9, 1.0, 1.1, 1.2, 1.3),
        "6 rounds at T=0.8, one prompt, do not show whether speculation pays here: "
        "localspec bench PAIR --methods plain,auto does; no problem",
    ),
    "too few rounds": (timed(1.9, 2.0), "2 rounds at T=0.8, one prompt, do not show whether speculation pays here: "),
    "slow rounds": (timed(*[0.8, 0.9] * 3), "speculation does not pay here: auto is 0.85× plain (median of 6 rounds"),
    "one round": (timed(1.5), "1 round at T=0.8, one prompt, does not show whether"),
    "even rounds": (timed(*[0.99, 1.01] * 3), "speculation neither pays nor costs here: auto is 1.00× plain (median"),
    "nothing drafted": (
        timed(1.05, drafted=0), "auto drafted nothing here, so there is no speedup; no problem was found",
    ),
    "nothing drafted, and slower": (timed(0.8, drafted=0), "auto drafted nothing here, so there is no speedup"),
}  # fmt: skip


@pytest.mark.parametrize(("race", "words"), VERDICTS.values(), ids=VERDICTS)
def test_a_verdict_tells_how_far_its_rounds_are_apart(race: Race, words: str) -> None:
    assert verdict(race, list(found(healthy()).values())).startswith(words)


def test_the_verdict_names_the_price_of_rows() -> None:
    """Where nothing is gained, what is worth a look is named; what was not measured is no reason."""
    checks = list(found(healthy(**STEEP)).values())
    assert verdict(timed(*[0.97] * 6), checks).endswith("; found bad: accepted; worth a look: rows")
    assert verdict(timed(*[1.5] * 6), checks).endswith("; found bad: accepted")
    noted = [replace(one, state="ok") if one.state == "bad" else one for one in checks]
    assert verdict(timed(*[1.0] * 6), noted).endswith("; no problem was found; worth a look: rows")
    assert verdict(timed(*[1.5] * 6), noted).endswith("1.50 to 1.50)")
    assert verdict(timed(*[1.0] * 6), list(found(healthy()).values())).endswith("; no problem was found")


def test_without_a_draft_what_needs_one_is_said_to_be_missing() -> None:
    checks = found(healthy(first=passes(draft=None), tried={}), replace(LOADED, draft=None))
    for name in ("devices", "draft", "accepted", "sampling", "template"):
        assert (checks[name].state, checks[name].message[:12]) == ("note", "not measured"), name
    for name in ("rows", "memory", "threads", "drift"):
        assert checks[name].state == "ok"


@given(st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_best_chain_is_better_than_any_other(draft: float, alpha: float, slope: float) -> None:
    target = Prices({rows: 1.0 + slope * (rows - 1) for rows in SIZES})
    k, speed = best_chain(target, draft, alpha)
    for other in range(1, 12):
        tokens = sum(alpha**i for i in range(other + 1))
        assert tokens / (target.of(1 + other) + draft * other) <= speed + 1e-9
    assert (k == 0) == (speed == 1.0)
    least = break_even(target, draft)
    if least is not None:
        assert best_chain(target, draft, least)[0] > 0
        assert best_chain(target, draft, least - 0.01)[0] == 0


def test_break_even_of_one_token() -> None:
    """One draft token at 0.3 of a pass, free rows: it pays from 30 % acceptance on."""
    assert break_even(Prices({1: 1.0, 64: 1.0}), 0.3) == pytest.approx(0.31)
    assert break_even(Prices({1: 1.0, 64: 64.0}), 0.3) is None


def test_what_there_was_no_time_for_is_told_as_that() -> None:
    made = found(Evidence(first=passes(), is_cut=True))
    for name in ("accepted", "sampling", "template"):
        assert made[name].message == "not measured: the time was up", name
    assert "--seconds" in made["accepted"].hint
    told = verdict(None, [], is_cut=True)
    assert told == "speed not measured: the time was up; localspec doctor PAIR --seconds 300, or more"


@pytest.mark.parametrize(
    ("guess", "accepted", "state"), [(0.9, 620, "bad"), (0.9, 760, "bad"), (0.9, 768, "note"), (0.1, 780, "ok")]
)
def test_the_numbers_of_a_line_decide_it(guess: float, accepted: int, state: str) -> None:
    """One acceptance and one break-even, those measured just now; what loads and answers measured is told as that."""
    known = Worth(1, 1.6, 1.0 + guess, 0.57, "measured here", "measured here", is_timed=True)
    steep_now = {**STEEP, "tried": {"sampled": Tried(accepted, 1000, 3)}}
    made = {one.name: one for one in causes(Case(LOADED, PARTS, DRAFTS, healthy(**steep_now), known))}
    assert made["draft"].message.endswith(f": it {known.told}")
    assert "; auto goes by what loads and answers measured" in made["draft"].message, "maybe its own"
    asked, were = re.findall(
        r"guesses pay only if (\d+)% of them are accepted, and (\d+)% were", made["draft"].message
    )[0]
    assert (asked, were) == ("77", f"{accepted / 10:.0f}"), "as they are compared"
    assert made["draft"].state == state
    is_too_few = int(were) < int(asked)
    assert ("guesses pay only if 77%" in made["accepted"].message) == is_too_few
    assert (made["accepted"].state == "bad") == is_too_few
    assert ("they pay only if 77%" in made["rows"].message) == is_too_few
    assert ("on other texts" in made["draft"].message) == (is_too_few == (known.gain >= 1.0))
