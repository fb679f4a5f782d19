"""Lookahead on llama.cpp: the text of plain decoding, the rows of plain decoding, and a cache that holds no guesses."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from localspec.backends.lib import api
from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine.draft import Draft, Draw, Step
from localspec.engine.protocols import History, Plan, RandomSource, Rows, Verifier
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.methods.lookahead import Lookahead
from localspec.settings.declaration import Value
from localspec.settings.request import Sampling
from localspec.trees.static import Chain
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.tree import TreeVerifier
from tests.integration import pair
from tests.integration.pair import GREEDY, OPENINGS

LENGTH = 300
SEEDED = Sampling(temperature=0.8, seed=11)
SHAPES = ((4, 3, 4), (1, 2, 1), (5, 2, 5), (1, 4, 2), (7, 4, 7), (6, 6, 5))


def options_of(shape: tuple[int, int, int]) -> Mapping[str, Value]:
    return {**dict(zip("WNG", shape, strict=True)), "prompt": True}


def parts_of(target: LlamaBackend, shape: tuple[int, int, int]) -> DrafterContext:
    n_vocab = target.capabilities.n_vocab
    return DrafterContext(
        None, Sampler(GREEDY), Chain(), lambda: False, n_vocab, options_of(shape), target.model.is_eog
    )


@pytest.mark.thinned(2)
@pytest.mark.parametrize("prompt", OPENINGS[:2])
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["T=0", "T=0.8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_text_of_plain_decoding(
    target: LlamaBackend, shape: tuple[int, int, int], sampling: Sampling, prompt: str
) -> None:
    """At temperature 0, and with coupled noise at 0.8."""
    expected = pair.plain(target, CoupledVerifier(), prompt=prompt, sampling=sampling, max_tokens=LENGTH)
    got = pair.generate(
        target, Lookahead(parts_of(target, shape)), CoupledVerifier(),
        prompt=prompt, shape=Lookahead.shape(1, options_of(shape)), draw=Draw.FIXED, sampling=sampling,
        max_tokens=LENGTH,
    )  # fmt: skip
    assert sum(step.n_accepted for step in got.steps) > 0
    pair.assert_same(target, prompt, expected, got, sampling)


class Recording(Lookahead):
    """Asks for every row, also those of the window, keeps them, and looks at the cache after every pass."""

    def __init__(self, target: LlamaBackend, shape: tuple[int, int, int], text: list[int]) -> None:
        super().__init__(parts_of(target, shape))
        self._target = target
        self._text = list(text)
        self.rows: list[tuple[list[int], np.ndarray]] = []  # what a node sees, and its logits
        self.n_scratch = 0

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        draft = super().propose(history, plan, rng)
        self._draft = replace(draft, outputs=draft.outputs | True)
        self._text = list(history.tokens)
        return self._draft

    def observe(self, step: Step, rows: Rows) -> None:
        super().observe(step, rows)
        self.n_scratch += int(step.draft.scratch.sum())
        for node in range(len(step.draft) + 1):
            self.rows.append((self._text + step.draft.path(node), rows.logits(node).copy()))
        length = step.position + len(step.tokens) - 1
        assert self._target.length == length
        assert api.llama_memory_seq_pos_max(self._target._cache.memory, 0) == length - 1
        for sequence in range(1, self._target.capabilities.max_leaves):
            assert api.llama_memory_seq_pos_max(self._target._cache.memory, sequence) < length
        self._target.check()


@pytest.mark.parametrize("rule", [MatchVerifier(), TreeVerifier()], ids=["match", "tree"])
@pytest.mark.parametrize("shape", [(4, 3, 4), (3, 2, 3), (1, 4, 2), (5, 5, 4)], ids=str)
def test_every_row_is_that_of_plain_decoding(target: LlamaBackend, shape: tuple[int, int, int], rule: Verifier) -> None:
    """The mask: whatever a node is, its row is what the target says after the text and the node's own path."""
    prompt = target.model.tokenize(OPENINGS[0], add_bos=True)
    drafter = Recording(target, shape, prompt)
    pair.generate(
        target, drafter, rule, shape=Lookahead.shape(1, options_of(shape)), draw=Draw.FIXED,
        sampling=Sampling(temperature=0.8), max_tokens=40, eog=frozenset(),
    )  # fmt: skip
    assert drafter.n_scratch > 0
    worst = 0.0
    for seen, row in drafter.rows:
        alone = target.prefill(seen, lambda: False).logits(0)
        worst = max(worst, float(np.abs(alone - row).max()))
    print(f"{len(drafter.rows)} rows, largest difference {worst:.1e}")
    assert worst <= 1e-3


@pytest.mark.parametrize("missing", [1, 2, 9, 30])
def test_context_full(target: LlamaBackend, missing: int) -> None:
    """The window leaves when the context has no room for it; with `missing` free positions missing + 1 tokens come."""
    prompt = target.model.tokenize(" and then" * 2000)[: 1024 - missing]
    run = pair.generate(
        target, Lookahead(parts_of(target, (4, 3, 4))), MatchVerifier(), prompt=prompt,
        shape=Lookahead.shape(1, options_of((4, 3, 4))), draw=Draw.FIXED, max_tokens=100, eog=frozenset(),
    )  # fmt: skip
    assert (run.finish, len(run.tokens)) == ("context", missing + 1)
