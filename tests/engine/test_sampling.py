"""Every filter against a slow, obvious reference on random rows; bad rows are engine failures, never a token."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft
from localspec.engine.sampling import GROUPS, Sampler, TargetDistributions, _top_k
from localspec.errors import InternalError
from localspec.settings.request import Sampling
from tests.exact.reference import adjusted, reference_dist, softmax

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
EDGE = 1e-9  # a token this near a filter's edge may fall on either side


@st.composite
def rows(draw: Callable, most: int = 600) -> np.ndarray:
    """Draw a row of logits: any size, flat or peaked, often with ties, sometimes with impossible tokens."""
    size = draw(st.integers(1, 12) | st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    row = (draw(st.sampled_from([0.0, 0.1, 2.0, 10.0])) * rng.normal(size=size)).astype(np.float32)
    if draw(st.booleans()):
        row = np.round(row * 2) / 2  # ties
    if size > 1 and draw(st.booleans()):
        row[rng.random(size) < draw(st.sampled_from([0.1, 0.9]))] = -np.inf
        row[rng.integers(size)] = 0.5
    return row


def assert_agrees(row: np.ndarray, sampling: Sampling, history: tuple[int, ...] = ()) -> None:
    dist = Sampler(sampling).dist(row, history)
    truth = reference_dist(row, history, sampling)
    assert dist.ids.dtype == np.int32
    assert dist.ids.tolist() == sorted(truth)
    assert dist.probs == pytest.approx([truth[token] for token in sorted(truth)], rel=1e-9, abs=1e-15)


def clear_of_edges(row: np.ndarray, sampling: Sampling) -> None:
    """Skip rows where rounding decides who is in: a mass within 1e-9 of top-p or typical-p, equal distances."""
    for nudge in (EDGE, -EDGE):
        near = replace(
            sampling,
            top_p=sampling.top_p + nudge if sampling.top_p < 1 else 1.0,
            typical_p=sampling.typical_p + nudge if sampling.typical_p < 1 else 1.0,
            min_p=min(1.0, sampling.min_p * (1 + nudge)),
        )
        assume(reference_dist(row, (), near).keys() == reference_dist(row, (), sampling).keys())
    if sampling.typical_p < 1:
        kept = sorted(range(row.size), key=lambda token: (-row[token], token))[: sampling.top_k or row.size]
        probs = softmax(kept, dict(enumerate(map(float, row))))
        surprise = {token: -math.log(p) for token, p in probs.items() if p > 0}
        entropy = sum(probs[token] * value for token, value in surprise.items())
        gaps = np.diff(np.sort([abs(value - entropy) for value in set(surprise.values())]))
        assume((gaps > EDGE).all())


@given(rows())
def test_no_filter_is_the_softmax(row: np.ndarray) -> None:
    """Temperature 1 and nothing else."""
    assert_agrees(row, OPEN)


@given(rows(), st.floats(0.05, 20.0))
def test_temperature(row: np.ndarray, temperature: float) -> None:
    """Logits are divided by it, whatever its size."""
    assert_agrees(row, replace(OPEN, temperature=temperature))


@given(rows(), st.integers(1, 700))
def test_top_k(row: np.ndarray, k: int) -> None:
    """The k greatest, the lower id first on ties; all of them when there are fewer."""
    assert_agrees(row, replace(OPEN, top_k=k))


@given(rows(), st.floats(0.01, 1.0))
def test_top_p(row: np.ndarray, top_p: float) -> None:
    """The smallest head of the sorted row whose mass reaches top-p."""
    sampling = replace(OPEN, top_p=top_p)
    clear_of_edges(row, sampling)
    assert_agrees(row, sampling)


@given(rows(), st.floats(0.0, 1.0))
def test_min_p(row: np.ndarray, min_p: float) -> None:
    """What is at least min-p times as probable as the most probable."""
    sampling = replace(OPEN, min_p=min_p)
    clear_of_edges(row, sampling)
    assert_agrees(row, sampling)


@given(rows(), st.floats(0.01, 0.999))
def test_typical_p(row: np.ndarray, typical_p: float) -> None:
    """What surprises most nearly as much as the entropy says (2202.00666)."""
    sampling = replace(OPEN, typical_p=typical_p)
    clear_of_edges(row, sampling)
    assert_agrees(row, sampling)


@settings(max_examples=300)
@given(
    rows(),
    st.sampled_from([0, 1, 2, 5, 40, 1000]),
    st.sampled_from([0.3, 0.9, 0.95, 1.0]),
    st.sampled_from([0.0, 0.05, 0.4]),
    st.sampled_from([0.2, 0.7, 1.0]),
    st.sampled_from([0.0, 0.3, 1.0, 2.0]),
)
def test_filters_together(
    row: np.ndarray, top_k: int, top_p: float, min_p: float, typical_p: float, temperature: float
) -> None:
    """In llama.cpp's order: top-k, typical-p, top-p, min-p, temperature; each sees what the one before left."""
    sampling = replace(OPEN, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p, temperature=temperature)
    clear_of_edges(row, sampling)
    assert_agrees(row, sampling)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1000, 5000),
    st.integers(0, 2**32),
    st.sampled_from([0.01, 1.0, 4.0]),
    st.sampled_from(
        [
            replace(OPEN, top_p=0.999),
            replace(OPEN, top_p=0.5),
            replace(OPEN, top_p=0.9, min_p=0.01),
            replace(OPEN, top_k=40, top_p=0.95, min_p=0.05),
            replace(OPEN, top_k=3000),
            replace(OPEN, typical_p=0.9, top_p=0.9),
        ]
    ),
)
def test_large_vocabularies(size: int, seed: int, scale: float, sampling: Sampling) -> None:
    """Rows of thousands, where the shortcuts work: partial selection, a nucleus wider than the first guess."""
    row = (scale * np.random.default_rng(seed).normal(size=size)).astype(np.float32)
    clear_of_edges(row, sampling)
    assert_agrees(row, sampling)


@given(
    rows(most=40),
    st.lists(st.integers(0, 11), max_size=12).map(tuple),
    st.sampled_from([0.5, 1.0, 1.25, 2.0]),
    st.sampled_from([-0.5, 0.0, 0.75]),
    st.sampled_from([-0.25, 0.0, 0.5]),
    st.sampled_from([-1, 0, 1, 3, 64]),
)
def test_penalties(
    row: np.ndarray, history: tuple[int, ...], repeat: float, presence: float, frequency: float, last_n: int
) -> None:
    """Repeat, presence and frequency over the last n tokens: 0 switches them off, -1 takes the whole text."""
    history = tuple(token % row.size for token in history)
    assert_agrees(
        row,
        replace(
            OPEN,
            repeat_penalty=repeat,
            presence_penalty=presence,
            frequency_penalty=frequency,
            penalty_last_n=last_n,
        ),
        history,
    )


def test_penalties_by_hand() -> None:
    """Positive logits are divided, negative ones multiplied; frequency counts, presence does not."""
    row = np.array([2.0, -2.0, 1.0, 0.0], np.float32)
    sampling = replace(OPEN, repeat_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    dist = Sampler(sampling).dist(row, [0, 1, 1, 3])
    logits = np.array([2.0 / 2 - 0.25 - 0.5, -2.0 * 2 - 0.5 - 0.5, 1.0, 0.0 - 0.25 - 0.5])
    assert dist.probs == pytest.approx(np.exp(logits) / np.exp(logits).sum())


@given(rows(most=40), st.lists(st.tuples(st.integers(0, 39), st.sampled_from([-100.0, -1.5, 0.25, 5.0])), max_size=4))
def test_logit_bias(row: np.ndarray, bias: list[tuple[int, float]]) -> None:
    """Added before everything else, each token once."""
    unique = {token % row.size: value for token, value in bias}
    assert_agrees(row, replace(OPEN, logit_bias=tuple(unique.items()), top_k=5))


def test_a_bias_of_minus_infinity_bans_a_token() -> None:
    """It leaves the support, also where it was the greatest."""
    dist = Sampler(replace(OPEN, logit_bias=((1, -math.inf),))).dist(np.array([0.0, 9.0, 1.0], np.float32))
    assert dist.ids.tolist() == [0, 2]


@given(rows())
def test_greedy_is_the_lowest_of_the_greatest(row: np.ndarray) -> None:
    """Temperature 0 is a point mass on the most probable token, whatever filters are set."""
    for sampling in (OPEN, Sampling(), replace(OPEN, top_k=3, top_p=0.1, min_p=0.9)):
        dist = Sampler(replace(sampling, temperature=0.0)).dist(row)
        assert dist.ids.tolist() == [int(np.flatnonzero(row == row.max())[0])]
        assert dist.probs.tolist() == [1.0]


def test_the_drafts_temperature_is_its_own() -> None:
    """`temperature` overrides the settings', zero included."""
    row = np.array([0.0, 1.0], np.float32)
    assert Sampler(OPEN, temperature=0.0).dist(row).ids.tolist() == [1]
    half = Sampler(OPEN, temperature=0.5).dist(row)
    assert half.probs[1] / half.probs[0] == pytest.approx(math.exp(2.0))


@given(rows(), st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_the_belief_is_the_dist_at_temperature_one(row: np.ndarray, temperature: float) -> None:
    """The same tokens under the same filters; the distribution itself is what it is without."""
    for sampling in (OPEN, Sampling(), replace(OPEN, typical_p=0.7), replace(OPEN, min_p=0.1)):
        sampler = Sampler(sampling, temperature=temperature)
        dist, sure = sampler.dist(row, with_belief=True), Sampler(sampling, temperature=1.0).dist(row)
        assert dist.ids.tolist() == sampler.dist(row).ids.tolist()
        assert dist.probs.tolist() == sampler.dist(row).probs.tolist()
        assert dist.belief.ids.tolist() == sure.ids.tolist()
        assert dist.belief.probs.tolist() == sure.probs.tolist()
        assert sampler.dist(row).belief.probs.tolist() == sampler.dist(row).probs.tolist()


def test_the_row_is_never_written_to() -> None:
    """Rows are views of the backend's memory: bias and penalties work on a copy."""
    row = np.array([0.0, 1.0, 2.0], np.float32)
    row.flags.writeable = False
    sampling = replace(OPEN, logit_bias=((0, 1.0),), repeat_penalty=1.5, top_k=2)
    assert_agrees(row, sampling, (0, 1))
    assert_agrees(row, replace(OPEN, top_k=2), ())


BAD = {
    "NaN": np.array([0.0, math.nan, 1.0], np.float32),
    "NaN first": np.array([math.nan, 0.0, 1.0], np.float32),
    "all NaN": np.full(3, math.nan, np.float32),
    "all impossible": np.full(3, -math.inf, np.float32),
    "infinite": np.array([0.0, math.inf, 1.0], np.float32),
}


@pytest.mark.parametrize("row", BAD.values(), ids=BAD)
@pytest.mark.parametrize(
    "sampling",
    [
        OPEN,
        Sampling(),
        replace(OPEN, temperature=0.0),
        replace(OPEN, top_k=1),
        replace(OPEN, top_p=0.5),
        replace(OPEN, min_p=0.5),
        replace(OPEN, typical_p=0.5),
        replace(OPEN, repeat_penalty=1.5),
        replace(OPEN, typical_p=0.5, temperature=0.0),
        replace(OPEN, top_k=2, typical_p=0.5),
    ],
    ids=str,
)
def test_rows_that_are_not_numbers_are_failures(row: np.ndarray, sampling: Sampling) -> None:
    """A model that says NaN or forbids everything ends in a clear error, under every filter."""
    with pytest.raises(InternalError, match="not numbers"):
        Sampler(sampling).dist(row, (0,))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 31, 32, 33, 639, 640, 641, 1279, 1280, 4096, 5000])
@pytest.mark.parametrize("k", [1, 2, 3, 31, 32, 40, 128, 5000])
def test_the_grouped_maxima_keep_the_greatest(size: int, k: int) -> None:
    """`_top_k` returns a superset of the k greatest at every size around that of the groups, ties included."""
    for seed in range(3):
        row = np.round(np.random.default_rng([size, k, seed]).normal(size=size) * 8).astype(np.float32) / 8
        found, peak = _top_k(row, k)
        assert (np.diff(found) > 0).all()
        assert peak == row.max()
        best = sorted(range(size), key=lambda token: (-row[token], token))[:k]
        assert set(best) <= set(found.tolist())


@pytest.mark.parametrize("size", [100, 4096, 10 * GROUPS, 32_000, 128_256])
def test_the_grouped_maxima_leave_few(size: int) -> None:
    """Hardly more than were asked for remain to be sorted."""
    row = np.random.default_rng(0).normal(size=size).astype(np.float32)
    assert _top_k(row, 10)[0].size < 15


@pytest.mark.parametrize("at", [0, 639, 640, 5119, 5120, 5129])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_is_found_wherever_it_is(at: int, wrong: float) -> None:
    """In the groups of top-k, and behind the last whole one."""
    row = np.zeros(5130, np.float32)
    row[at] = wrong
    with pytest.raises(InternalError, match="not numbers"):
        Sampler(replace(OPEN, top_k=40)).dist(row)


def test_min_p_alone_takes_no_sum_of_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum takes a millisecond of a large one, and only top-p asks for it."""
    sizes: list[int] = []
    exp = np.exp
    monkeypatch.setattr(np, "exp", lambda x: sizes.append(np.size(x)) or exp(x))
    row = np.random.default_rng(0).normal(size=5000).astype(np.float32) * 3
    Sampler(replace(OPEN, min_p=0.1)).dist(row)
    assert max(sizes) < 500
    Sampler(replace(OPEN, min_p=0.1, top_p=0.9)).dist(row)
    assert max(sizes) == 5000


class CountedRows:
    """Rows that count how often each was asked for."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows
        self.asked: list[int] = []

    def logits(self, node: int) -> np.ndarray:
        self.asked.append(node)
        return self._rows[node]


def test_target_dists_see_their_own_path_and_are_computed_once() -> None:
    """Each node's history is the text and its path below the root; no row is read before it is asked for."""
    values = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    rows, text = CountedRows(values), [4, 1]
    draft = Draft.of([1, 2, 3, 2], [-1, 0, 1, 0])
    sampler = Sampler(replace(OPEN, repeat_penalty=1.5, frequency_penalty=0.5))
    dists = TargetDistributions(sampler, rows, draft, text)
    assert rows.asked == []
    for node, history in ((2, [4, 1, 2, 3]), (3, [4, 1, 2]), (0, [4, 1]), (2, [4, 1, 2, 3])):
        dist: Distribution = dists[node]
        assert dist.probs.tolist() == sampler.dist(values[node], history).probs.tolist()
    assert rows.asked == [2, 3, 0]


def test_the_reference_rounds_like_float32() -> None:
    """The reference's bias and penalties are float32, as the rows are: 0.1 + 0.2 is not 0.3 there."""
    row = np.array([0.1, 0.0], np.float32)
    logits = adjusted(row, (), replace(OPEN, logit_bias=((0, 0.2),)))
    assert logits[0] == float(np.float32(0.1) + np.float32(0.2))


@pytest.mark.parametrize("times", [1, 2, 3, 7])
def test_a_token_is_penalised_for_each_time_it_was_said(times: int) -> None:
    sampling = replace(OPEN, frequency_penalty=0.25, presence_penalty=0.5)
    dist = Sampler(sampling).dist(np.zeros(2, np.float32), (1,) * times)
    assert math.log(dist.prob(0) / dist.prob(1)) == pytest.approx(0.25 * times + 0.5)
    assert_agrees(np.array([0.0, 1.0, 2.0], np.float32), sampling, (1,) * times + (2, 2, 2))


@pytest.mark.parametrize(("min_p", "ids"), [(1.0, [0, 3]), (math.exp(-1.0), [0, 1, 3]), (math.exp(-2.0), [0, 1, 2, 3])])
def test_min_p_keeps_what_is_exactly_at_its_edge(min_p: float, ids: list[int]) -> None:
    """As llama.cpp does, which drops logits below the edge; at 1 the likeliest tokens stay."""
    dist = Sampler(replace(OPEN, min_p=min_p)).dist(np.array([0.0, -1.0, -2.0, 0.0, -9.0], np.float32), ())
    assert dist.ids.tolist() == ids


@pytest.mark.parametrize(("last_n", "is_seen"), [(-1, True), (64, False), (101, True), (100, False)])
def test_minus_one_looks_at_the_whole_text(last_n: int, is_seen: bool) -> None:
    history = [3, *[1] * 100]
    settings = Sampling(presence_penalty=5.0, penalty_last_n=last_n, top_k=0, top_p=1.0, min_p=0.0, temperature=1.0)
    dist = Sampler(settings).dist(np.zeros(8, np.float32), history)
    assert (dist.prob(3) < dist.prob(0) / 2) is is_seen


class Only:
    """A constraint that allows the same tokens everywhere."""

    def __init__(self, ids: np.ndarray) -> None:
        self.ids = ids

    def allowed(self, text: Sequence[int]) -> np.ndarray:
        return self.ids


@given(
    rows(),
    st.integers(0, 2**32),
    st.sampled_from([0.02, 0.15, 0.5, 0.98]),
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.8]),
        top_k=st.integers(0, 20),
        top_p=st.sampled_from([0.5, 0.95, 1.0]),
        min_p=st.sampled_from([0.0, 0.05]),
        typical_p=st.sampled_from([0.7, 1.0]),
    ),
)
def test_a_constraint_is_the_row_without_what_is_not_allowed(
    row: np.ndarray, seed: int, share: float, sampling: Sampling
) -> None:
    """Whether nearly all tokens are allowed, so that only the likeliest are looked at, or few."""
    allowed = np.flatnonzero(np.random.default_rng(seed).random(row.size) < share).astype(np.int32)
    assume(allowed.size > 0 and row[allowed].max() > -np.inf)
    without = np.full_like(row, -np.inf)
    without[allowed] = row[allowed]
    clear_of_edges(without, sampling)
    found = Sampler(sampling, constraint=Only(allowed)).dist(row)
    wanted = Sampler(sampling).dist(without)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.probs == pytest.approx(wanted.probs, rel=1e-9)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("n_likely", [0, 1, 4, 5, 6])
def test_allowed_tokens_are_found_however_unlikely(temperature: float, n_likely: int) -> None:
    """Of the likeliest 60 tokens fewer are allowed than top-k keeps, just as many, or more."""
    row = -np.arange(400, dtype=np.float32) / 100
    allowed = np.array([*range(n_likely), *range(60, 400)], np.int32)
    sampling = Sampling(temperature=temperature, top_k=5, top_p=1.0, min_p=0.0)
    found = Sampler(sampling, constraint=Only(allowed)).dist(row)
    assert found.ids.tolist() == allowed[: 1 if temperature == 0.0 else 5].tolist()
