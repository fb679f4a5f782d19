"""The draft heads and mask tokens that come with storyteller: they change no text, and most first guesses are right."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.head_backend import HeadBackend
from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.marginals import MarginalBackend
from localspec.backends.tap import StateListener, States
from localspec.engine.draft import Draw
from localspec.engine.protocols import TreePolicy
from localspec.engine.sampling import Sampler
from localspec.heads.mask_file import with_masks
from localspec.methods.draft_model import DraftModel
from localspec.methods.mask_tokens import MaskTokens
from localspec.models.gguf.draft_kinds import KINDS, MASKS
from localspec.models.gguf.header import read_header
from localspec.models.store import bundled_head
from localspec.settings.request import Sampling
from localspec.trees.eagle2 import Eagle2
from localspec.trees.static import Chain
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from tests.integration import pair
from tests.integration.gguf_models import never
from tests.integration.heads import opened_head
from tests.integration.pair import GREEDY, OPENINGS

FILES = {kind: path for kind in KINDS if (path := bundled_head("storyteller", kind)) is not None}
HEADS = {kind: path for kind, path in FILES.items() if kind != MASKS}
SEEDED = Sampling(temperature=0.8, seed=11)
LENGTH = 120
POLICIES: tuple[TreePolicy, ...] = (Chain(), Eagle2(16))


@dataclass
class Opened:
    """The target with F32 weights, and a bundled head on it."""

    target: LlamaBackend
    head: HeadBackend | MarginalBackend

    def run(self, policy: TreePolicy, sampling: Sampling, prompt: str) -> pair.Run:
        """Draft with the head; trees are chosen by coupled noise or, at temperature 0, by probability."""
        is_greedy = sampling.temperature == 0
        return pair.generate(
            self.target,
            DraftModel(self.head, Sampler(sampling if not is_greedy else Sampling(temperature=1.0)), policy, never),
            MatchVerifier() if is_greedy else CoupledVerifier(),
            prompt=prompt,
            shape=policy.shape(4),
            draw=Draw.FIXED if is_greedy else Draw.COUPLED,
            sampling=sampling,
            max_tokens=LENGTH,
        )


@pytest.fixture(scope="module", params=HEADS)
def opened(request: pytest.FixtureRequest, f32_pair: dict[str, Path]) -> Iterator[Opened]:
    with opened_head(f32_pair["target"], HEADS[request.param]) as (target, head):
        yield Opened(target, head)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("prompt", OPENINGS[:2])
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["T=0", "T=0.8"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_bundled_head_changes_no_text(opened: Opened, policy: TreePolicy, sampling: Sampling, prompt: str) -> None:
    rule = MatchVerifier() if sampling is GREEDY else CoupledVerifier()
    expected = pair.plain(opened.target, rule, prompt=prompt, sampling=sampling, max_tokens=LENGTH)
    got = opened.run(policy, sampling, prompt)
    assert accepted(got) > 0.4
    pair.assert_same(opened.target, prompt, expected, got, sampling)


@pytest.fixture(scope="module")
def targets(
    f32_pair: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LlamaBackend, LlamaBackend]]:
    """The target with F32 weights, and the same with the mask tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(tmp_path_factory.mktemp("masks")))
        masks = read_header(FILES[MASKS])
        path = with_masks(read_header(f32_pair["target"]), masks)
    options = replace(pair.EXACT, n_masks=4)
    with pair.backend(f32_pair["target"]) as plain, pair.backend(path, options) as masked:
        yield plain, masked


@pytest.mark.thinned(2)
@pytest.mark.parametrize("prompt", OPENINGS[:2])
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["T=0", "T=0.8"])
@pytest.mark.parametrize("policy", [Chain(), Eagle2(6)], ids=lambda policy: policy.name)
def test_the_bundled_mask_tokens_change_no_text(
    targets: tuple[LlamaBackend, LlamaBackend], policy: TreePolicy, sampling: Sampling, prompt: str
) -> None:
    plain, masked = targets
    is_greedy = sampling.temperature == 0
    rule = MatchVerifier() if is_greedy else CoupledVerifier()
    expected = pair.plain(plain, rule, prompt=prompt, sampling=sampling, max_tokens=LENGTH)
    got = pair.generate(
        masked,
        MaskTokens(masked.model.masks, Sampler(sampling, temperature=1.0), policy),
        rule,
        prompt=prompt,
        shape=MaskTokens.pass_shape(policy.shape(4)),
        draw=Draw.FIXED if is_greedy else Draw.COUPLED,
        sampling=sampling,
        max_tokens=LENGTH,
    )
    assert accepted(got) > 0.4
    pair.assert_same(plain, prompt, expected, got, sampling)


def test_a_head_that_is_told_other_states_accepts_clearly_less(opened: Opened) -> None:
    """Its guesses come from the states, and not from the tokens alone."""
    right = accepted(opened.run(Chain(), GREEDY, OPENINGS[2]))
    order = np.random.default_rng(0).permutation(192)

    def told(start: int, states: States) -> None:
        mixed = states.reshape(len(states), -1, 192)[:, :, order].reshape(states.shape)
        opened.head._receive(start, mixed)

    opened.target.listen(StateListener(opened.head.model.traits.tap, told))
    opened.head.truncate(0)
    wrong = accepted(opened.run(Chain(), GREEDY, OPENINGS[3]))
    opened.target.listen(StateListener(opened.head.model.traits.tap, opened.head._receive))
    assert wrong < 0.6 * right


def accepted(run: pair.Run) -> float:
    return float(np.mean([step.n_accepted for step in run.steps]))
