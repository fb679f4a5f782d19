"""Forks explained: the place, the two tokens, how far apart plain decoding held them, and what rounding does there."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.options import LoadOptions
from localspec.engine.protocols import Logits, Mask, Tokens
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.lossless.fork import FACTOR, explain, margin, replay
from localspec.settings.request import Sampling
from localspec.testing.contract import TableBackend, TableRows, random_table
from tests.integration import pair

GREEDY = Sampling(temperature=0.0)
TABLE = random_table(5, 1)


@pytest.fixture(scope="module")
def quantised() -> Iterator[LlamaBackend]:
    """The bundled target as people run it: Q8_0, whose rows move with the batch on most processors."""
    with pair.backend(pair.TARGET, LoadOptions(n_ctx=512, threads=1, max_leaves=32)) as opened:
        yield opened


def test_equal_texts_have_no_fork() -> None:
    backend = TableBackend(TABLE, 5)
    assert explain(backend, [0, 1], ([2, 3], [2, 3]), GREEDY, seed=0, shape=(4, 1)) is None
    assert explain(backend, [0, 1], ([2, 3], [2]), GREEDY, seed=0, shape=(4, 1)) is None


def test_a_backend_without_rounding_has_no_ties() -> None:
    """Rows are a function of the text there: whatever differs, differs by a mistake."""
    backend = TableBackend(TABLE, 5)
    row = TABLE((0, 1, 2))
    best, next_best = np.argsort(-row)[:2]
    fork = explain(backend, [0, 1], ([2, int(best)], [2, int(next_best)]), GREEDY, seed=0, shape=(4, 2))
    assert fork is not None
    assert (fork.index, fork.plain, fork.other, fork.drift, fork.is_tie) == (1, best, next_best, 0.0, False)
    assert fork.margin == pytest.approx(float(row[best] - row[next_best]), rel=1e-3)
    assert backend.committed == []


class SeldomMoved(TableBackend):
    """A backend that rounds otherwise where narrow passes begin some tokens before the end of the prompt.

    Token 2 of a row is then lower by 0.05, and so is each row after it.
    """

    PROMPT = [0, 1, 3, 4] * 3

    def __init__(self, early: int) -> None:
        self.is_moved = False
        super().__init__(self.moved, 5)
        self._early = early

    def moved(self, tokens: tuple[int, ...]) -> Logits:
        row = TABLE(tokens).copy()
        row[2] -= 0.05 * self.is_moved
        return row

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> TableRows:
        self.is_moved |= self.length == len(self.PROMPT) - self._early
        return super().extend(tokens, parents, outputs)

    def truncate(self, length: int) -> None:
        if length == 0:
            self.is_moved = False
        super().truncate(length)


@pytest.mark.parametrize("leaves", [1, 2])
@pytest.mark.parametrize(("early", "drift"), [(3, 0.05), (9, 0.05), (12, 0.0)])
@pytest.mark.parametrize(("apart", "is_near"), [(0.04, True), (0.12, False)])
def test_rows_that_seldom_move_are_tried_in_further_passes(
    leaves: int, early: int, drift: float, apart: float, is_near: bool
) -> None:
    """Passes that begin at the answer move nothing there, and those from before the prompt are not tried."""
    row = TABLE((*SeldomMoved.PROMPT, 2, 3))
    best, next_best = (int(token) for token in np.argsort(-row)[:2])
    near = Sampling(temperature=0.0, logit_bias=((next_best, float(row[best] - row[next_best]) - apart),))
    texts = [2, 3, best], [2, 3, next_best]
    fork = explain(SeldomMoved(early), SeldomMoved.PROMPT, texts, near, seed=0, shape=(6, leaves))
    assert fork is not None
    assert fork.drift == pytest.approx(drift, abs=1e-6)
    assert fork.margin == pytest.approx(apart, rel=0.01)
    assert fork.is_tie is (is_near and drift > 0)


def test_further_passes_end_where_they_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long prompt is read anew for each: a target that never moves is asked no longer than that."""
    backend, texts = TableBackend(TABLE, 5, n_ctx=64), ([2, 3, 4], [2, 3, 1])
    monkeypatch.setattr("localspec.lossless.fork.MOST_TRIED", 200)
    fork = explain(backend, [0, 1, 2, 3] * 8, texts, GREEDY, seed=0, shape=(6, 1))
    assert fork is not None
    assert not fork.is_tie
    assert 200 < backend.evaluated <= 200 + 2 * 34


@pytest.mark.parametrize("width", [1, 2, 3, 7])
@pytest.mark.parametrize("has_siblings", [False, True])
def test_a_replay_gives_the_rows_of_the_text(width: int, has_siblings: bool) -> None:
    answer = [2, 3, 1, 4, 0]
    rows = replay(TableBackend(TABLE, 5), [0, 1], answer, width, has_siblings=has_siblings)
    assert sorted(rows) == [0, 1, 2, 3, 4, 5]
    for index, row in rows.items():
        assert row.tolist() == TABLE((0, 1, *answer[:index])).tolist()


def test_a_real_model_drifts_by_little_and_a_wrong_token_is_no_tie(quantised: LlamaBackend) -> None:
    """The likeliest token against the least likely: logits apart, while rounding moves rows by hundredths.

    Or not at all: some processors' kernels add in one order whatever the width.
    """
    prompt = quantised.model.tokenize("Once upon a time there was a king", add_bos=True)
    plain = pair.plain(quantised, prompt=prompt, max_tokens=24).tokens
    row = quantised.prefill([*prompt, *plain[:20]], lambda: False).logits(0).copy()
    other = [*plain[:20], int(row.argmin())]
    fork = explain(quantised, prompt, (plain, other), GREEDY, seed=0, shape=(8, 4))
    assert fork is not None
    assert fork.index == 20
    assert 0.0 <= fork.drift < 1.0
    assert fork.margin > FACTOR * fork.drift
    assert not fork.is_tie


def test_rows_of_quantised_weights_keep_their_bits_or_jump(quantised: LlamaBackend) -> None:
    """By where the cache holds the text: so rows that are equal show nothing of rows that are not."""
    prompt = quantised.model.tokenize("Once upon a time there was a king", add_bos=True)
    answer = pair.plain(quantised, prompt=prompt, max_tokens=40).tokens
    alone = replay(quantised, prompt, answer, 1, has_siblings=False)
    gaps = []
    for width, shift in itertools.product((2, 4, 7), (0, 3, 6)):
        head, tail = prompt[: len(prompt) - shift], prompt[len(prompt) - shift :]
        found = replay(quantised, head, [*tail, *answer], width, has_siblings=True)
        gaps += [float(np.abs(found[i + shift] - row).max()) for i, row in alone.items()]
    assert len(gaps) == 9 * 32
    assert not [gap for gap in gaps if 0.0 < gap < 1e-3]


@pytest.mark.parametrize(("times", "is_tie"), [(0.5, True), (3.0, False), (10.0, False)])
def test_tokens_closer_than_the_drift_are_a_tie(quantised: LlamaBackend, times: float, is_tie: bool) -> None:
    """The runner-up of a row, brought to within some times the drift of the best token by a bias."""
    prompt = quantised.model.tokenize("Once upon a time there was a king", add_bos=True)
    shared = pair.plain(quantised, prompt=prompt, max_tokens=12).tokens
    row = quantised.prefill([*prompt, *shared], lambda: False).logits(0).copy()
    first, second = (int(token) for token in np.argsort(-row)[:2])
    texts = [*shared, first], [*shared, second]
    fork = explain(quantised, prompt, texts, GREEDY, seed=0, shape=(4, 1))
    assert fork is not None
    apart = times * (fork.drift or 1e-3)
    near = Sampling(temperature=0.0, logit_bias=((second, float(row[first] - row[second]) - apart),))
    fork = explain(quantised, prompt, texts, near, seed=0, shape=(4, 1))
    assert fork is not None
    assert fork.margin == pytest.approx(apart, rel=0.01)
    assert fork.is_tie is (is_tie and fork.drift > 0.0)


def test_margins_above_temperature_zero_are_of_noisy_scores() -> None:
    """Races are decided where the scores cross."""
    sampling = Sampling(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0)
    row, seen = TABLE((0, 1)), [0, 1]
    dist = Sampler(sampling).dist(row, seen)
    for seed in range(20):
        noise = SeededRandom(seed)
        arrivals = np.log(noise.exponentials(len(seen), dist.ids)) - np.log(dist.probs)
        first, second, third = noise.gumbel_top_k(len(seen), dist, 3)
        assert margin(row, seen, first, Sampler(sampling), seed) == 0.0
        apart = margin(row, seen, second, Sampler(sampling), seed)
        assert apart == pytest.approx(0.7 * (arrivals[second] - arrivals[first]), rel=1e-3)
        assert margin(row, seen, third, Sampler(sampling), seed) >= apart


def test_a_tie_is_one_of_the_scores_that_are_compared() -> None:
    """A penalty divides the logit of a token that was seen: 6 against 4 is even, and 4 against 4 is not."""
    row, penalised = np.array([6.0, 4.0, 0.0], np.float32), Sampling(temperature=0.0, repeat_penalty=1.5)
    assert margin(row, [0], 1, Sampler(penalised), 0) == pytest.approx(0.0, abs=1e-5)
    level = np.array([4.0, 4.0, 0.0], np.float32)
    assert margin(level, [0], 0, Sampler(penalised), 0) == pytest.approx(1.6, rel=1e-3)  # (4 + 0.8) / 1.5 = 4 - 0.8


def test_a_filtered_token_is_as_far_as_its_edge() -> None:
    sampling = Sampling(temperature=0.01, top_k=2, top_p=1.0, min_p=0.0)
    row = np.array([5.0, 4.0, 1.0, 0.0], np.float32)
    assert margin(row, [0], 1, Sampler(sampling), 1) == pytest.approx(1.0, abs=0.05)
    assert margin(row, [0], 2, Sampler(sampling), 1) == pytest.approx(4.0, abs=0.05), "in, and then first"
    banned = Sampling(temperature=0.0, logit_bias=((2, -math.inf),))
    assert margin(row, [0], 2, Sampler(banned), 1) == math.inf


def test_a_token_too_probable_for_typical_sampling_is_no_tie() -> None:
    """It lies above all that stay, and rounding does not bring it back."""
    row = np.log(np.array([0.3, *[0.01] * 70], np.float32))
    sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=0.5)
    assert 0 not in Sampler(sampling).dist(row, [0]).ids
    assert margin(row, [0], 0, Sampler(sampling), 1) > 0.1


FILTERS = {
    "default": Sampling(temperature=0.8),
    "min-p": Sampling(temperature=0.8, top_k=0, top_p=1.0),
    "top-p": Sampling(temperature=0.8, top_k=0, min_p=0.0),
    "top-k": Sampling(temperature=0.8, top_p=1.0, min_p=0.0),
    "typical-p": Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, typical_p=0.7),
    "none": Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0),
    "penalties": Sampling(temperature=0.8, repeat_penalty=1.3, presence_penalty=0.5),
    "greedy": Sampling(temperature=0.0),
}


@pytest.mark.parametrize("sampling", FILTERS.values(), ids=FILTERS)
def test_whatever_noise_makes_of_a_row_is_a_tie_of_that_noise(sampling: Sampling) -> None:
    """Rows moved at random by up to the drift: every fork is one by construction, at whatever edge it came about."""
    rng, drift, forks = np.random.default_rng(5), 0.05, 0
    seen, sampler = [3, 9, 9, 30], Sampler(sampling)
    for seed in range(1500):
        row = rng.gumbel(0.0, 1.5, 400).astype(np.float32)
        moved = row + rng.uniform(-drift, drift, row.size).astype(np.float32)
        plain, other = (SeededRandom(seed).gumbel_top_k(len(seen), sampler.dist(one, seen))[0] for one in (row, moved))
        if plain != other:
            forks += 1
            assert margin(row, seen, other, Sampler(sampling), seed) <= FACTOR * 2 * drift, (seed, plain, other)
    assert forks >= 5
