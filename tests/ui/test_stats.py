"""The identities between the counters, whatever happened."""

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.events import (
    Committed,
    Finished,
    Loaded,
    Loading,
    ModelFacts,
    Piece,
    Prefilled,
    Probed,
    Started,
    StepMs,
)
from localspec.ui.stats import Stats, Waited
from localspec.ui.summary import (
    done,
    is_slower,
    plans,
    reason,
    seconds,
    speedup_words,
    standing,
    stats_line,
    ttft_ms,
    verdict,
)


def a_pass(index: int, depth: int, accepted: int, *, nodes: int | None = None, is_cut: bool = False) -> Committed:
    """Return a pass with a draft `depth` levels deep of which `accepted` tokens were committed."""
    last = [] if is_cut else ["plain" if depth == 0 else "bonus" if accepted == depth else "corrected"]
    out = tuple(Piece(i, "w ", source) for i, source in enumerate(["accepted"] * accepted + last))
    ms = StepMs(1.0, 4.0, 0.5, 0.5)
    k = depth if nodes is None else nodes
    return Committed(index, 10 + index, k, depth, accepted, out, "w " * len(out), ms, depth == 0, "")


@st.composite
def runs(draw: st.DrawFn) -> list[Committed]:
    made = [a_pass(0, 0, 0)]
    for index in range(1, draw(st.integers(1, 12))):
        depth = draw(st.integers(0, 5))
        nodes = 0 if depth == 0 else draw(st.integers(depth, 3 * depth))
        made.append(a_pass(index, depth, draw(st.integers(0, depth)), nodes=nodes))
    depth = draw(st.integers(1, 5))
    made.append(a_pass(len(made), depth, draw(st.integers(1, depth)), is_cut=True))
    return made


def folded(events: list[Committed]) -> Stats:
    stats = Stats()
    for event in events:
        stats.observe(event)
    return stats


@given(runs())
def test_identities(events: list[Committed]) -> None:
    stats = folded(events)
    assert stats.emitted == stats.accepted + stats.passes - stats.cut
    assert stats.cut == 1
    assert sum(stats.accepted_per_pos) == stats.accepted
    assert stats.accepted_per_pos == sorted(stats.accepted_per_pos, reverse=True)
    assert stats.tested == sorted(stats.tested, reverse=True)
    assert sum(stats.by_source.values()) == stats.emitted
    assert stats.by_source["accepted"] == stats.accepted
    assert stats.text == "w " * stats.emitted
    assert stats.context_n == events[-1].position + len(events[-1].out), "the prompt and all that was written"
    for kept, reached, tested in zip(stats.accepted_per_pos, stats.reached, stats.tested, strict=True):
        assert kept <= reached <= tested
    for rate in (stats.acceptance, stats.mean_alpha, stats.accepted_over_k, *stats.conditional):
        assert rate is None or 0 <= rate <= 1
    assert math.isclose(stats.decode_ms, 6.0 * (stats.passes - 1))


@given(runs())
def test_a_position_is_reached_when_all_before_it_were_accepted(events: list[Committed]) -> None:
    stats = folded(events)
    for i, reached in enumerate(stats.reached):
        deep = [event for event in events if event.depth > i and event.n_accepted >= i]
        decided = [event for event in deep if event.n_accepted > i or event.out[-1].source != "accepted"]
        assert reached == len(decided)


def test_numbers_of_a_small_run() -> None:
    stats = folded([a_pass(0, 0, 0), a_pass(1, 4, 2), a_pass(2, 4, 4), a_pass(3, 4, 0), a_pass(4, 0, 0)])
    assert stats.tested == [3, 3, 3, 3]
    assert stats.accepted_per_pos == [2, 2, 1, 1]
    assert stats.reached == [3, 2, 2, 1]
    assert stats.conditional == [pytest.approx(2 / 3), 1.0, 0.5, 1.0]
    assert stats.mean_alpha == pytest.approx(6 / 8)
    assert stats.acceptance == pytest.approx(6 / 12)
    assert stats.accepted_length == pytest.approx(2.0)
    assert stats.accepted_over_k == pytest.approx((0.5 + 1 + 0) / 3)
    assert stats.tokens_per_pass == pytest.approx(11 / 5)
    assert stats.ms_per_token == pytest.approx(24 / 10)  # the prompt's own token is not decoding


def test_what_plans_promised_is_told_beside_what_came() -> None:
    """By drafter, a pass; those that promised nothing, as plain decoding and looks at a draft, count for nobody."""
    promised = {"drafter": "suffix", "expected_tokens": 2.5, "expected_ms": 7.0}
    passes = [
        replace(a_pass(1, 4, 2), rows=5, **promised),
        replace(a_pass(2, 1, 0), rows=2, **promised),
        replace(a_pass(3, 2, 2), rows=3, **{**promised, "drafter": "draft-model"}),
    ]
    told = plans(folded([a_pass(0, 0, 0), *passes, a_pass(4, 0, 0), a_pass(5, 4, 4)]))
    assert told == (
        "suffix drafted in 2 passes of 2 to 5 rows: a pass was expected to give 2.5 tokens in 7.0 ms, "
        "and gave 2.0 in 6.0 ms; "
        "draft-model drafted in 1 pass of 3 rows: a pass was expected to give 2.5 tokens in 7.0 ms, "
        "and gave 3.0 in 6.0 ms"
    )
    assert plans(folded([a_pass(0, 0, 0), a_pass(1, 0, 0)])) == ""


def test_a_tree_counts_every_tested_node_as_drafted() -> None:
    stats = folded([a_pass(0, 0, 0), a_pass(1, 2, 1, nodes=6)])
    assert (stats.drafted, stats.tested, stats.accepted_per_pos) == (6, [1, 1], [1, 0])


def answered(*passes: Committed, plain: Sequence[float] = (), age_s: float | None = None) -> Stats:
    """Return the account of an answer with plain passes of `plain` milliseconds, two at each place between the others.

    With `age_s` they were measured in an earlier answer, so many seconds ago.
    """
    stats = Stats(clock=lambda: 100.0)
    stats.observe(Started("draft-model", "chain", "fixed", 4, "block", 1, False, 3))
    if age_s is not None:
        for nth, ms in enumerate(plain):
            stats.observe(Probed(ms, 20 + nth, age_s))
        plain = ()
    stats.observe(a_pass(0, 0, 0))
    n_places = max(1, (len(plain) + 1) // 2)
    each = -(-len(passes) // n_places)
    for place in range(n_places):
        for ms in plain[2 * place : 2 * place + 2]:
            stats.observe(measured(ms))
        for event in passes[place * each : (place + 1) * each]:
            stats.observe(event)
    return stats


def measured(ms: float) -> Committed:
    return replace(timed(0, 0, ms), plain_ms=ms)


def timed(depth: int, accepted: int, ms: float, *, draft: float = 0.0) -> Committed:
    """Return a pass of the draft model, or a plain one, of `ms` milliseconds beside those of drafting."""
    event = a_pass(1, depth, accepted)
    return replace(event, ms=StepMs(draft, ms, 0.0, 0.0), rows=1 + depth, drafter="draft-model" if depth else "")


@pytest.mark.parametrize(
    ("plain", "why"),
    [
        ((), "too few plain passes, 0 of 8"),
        ((10.0,) * 7, "too few plain passes, 7 of 8"),
    ],
)
def test_a_speedup_needs_eight_plain_passes_of_the_answer(plain: tuple[float, ...], why: str) -> None:
    """Two just after the prompt once showed 2.07 where the truth was 0.92."""
    stats = answered(*[timed(4, 2, 5.0)] * 40, plain=plain)
    assert stats.comparison is stats.speedup is None
    assert standing(stats) == f"speedup unknown: {why}"
    assert answered(*[timed(4, 2, 5.0)] * 40, plain=[10.0] * 8).speedup is not None


def test_a_speedup_needs_four_places_of_the_answer() -> None:
    """Plain passes of earlier answers are none of its places, nor is a run at its start more than one."""
    stats = answered(*[timed(4, 2, 5.0)] * 40, plain=[10.0] * 9, age_s=9.0)
    assert standing(stats) == "speedup unknown: too few plain passes, 0 of 8"
    stats = answered(*[measured(10.0)] * 8, *[timed(4, 2, 5.0)] * 40)
    assert standing(stats) == "speedup unknown: plain passes in 1 of 4 places"


@pytest.mark.parametrize("slow", ["plain", "drafting"])
def test_no_speedup_where_the_machine_changed_its_pace(slow: str) -> None:
    """Another program took the processor in the second half; both halves alone are 1.50 times as fast as plain."""
    passes, plain = [timed(4, 2, 20.0)] * 40, [10.0] * 8
    both = 1.8 if slow == "plain" else 1.0
    halves = [timed(4, 2, 20.0)] * 20 + [timed(4, 2, 36.0)] * 20
    stats = answered(*halves, plain=[10.0] * 4 + [both * 10.0] * 4)
    assert stats.speedup is None
    assert standing(stats) == "speedup unknown: the machine changed its pace"
    assert answered(*passes, plain=plain).speedup is not None


def test_a_machine_that_slows_down_by_and_by_changes_nothing() -> None:
    """Each pass is compared with its neighbours: over the answer all became twice as slow."""
    stats, pace = Stats(), 1.0
    stats.observe(Started("draft-model", "chain", "fixed", 4, "block", 1, False, 3))
    for event in (a_pass(0, 0, 0), *[measured(10.0), measured(10.0), *[timed(4, 2, 20.0)] * 8] * 20):
        ms = pace * event.ms.verify
        stats.observe(replace(event, ms=StepMs(0.0, ms, 0.0, 0.0), plain_ms=event.plain_ms and ms))
        pace *= 2 ** (1 / 200)
    assert stats.speedup == pytest.approx(26 * 20 / ((2 + 8 * 2.0) * 20), rel=0.01)


def test_passes_that_were_interrupted_for_long_leave_all_open() -> None:
    found = answered(*[timed(4, 2, 5.0)] * 3, timed(4, 2, 9000.0), plain=(1.0,) * 8).comparison
    assert found is not None
    assert found.holds_one
    assert 0.0 < found.low < found.high < float("inf")


def test_no_speedup_of_plain_decoding_over_itself() -> None:
    stats = answered(*[timed(0, 0, 5.0)] * 9, plain=[10.0] * 9)
    assert stats.baseline is not None
    assert stats.comparison is stats.speedup is None
    assert standing(stats) == "nothing was guessed"


def test_plain_decoding_is_the_median_of_all_plain_passes_known() -> None:
    """Of this answer and of earlier ones alike; what is told of its age is that of the last one."""
    now = [50.0]
    stats = Stats(clock=lambda: now[0])
    for ms, ctx, age_s in [*[(10.0, 20, 9.0)] * 4, *[(90.0, 21, 8.0)] * 4]:
        assert stats.baseline is None, "too few"
        stats.observe(Probed(ms, ctx, age_s))
    now[0] = 52.0
    assert stats.baseline is not None
    assert (stats.baseline.ms_per_token, stats.baseline.n, stats.baseline.ctx, stats.baseline.age_s) == (50, 8, 21, 10)
    stats.observe(Probed(12.0, 40))
    now[0] = 55.0
    assert (stats.baseline.ms_per_token, stats.baseline.n, stats.baseline.ctx, stats.baseline.age_s) == (12, 9, 40, 3)


def test_a_speedup_compares_medians() -> None:
    """One interruption moves neither side: three tokens of 12 ms plain came in a pass of 18 ms."""
    calm = answered(*[timed(4, 2, 18.0)] * 12, plain=[12.0] * 9)
    assert calm.speedup == pytest.approx((12 * 3 + 9) / (12 * 1.5 + 9))
    passes = [*[timed(4, 2, 18.0)] * 5, timed(4, 2, 900.0), *[timed(4, 2, 18.0)] * 6]
    assert answered(*passes, plain=[*[12.0] * 4, 700.0, *[12.0] * 4]).speedup == calm.speedup


def test_passes_of_another_width_or_drafter_have_a_median_of_their_own() -> None:
    """Six tokens of plain passes and wide ones, half each: 9 ms and 27 ms."""
    copied = replace(timed(2, 2, 6.0), drafter="suffix")
    stats = answered(*[timed(0, 0, 9.0)] * 5, *[timed(2, 2, 27.0)] * 5, *[copied] * 5, plain=[9.0] * 9)
    assert stats.speedup == pytest.approx(9.0 * (35 + 9) / (45.0 + 135.0 + 30.0 + 81.0))


def test_what_a_drafter_reads_first_counts_in_full() -> None:
    """The draft model reads the prompt in its first pass, which is no interruption: a median would leave it out."""
    passes = [timed(4, 2, 10.0, draft=200.0), *[timed(4, 2, 10.0, draft=2.0)] * 9]
    stats = answered(*passes, plain=[10.0] * 9)
    assert stats.comparison is not None
    assert stats.comparison.factor == pytest.approx(10.0 * (30 + 9) / (90.0 + 10 * 10.0 + 200.0 + 9 * 2.0))


def test_a_pass_that_asked_for_a_draft_in_vain_counts_its_time() -> None:
    stats = answered(*[timed(4, 2, 10.0)] * 9, replace(timed(0, 0, 10.0, draft=50.0)), plain=[10.0] * 9)
    assert stats.comparison is not None
    assert stats.comparison.factor == pytest.approx(10.0 * (28 + 9) / (9 * 10.0 + 60.0 + 90.0))


def noisy(random: Random, gain: float, n_places: int, *, drift: float = 0.0) -> Stats:
    """Return an answer with two measured passes of 10 ms at each place, and eight drafts of two tokens behind them.

    Drafts are `gain` times as fast. A pass scatters by 5 %, and one of twenty is interrupted for up to five times as
    long. The machine's pace wanders by `drift` from pass to pass.
    """
    pace = 1.0

    def took(ms: float) -> float:
        nonlocal pace
        pace *= math.exp(random.gauss(0.0, drift))
        much = random.uniform(1.0, 5.0) if random.random() < 0.05 else 1.0
        return pace * ms * math.exp(random.gauss(0.0, 0.05)) * much

    plain, passes = [], []
    for _ in range(n_places):
        plain += [took(10.0), took(10.0)]
        passes += [timed(1, 1, took(20.0 / gain)) for _ in range(8)]
    return answered(*passes, plain=plain)


@pytest.mark.parametrize("n_places", [4, 8, 20])
@pytest.mark.parametrize("drift", [0.0, 0.01])
def test_an_interval_misses_the_truth_in_one_of_twenty_answers_at_most(n_places: int, drift: float) -> None:
    random = Random(n_places)
    shown = [noisy(random, 1.0, n_places, drift=drift).speedup for _ in range(200)]
    assert sum(one is not None for one in shown) <= 10


@pytest.mark.parametrize("n_places", [4, 10])
def test_an_interval_accounts_for_stretches_that_differ(n_places: int) -> None:
    """Passes scatter little, and each place and each stretch of drafts has a pace of its own, 4 % off: no gain is."""
    random, shown = Random(3), 0
    for _ in range(200):
        plain, passes = [], []
        for _ in range(n_places):
            paces = [math.exp(random.gauss(0.0, 0.04)) for _ in range(2)]
            plain += [10.0 * paces[0] * math.exp(random.gauss(0.0, 0.002)) for _ in range(2)]
            passes += [timed(1, 1, 20.0 * paces[1] * math.exp(random.gauss(0.0, 0.002))) for _ in range(8)]
        shown += answered(*passes, plain=plain).speedup is not None
    assert shown <= 10


@pytest.mark.parametrize(("n_places", "least"), [(4, 0.5), (8, 0.5)])
def test_what_is_twice_as_fast_shows_it(n_places: int, least: float) -> None:
    random = Random(n_places)
    shown = [noisy(random, 2.0, n_places).speedup for _ in range(50)]
    assert sum(one is not None and one > 1.0 for one in shown) >= least * len(shown)


@pytest.mark.parametrize("truth", [0.92, 1.3])
def test_no_factor_beside_a_program_that_takes_a_core_now_and_then(truth: float) -> None:
    """It runs for two seconds of five, and all passes then take 1.8 times as long: what is told is near the truth."""
    random, told = Random(1), []
    for _ in range(100):
        now, plain, passes = random.uniform(0.0, 5000.0), [], []
        for _ in range(6):
            for ms in (70.0, 70.0, *[140.0 / truth] * 8):
                busy = ms * math.exp(random.gauss(0.0, 0.03)) * (1.8 if now % 5000.0 < 2000.0 else 1.0)
                now += busy
                (plain if ms == 70.0 else passes).append(busy)
        told.append(answered(*[timed(1, 1, ms) for ms in passes], plain=plain).speedup)
    assert all(one is None or 0.9 * truth < one < 1.1 * truth for one in told)


def test_few_plain_passes_make_a_wide_interval() -> None:
    widths = []
    for n in (4, 6, 20):
        found = answered(*[timed(4, 2, 10.0)] * 40, plain=[9.7, 9.9, 10.3, 10.1] * (n // 2)).comparison
        assert found is not None
        assert found.low < found.factor < found.high
        widths.append(found.high / found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1.05


def test_no_speedup_where_less_than_a_tenth_of_the_passes_drafted() -> None:
    """What differs is not the drafts' doing; with one more that drafted it is shown."""
    plain = {"plain": [10.0] * 9}
    few = answered(*[timed(0, 0, 8.0)] * 28, *[timed(4, 4, 8.0)] * 3, **plain)
    assert (few.speedup, standing(few)) == (None, "only 3 of 40 passes drafted")
    assert verdict(few) == "Only 3 of 40 passes drafted."
    even = answered(*[timed(0, 0, 9.0), timed(0, 0, 11.0)] * 20, timed(4, 0, 10.0), **plain)
    assert (even.speedup, standing(even)) == (None, "about the speed of plain decoding")
    assert answered(*[timed(0, 0, 8.0)] * 18, *[timed(4, 4, 8.0)] * 3, **plain).speedup is not None


PLAIN = [9.9, 10.0, 10.1] * 3


@pytest.mark.parametrize(
    ("ms", "plain", "found", "words", "is_loss"),
    [
        (20.0, PLAIN, "", "Guesses made this answer 1.45 times as fast as plain decoding (1.43 to 1.47).", False),
        (20.0, PLAIN, "copies were accepted at 93 %",
         "Guesses made this answer 1.45 times as fast as plain decoding (1.43 to 1.47).",
         False),
        (40.0, PLAIN, "",
         "Guesses made this answer slower: 0.76 times as fast as plain decoding (0.75 to 0.78).", True),
        (30.0, PLAIN, "k 4", "This answer ran at about the speed of plain decoding.", False),
        (22.0, [7.0, 13.0] * 4, "", "This answer was not clearly faster or slower than plain decoding.", False),
        (20.0, [], "", "Speedup unknown: too few plain passes, 0 of 8.", False),
        (20.0, [], "the draft is dear.", "The draft is dear.", False),
    ],
)  # fmt: skip
def test_the_verdict_is_a_sentence(ms: float, plain: list[float], found: str, words: str, is_loss: bool) -> None:
    stats = answered(*[timed(4, 2, ms)] * 40, plain=plain)
    stats.observe(Finished("stop", "", 1.0, 1.0, 0, verdict=found))
    assert (verdict(stats), is_slower(stats)) == (words, is_loss)
    if found and stats.speedup is None:
        told = f"{found[0].upper()}{found[1:].rstrip('.')}."
        assert verdict(stats, is_below=True) == told, "the line of figures has the rest"
    else:
        assert verdict(stats, is_below=True) == words


def test_the_verdict_of_what_drafted_nothing() -> None:
    stats = answered(*[timed(0, 0, 9.0)] * 9, plain=PLAIN)
    assert verdict(stats) == "Nothing was guessed."
    stats.observe(Finished("stop", "", 1.0, 1.0, 0, verdict="nothing was guessed: the draft costs more"))
    assert verdict(stats) == "Nothing was guessed: the draft costs more."
    stats.observe(Started("plain", "chain", "fixed", 0, "block", 1, False, 3))
    stats.observe(Finished("stop", "", 1.0, 1.0, 0))
    assert verdict(stats) == "This answer was decoded plainly."
    assert verdict(Stats()) == ""


def test_a_speedup_is_told_with_what_it_is_measured_against() -> None:
    passes = [timed(4, 2, 20.0)] * 9
    told = speedup_words(answered(*passes, plain=PLAIN))
    assert told == "1.33× plain, 1.31 to 1.36 (plain 100.0 tok/s, timed in 9 passes)"
    told = speedup_words(answered(*passes, plain=PLAIN, age_s=59.0))
    assert told == "speedup unknown: too few plain passes, 0 of 8 (plain 100.0 tok/s, timed in 9 passes)"
    assert speedup_words(answered(*passes, plain=PLAIN, age_s=60.0)).endswith(" 9 passes, last 60 s before the end)")
    assert speedup_words(answered(*passes)) == "speedup unknown: too few plain passes, 0 of 8"


def test_the_first_token_is_counted_from_enter() -> None:
    """A load and a wait for another answer are part of it; the engine counts from the request."""
    now = [50.0]
    stats = Stats(clock=lambda: now[0], asked_at=47.0)
    stats.observe(Started("plain", "chain", "fixed", 0, "block", 1, False, 3))
    stats.observe(a_pass(0, 0, 0))
    now[0] = 60.0
    stats.observe(a_pass(1, 0, 0))
    assert (stats.first_token_ms, ttft_ms(stats)) == (None, None)
    stats.observe(Finished("stop", "", 900.0, 200.0, 0))
    assert (stats.first_token_ms, ttft_ms(stats)) == (pytest.approx(3000.0), 200.0)
    assert ttft_ms(replace(stats, emitted=0)) is None
    assert stats_line(stats) == "2 tokens · plain decoding · 13.0 s (start 12.3, write 0.7)"
    assert folded([a_pass(0, 0, 0)]).first_token_ms is None


def test_what_was_done_is_told_by_drafter() -> None:
    copied = replace(timed(2, 2, 6.0), drafter="copy")
    assert done(answered(*[timed(4, 2, 20.0)] * 3, copied)) == "guessed: copy 2, draft-model 12"
    assert done(answered(timed(0, 0, 6.0))) == "decoded plainly"


def test_where_nothing_was_drafted_it_says_what_leaving_out_the_draft_saves() -> None:
    target = ModelFacts("target.gguf", 1, "llama", "Q4_0", 1, 1, 1, 1, ("CPU",))
    draft = replace(target, path="draft.gguf", bytes=400_000_000, kv_bytes=90_000_000, load_ms=1240.0)
    stats = answered(*[timed(0, 0, 9.0)] * 9)
    stats.observe(Loaded("pair", target, draft, 64, 1, 3000.0, {}))
    stats.observe(Finished("stop", "", 1.0, 1.0, 0, verdict="nothing was guessed: dear", cause="a guess costs 17 ms"))
    saving = "-d none saves 490 MB and 1.2 s of loading"
    assert (verdict(stats), reason(stats)) == ("Nothing was guessed: dear.", f"A guess costs 17 ms; {saving}.")
    stats.ways.rounds = 1  # with a verifier, the draft is the one model that is named
    assert "; -m none saves 490 MB" in reason(stats)
    stats.ways.rounds = 0
    not_yet = Finished(
        "stop",
        "",
        1.0,
        1.0,
        0,
        verdict="nothing was guessed",
        cause="a wrong guess would cost more than may be lost yet",
    )
    stats.observe(not_yet)
    assert saving not in reason(stats), "it may pay in the next answer"
    stats.observe(Finished("stop", "", 1.0, 1.0, 0, verdict="nothing was guessed: dear", cause="a guess costs 17 ms"))
    stats.observe(Loaded("pair", target, None, 64, 1, 3000.0, {}))
    assert reason(stats) == "A guess costs 17 ms."


@pytest.mark.parametrize("drafter", ["copy", "draft-model"])
def test_beside_copies_too_it_says_what_leaving_out_the_draft_saves(drafter: str) -> None:
    target = ModelFacts("target.gguf", 1, "llama", "Q4_0", 1, 1, 1, 1, ("CPU",))
    draft = replace(target, path="draft.gguf", bytes=400_000_000, kv_bytes=90_000_000, load_ms=1240.0)
    stats = answered(*[timed(0, 0, 9.0)] * 9, replace(timed(2, 2, 9.0), drafter=drafter))
    stats.observe(Loaded("pair", target, draft, 64, 1, 3000.0, {}))
    stats.observe(Finished("stop", "", 1.0, 1.0, 0, verdict="copy drafted 2 tokens"))
    assert ("-d none saves 490 MB" in reason(stats, is_below=True).lower().replace("mb", "MB")) == (drafter == "copy")


def test_nothing_divides_by_zero() -> None:
    stats = Stats()
    stats.observe(Started("plain", "chain", "fixed", 0, "block", 1, False, 3))
    stats.observe(Prefilled(3, 0, 0.0))
    stats.observe(Finished("interrupted", "", 0.0, 0.0, 0))
    assert stats.tok_per_s is stats.acceptance is stats.mean_alpha is stats.speedup is stats.tokens_per_pass is None


def test_the_tail_belongs_to_the_text() -> None:
    stats = folded([a_pass(0, 0, 0)])
    stats.observe(Finished("length", "tail", 1.0, 1.0, 0))
    assert stats.text == "w tail"


def test_on_a_gpu_a_change_of_width_is_part_of_the_answers_time() -> None:
    """Of plain passes after a draft the second takes long; they are few, and a median of all would leave them out."""
    passes = [
        *[measured(3.0)] * 12,
        timed(4, 4, 6.0),
        timed(0, 0, 4.0),
        timed(0, 0, 8.0),
        *[measured(3.0)] * 3,
    ] * 2
    facts = ModelFacts("target.gguf", 1, "llama", "Q4_0", 1, 1, 1, 1, ("CPU", "CUDA0"))
    stats = answered(*passes)
    on_gpu = Stats(clock=lambda: 100.0, loaded=Loaded("pair", facts, None, 64, 1, 0.0, {}))
    on_gpu.observe(Started("draft-model", "chain", "fixed", 4, "block", 1, False, 3))
    for event in passes:
        on_gpu.observe(event)
    whole = sum(one.ms.verify for one in passes) / 3.0
    assert stats.comparison is not None
    assert on_gpu.comparison is not None
    tokens = 2 * (5 + 17)
    assert tokens / stats.comparison.factor == pytest.approx(2 * (6.0 + 17 * 3.0) / 3.0)
    assert tokens / on_gpu.comparison.factor == pytest.approx(whole, rel=0.05)


def test_the_seconds_are_those_that_were_waited_and_their_parts_add_up() -> None:
    """The load is timed here, by the clock of who waits; the engine's own times count from the request."""
    now = [100.0]
    stats = Stats(clock=lambda: now[0], asked_at=100.0)
    target = ModelFacts("target.gguf", 1, "llama", "Q4_0", 1, 1, 1, 1, ("CPU",))
    steps = (
        (0.5, Loading("target", 0.0)), (2.0, Loading("target", 1.0)), (3.25, Loaded("p", target, None, 64, 1, 9e9, {})),
        (3.5, Started("plain", "chain", "fixed", 0, "block", 1, False, 3)),
        (5.0, Prefilled(3, 0, 1250.0, 125.0)), (5.0, a_pass(0, 0, 0)), (7.0, a_pass(1, 0, 0)),
    )  # fmt: skip
    for at, event in steps:
        now[0] = 100.0 + at
        stats.observe(event)
    assert stats.waited is None
    now[0] = 108.0
    stats.observe(Finished("stop", "", 4500.0, 1500.0, 0))
    assert stats.waited == Waited(875.0, 2750.0, 1375.0, 3000.0)
    assert stats.waited.total == 8000.0
    assert seconds(stats.waited) == "8.1 s (start 0.9, load 2.8, read 1.4, write 3.0)", "as the shown parts add up"
    warm = Stats(clock=lambda: 108.0, asked_at=108.0, loaded=stats.loaded)
    warm.observe(Finished("interrupted", "", 0.0, 0.0, 0))
    assert seconds(warm.waited) == "0.00 s"
    assert seconds(Waited(0.0, 0.0, 500.0, 1499.0)) == "2.00 s (read 0.50, write 1.50)"
    assert seconds(Waited(0.0, 0.0, 500.0, 1500.0)) == "2.0 s (read 0.5, write 1.5)"
