"""Distribution by distribution against llama.cpp's own samplers, on real rows of the bundled model.

llama.cpp computes in float32, localspec in float64. Where they may differ by rights:

* a probability by 1e-5: float32's exp and its sums over thousands of tokens;
* membership, for a token whose running mass lies within 2e-5 of top-p or typical-p, or whose logit lies within 1e-6
  of min-p's edge. Where the tokens differ, llama.cpp's must lie between those of the settings moved by that much
  either way, and have the probabilities that the logits give on them; at most one row in four may need it.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from localspec.backends.breakers import sequence_breakers
from localspec.backends.lib import api
from localspec.backends.model import Model
from localspec.engine.sampling import Sampler
from localspec.settings.request import Sampling
from tests.exact.reference import softmax
from tests.integration import pair

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
AGREE = 1e-5
SETTINGS = {
    "nothing": OPEN,
    "cold": replace(OPEN, temperature=0.3),
    "hot": replace(OPEN, temperature=2.0),
    "greedy": replace(OPEN, temperature=0.0),
    "top-k 1": replace(OPEN, top_k=1),
    "top-k 40": replace(OPEN, top_k=40),
    "top-k 1000": replace(OPEN, top_k=1000),
    "top-p 0.5": replace(OPEN, top_p=0.5),
    "top-p 0.95": replace(OPEN, top_p=0.95),
    "top-p 0.99": replace(OPEN, top_p=0.99),
    "min-p 0.05": replace(OPEN, min_p=0.05),
    "min-p 0.001": replace(OPEN, min_p=0.001),
    "min-p 1": replace(OPEN, min_p=1.0),
    "typical-p 0.5": replace(OPEN, typical_p=0.5),
    "typical-p 0.95": replace(OPEN, typical_p=0.95),
    "repeat": replace(OPEN, repeat_penalty=1.3),
    "presence": replace(OPEN, presence_penalty=1.5),
    "frequency": replace(OPEN, frequency_penalty=0.4),
    "penalties of the last 8": replace(
        OPEN, repeat_penalty=1.1, presence_penalty=0.3, frequency_penalty=0.2, penalty_last_n=8
    ),
    "penalties of the whole text": replace(OPEN, repeat_penalty=1.2, frequency_penalty=0.1, penalty_last_n=-1),
    "penalties off": replace(OPEN, repeat_penalty=1.5, penalty_last_n=0),
    "negative penalties": replace(OPEN, repeat_penalty=0.8, presence_penalty=-0.5, frequency_penalty=-0.1),
    "bias": replace(OPEN, logit_bias=((300, 4.0), (5, -3.0), (17, -100.0))),
    "DRY": replace(OPEN, dry_multiplier=0.8, dry_penalty_last_n=-1),
    "DRY of one token, without breakers": replace(
        OPEN, dry_multiplier=2.0, dry_base=1.2, dry_allowed_length=1, dry_sequence_breaker=("none",)
    ),
    "DRY, own breakers": replace(
        OPEN, dry_multiplier=1.5, dry_allowed_length=1, dry_penalty_last_n=20, dry_sequence_breaker=("in,", " the", "é")
    ),
    "DRY with penalties and filters": Sampling(dry_multiplier=0.8, repeat_penalty=1.1, temperature=0.6),
    "XTC that never acts": replace(OPEN, xtc_probability=0.0),
    "XTC that always acts": replace(OPEN, xtc_probability=1.0, xtc_threshold=0.05),
    "XTC behind filters": Sampling(xtc_probability=1.0, xtc_threshold=0.1, temperature=1.3),
    "XTC, greedy": Sampling(xtc_probability=1.0, xtc_threshold=0.1, temperature=0.0),
    "XTC above half": Sampling(xtc_probability=1.0, xtc_threshold=0.6),
    "the defaults": Sampling(),
    "the defaults, greedy": Sampling(temperature=0.0),
    "typical-p then greedy": replace(OPEN, typical_p=0.3, temperature=0.0),
    "top-k, typical-p": replace(OPEN, top_k=40, typical_p=0.7),
    "typical-p, top-p, min-p": replace(OPEN, top_k=60, typical_p=0.9, top_p=0.9, min_p=0.1, temperature=0.7),
    "top-p, min-p": replace(OPEN, top_p=0.9, min_p=0.02, temperature=1.5),
    "top-p wider than min-p": replace(OPEN, top_p=0.99, min_p=0.3),
    "everything": Sampling(
        temperature=0.9,
        top_k=50,
        top_p=0.92,
        min_p=0.03,
        typical_p=0.95,
        repeat_penalty=1.15,
        presence_penalty=0.2,
        frequency_penalty=0.1,
        penalty_last_n=32,
        logit_bias=((300, 2.0), (11, -5.0)),
    ),
}
TEXT = (
    '"Come in," said the old woman, and she opened the door. "Come in, come in, and sit by the fire, for it is cold."'
    " The king and the king's son came in and sat by the fire, and the old woman gave them bread and"
)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    """Open the target, whose vocabulary DRY's breakers are read in."""
    with Model(pair.TARGET) as model:
        yield model


@pytest.fixture(scope="module")
def rows() -> list[tuple[list[int], np.ndarray]]:
    """Return real rows with their histories: one for each token of a text."""
    with pair.backend(pair.TARGET) as target:
        tokens = target.model.tokenize(TEXT, add_bos=True)
        target.prefill(tokens[:1], lambda: False)
        rest = tokens[1:]
        found = target.extend(rest, range(-1, len(rest) - 1))
        return [(tokens[: i + 2], found.logits(i).copy()) for i in range(len(rest))]


@contextmanager
def chain(s: Sampling, model: Model, history: Sequence[int], seed: int = 0) -> Iterator[object]:
    """Open llama.cpp's default chain with these settings, its penalties and DRY having seen `history`."""
    n_vocab = model.n_vocab
    sampler = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
    bias = (api.llama_logit_bias * max(1, len(s.logit_bias)))(*s.logit_bias)
    last_n = len(history) if s.penalty_last_n < 0 else s.penalty_last_n
    for part in (
        api.llama_sampler_init_logit_bias(n_vocab, len(s.logit_bias), bias),
        api.llama_sampler_init_penalties(n_vocab, last_n, s.repeat_penalty, s.frequency_penalty, s.presence_penalty),
        _dry(s, model, len(history)),
        *([api.llama_sampler_init_top_k(s.top_k)] if s.top_k else []),
        api.llama_sampler_init_typical(s.typical_p, 0),
        api.llama_sampler_init_top_p(s.top_p, 0),
        api.llama_sampler_init_min_p(s.min_p, 0),
        api.llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, 0, seed),
        api.llama_sampler_init_temp(s.temperature),
    ):
        api.llama_sampler_chain_add(sampler, part)
    try:
        for token in history:
            api.llama_sampler_accept(sampler, token)
        yield sampler
    finally:
        api.llama_sampler_free(sampler)


def _dry(s: Sampling, model: Model, n: int) -> object:
    """Return llama.cpp's DRY sampler, which knows no -1 for the whole text of `n` tokens."""
    texts = () if s.dry_sequence_breaker == ("none",) else s.dry_sequence_breaker
    breakers = (ctypes.c_char_p * max(1, len(texts)))(*[text.encode() for text in texts])
    last_n = n if s.dry_penalty_last_n < 0 else s.dry_penalty_last_n
    return api.llama_sampler_init_dry(
        model._vocab, s.dry_multiplier, s.dry_base, s.dry_allowed_length, last_n, breakers, len(texts)
    )


def llama_dist(s: Sampling, row: np.ndarray, history: Sequence[int], model: Model, seed: int = 0) -> dict[int, float]:
    """Return what llama.cpp's samplers leave of a row, as a distribution."""
    data = (api.llama_token_data * row.size)()
    view = np.frombuffer(data, np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)]))
    view["id"], view["logit"] = np.arange(row.size), row
    array = api.llama_token_data_array(data, row.size, -1, False)
    with chain(s, model, history, seed) as sampler:
        api.llama_sampler_apply(sampler, ctypes.byref(array))
    first = (ctypes.addressof(array.data.contents) - ctypes.addressof(data)) // view.itemsize  # XTC moves it
    left = view[first : first + array.size]
    logits = left["logit"].astype(np.float64)
    weights = np.exp(logits - logits.max())
    dist = dict(zip(left["id"].tolist(), (weights / weights.sum()).tolist(), strict=True))
    return {token: p for token, p in dist.items() if p > 0.0}


def agree(s: Sampling, truth: dict[int, float], row: np.ndarray, history: Sequence[int], model: Model) -> bool:
    """Return whether localspec's distribution has the same tokens and, to 1e-5, the same probabilities."""
    return near(our_dist(s, row, history, model), truth)


def agree_at_an_edge(
    s: Sampling, truth: dict[int, float], row: np.ndarray, history: Sequence[int], model: Model
) -> bool:
    """Return whether the difference is float32's: a token at the edge of a filter."""
    if s.temperature == 0.0:
        return False
    narrow, wide = (our_dist(moved(s, nudge), row, history, model).keys() for nudge in (-1, 1))
    logits = dict(enumerate(sampler_of(s, model).adjusted(row, history).tolist()))
    return narrow <= truth.keys() <= wide and near(softmax([*truth], logits, s.temperature), truth)


def sampler_of(s: Sampling, model: Model) -> Sampler:
    return Sampler(s, breakers=sequence_breakers(model, s.dry_sequence_breaker))


def our_dist(s: Sampling, row: np.ndarray, history: Sequence[int], model: Model) -> dict[int, float]:
    dist = sampler_of(s, model).dist(row, history)
    return dict(zip(dist.ids.tolist(), dist.probs.tolist(), strict=True))


def near(dist: dict[int, float], truth: dict[int, float]) -> bool:
    return dist.keys() == truth.keys() and max(abs(dist[token] - truth[token]) for token in truth) < AGREE


def moved(s: Sampling, nudge: int) -> Sampling:
    """Return the settings a little narrower (-1) or wider (1): by what float32 may move an edge."""
    return replace(
        s,
        top_p=min(1.0, s.top_p + nudge * 2e-5) if s.top_p < 1 else 1.0,
        typical_p=min(1.0, s.typical_p + nudge * 2e-5) if s.typical_p < 1 else 1.0,
        min_p=min(1.0, s.min_p * (1 - nudge * 1e-6)),
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_the_dist_is_llama_cpps(name: str, rows: list[tuple[list[int], np.ndarray]], model: Model) -> None:
    """Every row of a text, after its own history."""
    s = SETTINGS[name]
    at_an_edge = 0
    for history, row in rows:
        truth = llama_dist(s, row, history, model)
        if not agree(s, truth, row, history, model):
            assert agree_at_an_edge(s, truth, row, history, model), f"after {len(history)} tokens"
            at_an_edge += 1
    assert at_an_edge <= len(rows) / 4


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [name for name in SETTINGS if "DRY" in name])
def test_dry_is_llama_cpps_on_texts_that_repeat_themselves(name: str, seed: int, model: Model) -> None:
    """Few tokens in random order, among them breakers, repeat in every way; the rows are random."""
    rng, s = np.random.default_rng(seed), SETTINGS[name]
    words = model.tokenize(' the old: "in, the\nold" the king in, a* é')
    for _ in range(40):
        few = rng.choice(words, rng.integers(2, 6), replace=False)
        history = rng.choice(few, rng.integers(1, 200)).tolist()
        row = rng.normal(size=model.n_vocab).astype(np.float32)
        row[words] += 6.0
        truth = llama_dist(s, row, history, model)
        assert agree(s, truth, row, history, model) or agree_at_an_edge(s, truth, row, history, model), history


def test_xtc_has_llama_cpps_frequencies(rows: list[tuple[list[int], np.ndarray]], model: Model) -> None:
    """llama.cpp tosses a coin for each token; the mixture is the mean over its two outcomes."""
    s, n = Sampling(xtc_probability=0.3, xtc_threshold=0.1, temperature=1.2), 600
    history, row = next(one for one in rows if len(llama_dist(replace(s, xtc_probability=1.0), one[1], one[0], model))
                        < len(llama_dist(replace(s, xtc_probability=0.0), one[1], one[0], model)))  # fmt: skip
    with_all, without = (llama_dist(replace(s, xtc_probability=p), row, history, model) for p in (0.0, 1.0))
    drawn = [llama_dist(s, row, history, model, seed=seed) for seed in range(n)]
    assert all(near(dist, with_all) or near(dist, without) for dist in drawn)
    acted = sum(near(dist, without) for dist in drawn) / n
    assert acted == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / n) ** 0.5)
    mixture = {token: 0.7 * p + 0.3 * without.get(token, 0.0) for token, p in with_all.items()}
    assert near(our_dist(s, row, history, model), mixture)


def test_the_comparison_can_fail(rows: list[tuple[list[int], np.ndarray]], model: Model) -> None:
    """Negative control: another filter, another temperature, a penalty that misses the last token are told apart."""
    history, row = rows[-1]
    for ours, theirs, seen in (
        (SETTINGS["top-k 40"], SETTINGS["top-p 0.95"], history),
        (SETTINGS["frequency"], SETTINGS["frequency"], history[:-1]),
        (SETTINGS["cold"], SETTINGS["hot"], history),
        (SETTINGS["XTC that always acts"], SETTINGS["nothing"], history),
    ):
        truth = llama_dist(theirs, row, seen, model)
        assert not agree(ours, truth, row, history, model)
        assert not agree_at_an_edge(ours, truth, row, history, model)


def test_the_rows_are_worth_comparing(rows: list[tuple[list[int], np.ndarray]]) -> None:
    """Sharp and flat ones, of the whole vocabulary, with texts long enough for penalties to repeat a token."""
    tops = [Sampler(OPEN).dist(row).top for _, row in rows]
    assert len(rows) > 40
    assert min(tops) < 0.3
    assert max(tops) > 0.6
    assert len({row.size for _, row in rows}) == 1
    assert len(set(rows[-1][0])) < len(rows[-1][0])
