"""A DFlash head on the real llama.cpp, beside the same arithmetic in numpy."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.marginals import DFlashBackend
from localspec.backends.tap import States
from localspec.engine.draft import Draw
from localspec.engine.protocols import Shape
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import DFlash
from localspec.models.gguf.head import head_info
from localspec.models.gguf.header import read_header
from localspec.settings.request import Sampling
from localspec.trees.eagle2 import Eagle2
from localspec.trees.static import Chain
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from tests.heads.dflash import BLOCK_SIZE, block_rows, write_random_dflash
from tests.integration import pair
from tests.integration.gguf_models import never
from tests.integration.heads import assert_rows, opened_head, told_states

PROMPT = tuple(range(100, 120))
N = BLOCK_SIZE - 1
WARM = Sampling(temperature=0.8, seed=3)


@dataclass
class Rig:
    """A target with F32 weights, a head on it, and all that the target told, by position."""

    file: Path
    target_file: Path
    target: LlamaBackend
    head: DFlashBackend
    told: dict[int, States]

    def expected(self, n: int, token: int, n_guesses: int = N) -> np.ndarray:
        """Return the block's rows after `n` committed tokens and the pending one."""
        states = np.stack([self.told[position] for position in range(n)])
        return block_rows(self.file, self.target_file, states, 0, token, n_guesses)


@pytest.fixture
def rig(tmp_path: Path, f32_pair: dict[str, Path]) -> Iterator[Rig]:
    file = write_random_dflash(tmp_path / "head.gguf")
    with opened_head(f32_pair["target"], file) as (target, backend):
        assert isinstance(backend, DFlashBackend)
        told = told_states(target, backend.model.traits.tap, backend)
        yield Rig(file, f32_pair["target"], target, backend, told)


def test_the_file_says_what_the_head_reads(tmp_path: Path) -> None:
    info = head_info(read_header(write_random_dflash(tmp_path / "head.gguf")))
    assert info is not None
    assert (info.kind, info.target_width, info.target_layers, info.n_guesses) == ("dflash", 192, (2, 4, 7), N)
    assert info.borrows


def test_rows_are_those_of_the_block_by_depth(rig: Rig) -> None:
    """Whatever was drafted: each guess knows its place only. A tree takes no pass of the head."""
    rig.target.prefill(PROMPT, never)
    rows = [rig.head.prefill((*PROMPT, 7), never).logits(0).copy()]
    evaluated = rig.head.evaluated
    tree = rig.head.extend([30, 40, 31, 41], [-1, -1, 0, 1])
    rows += [tree.logits(node).copy() for node in range(4)]
    rows.append(rig.head.extend([32], [3]).logits(4).copy())
    expected = rig.expected(len(PROMPT), 7)
    for row, depth in zip(rows, (0, 1, 1, 2, 2, 3), strict=True):
        assert_rows(row, expected[depth])
    assert rig.head.evaluated == evaluated
    assert rig.head.capabilities.n_guesses == N


def test_after_acceptance_and_after_the_text_went_back(rig: Rig) -> None:
    rig.target.prefill(PROMPT, never)
    rig.head.prefill((*PROMPT, 7), never)
    rig.head.extend([30], [-1])
    rig.target.extend([7, 30, 31], [-1, 0, 1])
    rig.target.keep((0, 1))
    rig.head.keep((0,))
    row = rig.head.prefill((*PROMPT, 7, 30, 50), never).logits(0)
    assert_rows(row, rig.expected(len(PROMPT) + 2, 50)[0])
    edited = (*PROMPT[:8], *range(400, 430))
    rig.target.prefill(edited, never)
    row = rig.head.prefill((*edited, 7), never).logits(0)
    assert_rows(row, rig.expected(len(edited), 7)[0])
    assert rig.head._known.first == rig.head._known.end, "states are dropped once the cache has them"


def test_the_block_is_shorter_where_the_context_ends(rig: Rig) -> None:
    n_ctx = rig.head.capabilities.n_ctx
    text = tuple(int(token) for token in np.random.default_rng(0).integers(100, 4000, n_ctx - 3))
    rig.target.prefill(text, never)
    row = rig.head.prefill((*text, 7), never).logits(0)
    assert_rows(row, rig.expected(len(text), 7, 2)[0])


@pytest.mark.parametrize(
    ("policy", "shape", "sampling", "draw"),
    [
        (Chain(), Shape(8, 8, 1), pair.GREEDY, Draw.FIXED),
        (Eagle2(12), Shape(12, 8, 12), pair.GREEDY, Draw.FIXED),
        (Chain(), Shape(8, 8, 1), WARM, Draw.COUPLED),
    ],
    ids=["chain", "tree", "coupled"],
)
def test_the_text_is_the_targets(
    rig: Rig, policy: Chain | Eagle2, shape: Shape, sampling: Sampling, draw: Draw
) -> None:
    """Chains are no longer than the block, whatever -k says."""
    rule = CoupledVerifier() if draw is Draw.COUPLED else MatchVerifier()
    expected = pair.plain(rig.target, rule, sampling=sampling, max_tokens=60)
    drafter = DFlash(rig.head, Sampler(sampling), policy, never)
    got = pair.generate(rig.target, drafter, rule, sampling=sampling, shape=shape, draw=draw, max_tokens=60)
    assert max(step.draft.depth for step in got.steps) == N
    pair.assert_same(rig.target, pair.OPENINGS[0], expected, got, sampling)
