"""A Medusa head on the real llama.cpp, beside the same arithmetic in numpy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from localspec.backends import growing_context
from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.marginals import MedusaBackend
from localspec.backends.tap import PROMPT_STATES, States
from localspec.engine.draft import Draw
from localspec.engine.protocols import Shape
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import Medusa
from localspec.models.gguf.head import head_info
from localspec.models.gguf.header import read_header
from localspec.settings.request import Sampling
from localspec.trees.dyspec import DySpec
from localspec.trees.eagle2 import Eagle2
from localspec.trees.static import Chain, Static
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from tests.heads.reference import medusa_rows, read_weights, storyteller_shape, write_random_head
from tests.integration import pair
from tests.integration.gguf_models import EXACT, never
from tests.integration.heads import TOLERANCE, assert_rows, head_on, opened_head, told_states

PROMPT = tuple(range(100, 120))
N = storyteller_shape("medusa").guesses
WARM = Sampling(temperature=0.8, seed=3)


@dataclass
class Rig:
    """A target with F32 weights, a head on it, and all that the target told, by position."""

    file: Path
    output: np.ndarray  # of the target
    target: LlamaBackend
    head: MedusaBackend
    told: dict[int, States]

    def assert_guesses(self, backend: MedusaBackend, text: Sequence[int], pending: int = 7) -> None:
        rows = [backend.prefill((*text, pending), never).logits(0).copy()]
        chain = backend.extend([30] * (N - 1), range(-1, N - 2))
        rows += [chain.logits(node).copy() for node in range(N - 1)]
        backend.keep(())
        assert_rows(np.stack(rows), medusa_rows(self.file, self.told[len(text) - 1].astype(float)))


@pytest.fixture
def rig(tmp_path: Path, f32_pair: dict[str, Path]) -> Iterator[Rig]:
    file = write_random_head(tmp_path / "head.gguf", "medusa")
    output = read_weights(f32_pair["target"])["output.weight"]
    with opened_head(f32_pair["target"], file) as (target, backend):
        assert isinstance(backend, MedusaBackend)
        yield Rig(file, output, target, backend, told_states(target, backend.model.traits.tap, backend))


def test_the_file_says_what_the_head_reads(tmp_path: Path) -> None:
    info = head_info(read_header(write_random_head(tmp_path / "head.gguf", "medusa")))
    assert info is not None
    assert (info.kind, info.target_width, info.target_layers, info.n_guesses) == ("medusa", 192, (), N)
    assert info.borrows


def test_all_guesses_come_from_the_state_of_the_last_committed_token(rig: Rig) -> None:
    """Whatever the pending token is; and that state is the one which the target's output matrix reads."""
    logits = rig.target.prefill(PROMPT, never).logits(0).copy()
    assert np.abs(rig.output @ rig.told[len(PROMPT) - 1] - logits).max() < TOLERANCE
    rig.assert_guesses(rig.head, PROMPT, pending=7)
    rig.assert_guesses(rig.head, PROMPT, pending=8)
    assert rig.head.capabilities.n_guesses == N


def test_a_tree_takes_no_pass(rig: Rig) -> None:
    rig.target.prefill(PROMPT, never)
    rig.head.prefill((*PROMPT, 7), never)
    evaluated = rig.head.evaluated
    tree = rig.head.extend([30, 40, 31, 41], [-1, -1, 0, 1])
    expected = medusa_rows(rig.file, rig.told[len(PROMPT) - 1].astype(float))
    for node, depth in enumerate((1, 1, 2, 2)):
        assert_rows(tree.logits(node), expected[depth])
    assert rig.head.evaluated == evaluated
    rig.head.check()


def test_after_a_part_of_the_draft_was_accepted_and_after_the_text_went_back(rig: Rig) -> None:
    rig.target.prefill(PROMPT, never)
    rig.head.prefill((*PROMPT, 7), never)
    rig.head.extend([30, 31], [-1, 0])
    rig.target.extend([7, 30, 31], [-1, 0, 1])
    rig.target.keep((0, 1))
    rig.head.keep((0,))
    rig.assert_guesses(rig.head, (*PROMPT, 7, 30), pending=50)
    for token in range(200, 230):  # passes that were not drafted
        rig.target.extend([token], [-1])
        rig.target.keep((0,))
    rig.assert_guesses(rig.head, (*PROMPT, 7, 30, *range(200, 230)))
    edited = (*PROMPT[:8], *range(400, 430))
    rig.target.prefill(edited, never)
    rig.assert_guesses(rig.head, edited)
    assert rig.head._known.first == rig.head._known.end - 1, "only the last state is kept"


def test_after_the_targets_context_grew(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer context keeps the states too."""
    monkeypatch.setattr(growing_context, "FIRST_CONTEXT", 32)
    monkeypatch.setattr(growing_context, "SMALL_MODEL", 0)
    with LlamaBackend(rig.target.model, EXACT) as target, head_on(target, rig.file) as backend:
        rig.told = told_states(target, backend.model.traits.tap, backend)
        target.prefill(PROMPT, never)
        rig.assert_guesses(backend, PROMPT)
        text = (*PROMPT, *range(200, 230))
        for token in text[len(PROMPT) :]:
            target.extend([token], [-1])
            target.keep((0,))
        assert target._growing.size == 64
        rig.assert_guesses(backend, text)


def test_a_long_prompt(rig: Rig) -> None:
    """With the logits of more rows than fit into a pass llama.cpp would end the process."""
    prompt = tuple(int(token) for token in np.random.default_rng(0).integers(100, 4000, 3 * PROMPT_STATES))
    rig.target.prefill(prompt, never)
    assert len(rig.told) == PROMPT_STATES
    rig.assert_guesses(rig.head, prompt)


@pytest.mark.parametrize(
    ("policy", "shape", "sampling", "draw"),
    [
        (Chain(), Shape(8, 8, 1), pair.GREEDY, Draw.FIXED),
        (Static((3, 2, 1)), Shape(15, 3, 6), pair.GREEDY, Draw.FIXED),
        (Eagle2(12), Shape(12, 8, 12), pair.GREEDY, Draw.FIXED),
        (DySpec(12), Shape(12, 8, 12), pair.GREEDY, Draw.FIXED),
        (Chain(), Shape(8, 8, 1), WARM, Draw.COUPLED),
        (DySpec(12), Shape(12, 8, 12), WARM, Draw.COUPLED),
    ],
    ids=["chain", "static", "eagle2", "dyspec", "coupled", "coupled-tree"],
)
def test_the_text_is_the_targets(
    rig: Rig, policy: Chain | Static | Eagle2 | DySpec, shape: Shape, sampling: Sampling, draw: Draw
) -> None:
    """Drafts are no deeper than there are guesses, whatever -k says."""
    rule = CoupledVerifier() if draw is Draw.COUPLED else MatchVerifier()
    expected = pair.plain(rig.target, rule, sampling=sampling, max_tokens=60)
    drafter = Medusa(rig.head, Sampler(sampling), policy, never)
    got = pair.generate(rig.target, drafter, rule, sampling=sampling, shape=shape, draw=draw, max_tokens=60)
    assert 2 <= max(step.draft.depth for step in got.steps) <= N
    pair.assert_same(rig.target, pair.OPENINGS[0], expected, got, sampling)
