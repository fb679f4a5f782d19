"""Speculation never changes the text: at temperature 0 for every rule, and with coupled noise at any temperature."""

from collections.abc import Callable

import pytest

from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine.draft import Draw
from localspec.engine.protocols import Drafter, Shape, Verifier
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import DraftModel
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.trees.static import Chain, Static
from localspec.verify.coupled import CoupledVerifier
from tests.integration import pair
from tests.integration.adversaries import AlwaysEnd, AlwaysWrong, Guesser, Oracle
from tests.integration.pair import GREEDY, OPENINGS

LENGTH = 300
SEEDED = Sampling(temperature=0.8, seed=11)
TREES = ((2, 2, 1), (4, 1, 1), (3, 2), (1, 2, 3))


def verifier(name: str) -> Verifier:
    rule: Verifier = registered("verify")[name]()
    return rule


def drafting(draft: LlamaBackend, policy: Chain | Static, sampling: Sampling) -> DraftModel:
    return DraftModel(draft, Sampler(sampling), policy, lambda: False)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("prompt", OPENINGS[:2])
@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize("name", registered("verify"))
def test_greedy_chain(target: LlamaBackend, draft: LlamaBackend, name: str, k: int, prompt: str) -> None:
    """At temperature 0 every rule gives the argmax text, at every draft length."""
    expected = pair.plain(target, prompt=prompt, max_tokens=LENGTH)
    draw = Draw.COUPLED if name == "coupled" else Draw.IID
    got = pair.generate(
        target, drafting(draft, Chain(), GREEDY), verifier(name),
        prompt=prompt, shape=Shape(k, k, 1), draw=draw, max_tokens=LENGTH,
    )  # fmt: skip
    assert sum(step.n_accepted for step in got.steps) > 0
    pair.assert_same(target, prompt, expected, got, GREEDY)


@pytest.mark.parametrize(("shape", "policy"), [(Shape(3, 3, 1), Chain()), (Shape(6, 2, 3), Static((3, 1)))])
def test_padded_passes(target: LlamaBackend, draft: LlamaBackend, shape: Shape, policy: Chain | Static) -> None:
    """Rows below the last node are evaluated, dropped, and never seen by the tokens that follow."""
    expected = pair.plain(target, max_tokens=LENGTH)
    got = pair.generate(
        target, drafting(draft, policy, GREEDY), verifier("match"), shape=shape, draw=Draw.FIXED, max_tokens=LENGTH,
        widths=(1, 8, 8, 8, 8, 8, 9),
    )  # fmt: skip
    assert max(len(step.draft.tokens) for step in got.steps) >= 8
    target.check()
    pair.assert_same(target, OPENINGS[0], expected, got, GREEDY)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("widths", TREES)
@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("tree", Draw.IID),
        ("tree", Draw.WITHOUT_REPLACEMENT),
        ("traversal", Draw.WITHOUT_REPLACEMENT),
        ("match", Draw.FIXED),
        ("coupled", Draw.COUPLED),
    ],
)
def test_greedy_tree(target: LlamaBackend, draft: LlamaBackend, name: str, draw: Draw, widths: tuple[int, ...]) -> None:
    """Trees too. The draft's temperature is 1, so that a tree has different siblings."""
    expected = pair.plain(target, max_tokens=LENGTH)
    policy = Static(widths)
    drafter = drafting(draft, policy, Sampling(temperature=1.0, top_k=8))
    got = pair.generate(
        target, drafter, verifier(name), shape=policy.shape(0), draw=draw, max_tokens=LENGTH
    )  # fmt: skip
    assert max(len(step.draft) for step in got.steps) == policy.shape(0).nodes
    pair.assert_same(target, OPENINGS[0], expected, got, GREEDY)


@pytest.mark.parametrize("prompt", OPENINGS)
@pytest.mark.parametrize("policy", [Chain(), Static((2, 2, 1)), Static((4, 1, 1))], ids=["chain", "2,2,1", "4,1,1"])
def test_coupled_at_temperature(target: LlamaBackend, draft: LlamaBackend, policy: Chain | Static, prompt: str) -> None:
    """With a seed, coupled decoding gives the text of plain decoding with that seed, all filters on."""
    expected = pair.plain(target, CoupledVerifier(), prompt=prompt, sampling=SEEDED, max_tokens=LENGTH)
    got = pair.generate(
        target, drafting(draft, policy, SEEDED), CoupledVerifier(),
        prompt=prompt, shape=policy.shape(4), draw=Draw.COUPLED, sampling=SEEDED, max_tokens=LENGTH,
    )  # fmt: skip
    assert sum(step.n_accepted for step in got.steps) > 0
    pair.assert_same(target, prompt, expected, got, SEEDED)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize("penalty", [1.0, 1.2])
def test_coupled_with_penalties(target: LlamaBackend, draft: LlamaBackend, temperature: float, penalty: float) -> None:
    """Penalties see the drafted tokens before a row, so the distribution of a row does not depend on who drafted."""
    sampling = Sampling(temperature=temperature, repeat_penalty=penalty, presence_penalty=0.3, seed=3)
    expected = pair.plain(target, CoupledVerifier(), sampling=sampling, max_tokens=LENGTH)
    got = pair.generate(
        target, drafting(draft, Chain(), sampling), CoupledVerifier(),
        shape=Shape(4, 4, 1), draw=Draw.COUPLED, sampling=sampling, max_tokens=LENGTH,
    )  # fmt: skip
    pair.assert_same(target, OPENINGS[0], expected, got, sampling)


ADVERSARIES: dict[str, Callable[[list[int], int, int], Drafter]] = {
    "oracle": Oracle,
    "random": lambda truth, start, width: Guesser(width),
    "always wrong": AlwaysWrong,
    "always end": lambda truth, start, width: AlwaysEnd(width),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["T=0", "T=0.8"])
@pytest.mark.parametrize("kind", ADVERSARIES)
def test_adversaries(target: LlamaBackend, kind: str, sampling: Sampling, width: int) -> None:
    """No drafter can bend the text, however well or badly it guesses."""
    expected = pair.plain(target, CoupledVerifier(), sampling=sampling, max_tokens=LENGTH)
    start = len(target.model.tokenize(OPENINGS[0], add_bos=True))
    drafter = ADVERSARIES[kind](expected.tokens, start, width)
    got = pair.generate(
        target, drafter, CoupledVerifier(),
        shape=Shape(6 * width, 6, 12), draw=Draw.FIXED, sampling=sampling, max_tokens=LENGTH,
    )  # fmt: skip
    accepted = sum(step.n_accepted for step in got.steps)
    assert accepted > LENGTH // 3 if kind == "oracle" else accepted < LENGTH // 20
    pair.assert_same(target, OPENINGS[0], expected, got, sampling)
