"""Every expansion policy on llama.cpp: the text is plain decoding's, the caches hold, every row sees its own path."""

from itertools import cycle

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Draw
from localspec.engine.protocols import Plan, Shape, TreePolicy, Verifier
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import DraftModel
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.speculation.resolve import build_tree
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from tests.integration import pair
from tests.integration.pair import GREEDY, OPENINGS
from tests.integration.test_invariants import Watching

LENGTH = 300
SEEDED = Sampling(temperature=0.8, seed=11)
WIDE = Sampling(temperature=1.0, top_k=8)  # of drafts at temperature 0, so that trees have different siblings
HOT = Sampling(temperature=2.0, top_p=1.0, min_p=0.0)
TREE_RULES = ("tree", "traversal", "spectr", "match")
SHAPES = (
    "specinfer:1,1,3,1,1",
    "spectr:12,drafts=3",
    "spectr:32,drafts=8",
    "sequoia:8",
    "sequoia:32",
    "sequoia:64,depth=4,accept=0.4/0.3/0.2",
    "dyspec:6,depth=3",
    "dyspec:24",
    "dyspec:48,calibrated=off",
    "eagle2:8,top=2",
    "eagle2:40,top=8,depth=4",
)


def policy(spelling: str) -> TreePolicy:
    return build_tree(spelling)


def draws(spelling: str, rule: str) -> Draw:
    """Return the first draw that is right for both, as a session would."""
    judged = registered("verify")[rule].accepts & policy(spelling).draws
    order = (Draw.WITHOUT_REPLACEMENT, Draw.IID, Draw.FIXED)
    return next(draw for draw in order if draw in judged)


def generate(
    target: LlamaBackend, draft: LlamaBackend, spelling: str, verifier: Verifier, draw: Draw, sampling: Sampling
) -> pair.Run:
    """Generate with the policy; caches are looked at after every pass."""
    grown = policy(spelling)
    drafter = Watching(target, draft, Sampler(sampling if sampling.temperature else WIDE), grown, lambda: False)
    run = pair.generate(
        target, drafter, verifier, shape=grown.shape(4), draw=draw, sampling=sampling, max_tokens=LENGTH
    )
    assert drafter.passes == len(run.steps) - 1
    assert max(len(step.draft) for step in run.steps) > 4
    assert sum(step.n_accepted for step in run.steps) > LENGTH // 4
    return run


@pytest.fixture(scope="module")
def greedy(target: LlamaBackend) -> pair.Run:
    return pair.plain(target, max_tokens=LENGTH)


@pytest.fixture(scope="module")
def seeded(target: LlamaBackend) -> pair.Run:
    return pair.plain(target, CoupledVerifier(), sampling=SEEDED, max_tokens=LENGTH)


@pytest.mark.parametrize(("spelling", "rule"), list(zip(SHAPES, cycle(TREE_RULES), strict=False)))
def test_greedy(target: LlamaBackend, draft: LlamaBackend, greedy: pair.Run, spelling: str, rule: str) -> None:
    """At temperature 0 the text is the argmax text, whatever the rule."""
    verifier: Verifier = registered("verify")[rule]()
    got = generate(target, draft, spelling, verifier, draws(spelling, rule), GREEDY)
    pair.assert_same(target, OPENINGS[0], greedy, got, GREEDY)


@pytest.mark.parametrize("spelling", SHAPES)
def test_coupled_at_temperature(target: LlamaBackend, draft: LlamaBackend, seeded: pair.Run, spelling: str) -> None:
    """With a seed, the text is plain decoding's with that seed."""
    pair.assert_same(
        target, OPENINGS[0], seeded, generate(target, draft, spelling, CoupledVerifier(), Draw.COUPLED, SEEDED), SEEDED
    )


@pytest.mark.thinned(2)
@pytest.mark.parametrize("spelling", SHAPES)
@pytest.mark.parametrize("draw", [Draw.WITHOUT_REPLACEMENT, Draw.COUPLED])
def test_every_row_sees_its_own_path(target: LlamaBackend, draft: LlamaBackend, spelling: str, draw: Draw) -> None:
    """The logits of every node of a tree, evaluated in one decode, are those of plain decoding of its path."""
    text = target.model.tokenize(OPENINGS[1], add_bos=True)
    grown = policy(spelling)
    shape = grown.shape(8)
    context = Context(text, Vocabulary(target.model.is_eog, target.model.piece), n_ctx=1024)
    drafter = DraftModel(draft, Sampler(HOT), grown, lambda: False)
    tree = drafter.propose(context, Plan("it", shape.nodes, shape.depth, draw), SeededRandom(5))
    draft.truncate(0)
    assert not tree.is_chain
    target.truncate(0)
    target.prefill(text[:-1], lambda: False)
    rows = target.extend(tree.tokens.tolist(), tree.parents.tolist())
    together = [rows.logits(node).copy() for node in range(len(tree.tokens))]
    for node in range(len(tree.tokens)):
        alone = target.prefill([*text, *tree.path(node)], lambda: False).logits(0)
        assert np.abs(alone - together[node]).max() <= 1e-3
    target.truncate(0)


def test_a_narrow_context_of_the_draft(target: LlamaBackend, draft: LlamaBackend) -> None:
    """To the end of the context no policy asks for a cell that is not there."""
    prompt = target.model.tokenize(" and then" * 2000)[: 1024 - 40]
    for spelling in ("dyspec:24", "eagle2:24,top=8", "sequoia:24"):
        grown = policy(spelling)
        run = pair.generate(
            target, DraftModel(draft, Sampler(WIDE), grown, lambda: False), MatchVerifier(),
            prompt=prompt, shape=Shape(24, 8, 24), draw=Draw.FIXED, max_tokens=100, eog=frozenset(),
        )  # fmt: skip
        assert run.finish == "context"
        assert len(run.tokens) == 41
