"""What holds after every pass of a long run, and at its edges: cache and text never part."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.lib import api
from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine.draft import Draft, Draw, Source, Step
from localspec.engine.protocols import History, Plan, RandomSource, Rows, Shape
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import DraftModel
from localspec.settings.request import Sampling
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.tree import TreeVerifier
from tests.integration import pair
from tests.integration.adversaries import Oracle
from tests.integration.pair import OPENINGS

WARM = Sampling(temperature=0.8)


class Watching(DraftModel):
    """A draft model that looks at both caches after every pass."""

    def __init__(self, target: LlamaBackend, *parts: Any) -> None:
        super().__init__(*parts)
        self._target = target
        self.passes = 0

    def observe(self, step: Step, rows: Rows) -> None:
        """Sequence 0 holds every committed token but the last; no other sequence holds anything but a part of those."""
        super().observe(step, rows)
        self.passes += 1
        length = step.position + len(step.tokens) - 1
        assert self._target.length == length
        for cache in (self._target, self.backend):
            assert isinstance(cache, LlamaBackend)
            assert api.llama_memory_seq_pos_max(cache._cache.memory, 0) == cache.length - 1
            for sequence in range(1, cache.capabilities.max_leaves):
                assert api.llama_memory_seq_pos_max(cache._cache.memory, sequence) < cache.length
            cache.check()
        assert self.backend.length <= length


@pytest.mark.parametrize(
    ("policy", "rule", "draw"),
    [
        (Chain(), BlockVerifier(), Draw.IID),
        (Static((3, 2, 1)), TreeVerifier(), Draw.WITHOUT_REPLACEMENT),
        (Static((2, 2, 2)), MatchVerifier(), Draw.FIXED),
    ],
    ids=["chain", "drawn tree", "fixed tree"],
)
def test_after_every_pass(
    target: LlamaBackend,
    draft: LlamaBackend,
    f32_pair: dict[str, Path],
    policy: Chain | Static,
    rule: TreeVerifier | BlockVerifier | MatchVerifier,
    draw: Draw,
) -> None:
    """450 tokens; then 32 plain steps on the used caches equal 32 on fresh ones."""
    drafter = Watching(target, draft, Sampler(WARM), policy, lambda: False)
    run = pair.generate(
        target, drafter, rule, shape=policy.shape(4), draw=draw, sampling=WARM, max_tokens=450, eog=frozenset()
    )
    assert drafter.passes == len(run.steps) - 1
    text = target.model.tokenize(OPENINGS[0], add_bos=True) + run.tokens
    for used, path in ((target, f32_pair["target"]), (draft, f32_pair["draft"])):
        with pair.backend(path) as fresh:
            assert_same_rows(used, fresh, text)


def assert_same_rows(used: LlamaBackend, fresh: LlamaBackend, text: list[int]) -> None:
    """Continue greedily on both caches; every row agrees to 1e-3."""
    fresh.prefill(text[: used.length], lambda: False)
    for token in text[used.length :]:
        for cache in (used, fresh):
            cache.extend([token], [-1])
            cache.keep((0,))
    token = 5
    for _ in range(32):
        rows = [cache.extend([token], [-1]).logits(0).copy() for cache in (used, fresh)]
        assert np.abs(rows[0] - rows[1]).max() <= 1e-3
        token = int(rows[0].argmax())
        used.keep((0,))
        fresh.keep((0,))


def test_no_token_is_evaluated_twice_by_the_draft(target: LlamaBackend, draft: LlamaBackend) -> None:
    """The drafter evaluates each committed token once, plus the draft tokens that were rejected."""
    draft.truncate(0)
    before = draft.evaluated
    run = pair.generate(
        target, DraftModel(draft, Sampler(WARM), Chain(), lambda: False), BlockVerifier(),
        shape=Shape(4, 4, 1), draw=Draw.IID, sampling=WARM, max_tokens=200, eog=frozenset(),
    )  # fmt: skip
    passes = run.steps[1:]
    # Of k drafted tokens the last is never fed. A pass leaves min(accepted, k - 1) of those it fed in the cache.
    wasted = sum(max(len(step.draft) - 1, 0) - min(len(step.kept) - 1, max(len(step.draft) - 1, 0)) for step in passes)
    assert draft.evaluated - before == draft.length + wasted


@pytest.mark.parametrize("k", [0, 1, 5, 8])
@pytest.mark.parametrize("n", [1, 2, 5, 6, 7])
def test_last_tokens(target: LlamaBackend, draft: LlamaBackend, k: int, n: int) -> None:
    """Exactly n tokens come, whatever the draft length: near the end a pass drafts less, K=0 is plain decoding."""
    policy = Chain()
    run = pair.generate(
        target, DraftModel(draft, Sampler(pair.GREEDY), policy, lambda: False), BlockVerifier(),
        shape=policy.shape(k), max_tokens=n, eog=frozenset(),
    )  # fmt: skip
    assert len(run.tokens) == n
    assert run.finish == "length"
    assert run.tokens == pair.plain(target, max_tokens=n, eog=frozenset()).tokens


@pytest.mark.parametrize("policy", [Chain(), Static((2, 2))], ids=["chain", "tree"])
@pytest.mark.parametrize("missing", [1, 2, 3, 9])
def test_context_full(target: LlamaBackend, draft: LlamaBackend, missing: int, policy: Chain | Static) -> None:
    """With `missing` free positions exactly missing + 1 tokens come: the last needs no cell."""
    prompt = target.model.tokenize(" and then" * 2000)[: 1024 - missing]
    run = pair.generate(
        target, DraftModel(draft, Sampler(pair.GREEDY), policy, lambda: False), TreeVerifier(),
        prompt=prompt, shape=policy.shape(8), draw=Draw.IID, max_tokens=100, eog=frozenset(),
    )  # fmt: skip
    assert run.finish == "context"
    assert len(run.tokens) == missing + 1


class Script(Oracle):
    """Proposes the known continuation without error."""

    def guess(self, position: int) -> int:
        at = position - self._start
        return self._truth[at] if at < len(self._truth) else 5

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        return super().propose(history, plan, rng)


def scripted(target: LlamaBackend, k: int, **settings: Any) -> pair.Run:
    """Generate greedily with a drafter that is always right, so that runs are k + 1 long."""
    truth = pair.plain(target, max_tokens=64, eog=frozenset()).tokens
    start = len(target.model.tokenize(OPENINGS[0], add_bos=True))
    return pair.generate(
        target, Script(truth, start), MatchVerifier(), shape=Shape(k, k, 1), draw=Draw.FIXED, max_tokens=64, **settings
    )


def test_end_token_inside_an_accepted_run(target: LlamaBackend) -> None:
    """A token declared as end of generation cuts the run; what follows it is neither text nor cache."""
    truth = pair.plain(target, max_tokens=64, eog=frozenset()).tokens
    end = next(token for i, token in enumerate(truth) if i >= 10 and token not in truth[:i])
    at = truth.index(end)
    run = scripted(target, 8, eog=frozenset({end}))
    assert run.finish == "stop"
    assert run.tokens == truth[: at + 1]
    assert run.text == b"".join(map(target.model.piece, truth[:at])).decode()
    assert run.steps[-1].sources[-1] in (Source.ACCEPTED, Source.BONUS)


def test_stop_string_across_tokens_and_inside_a_run(target: LlamaBackend) -> None:
    """A stop string that begins in one token and ends in another cuts text, tokens and cache; the text is exact."""
    truth = pair.plain(target, max_tokens=64, eog=frozenset()).tokens
    pieces = [target.model.piece(token).decode() for token in truth]
    text = "".join(pieces)
    for at in range(12, 40):
        stop = pieces[at][-2:] + pieces[at + 1][:2]
        if len(stop) > 2 and text.find(stop) == len("".join(pieces[: at + 1])) - len(pieces[at][-2:]):
            break
    else:
        pytest.fail("the text has no place for this test")
    run = scripted(target, 8, stops=(stop,), eog=frozenset())
    assert run.finish == "stop"
    assert run.text == text[: text.find(stop)]
    assert run.tokens == truth[: at + 2]
