"""What gating would cost: blocks whose tokens are easy for the draft are committed, and the target is not asked.

Guides of edge and cloud do that, and localspec does not offer it: docs/edge-and-cloud.md has these figures. They are
enumerated as those of the lossy rules are (test_approximate.py): the total variation of four tokens on the worst of
five toy models.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from localspec.engine.draft import Draft, Draw, Source, Verdict
from localspec.engine.protocols import Distributions, RandomSource
from localspec.remote.hard import is_unsure
from localspec.trees.static import Chain
from localspec.verify.token import TokenVerifier
from tests.exact.harness import OPEN, Setup, answers, target_answers, total_variation


@dataclass(frozen=True)
class Gate:
    """Commit a chain whose share of hard tokens is below `limit`; ask the target, by the token rule, about others."""

    limit: float
    name: ClassVar[str] = "gate"
    accepts: ClassVar[frozenset[Draw]] = frozenset({Draw.IID})
    trees: ClassVar[bool] = False
    is_lossless: ClassVar[bool] = False

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        n = len(draft)
        nodes = range(1, n + 1)
        hard = sum(is_unsure(int(draft.tokens[node]), draft.dist(node).belief) for node in nodes)
        if not n or hard >= self.limit * n:
            return TokenVerifier().verify(draft, dists, rng, position)
        return Verdict(tuple(range(1, n)), int(draft.tokens[n]), Source.ACCEPTED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "bias"),
    [
        (0.0, (0.0, 0.0, 0.0, 0.0)),
        (0.3, (1.0, 0.9203, 0.3954, 0.1614)),
    ],
    ids=["never", "guides"],
)
def test_the_bias_of_gating(limit: float, bias: tuple[float, float, float, float]) -> None:
    """Without a gate there is none, so the setup is not at fault."""
    measured = []
    for temperature in (0.0, 0.3, 1.0, 2.0):
        sampling = replace(OPEN, temperature=temperature)
        setups = [Setup(Gate(limit), Chain(), sampling=sampling, seed=seed) for seed in range(5)]
        measured.append(max(total_variation(answers(setup), target_answers(setup)) for setup in setups))
    print(f"gate below {limit}: total variation {', '.join(f'{tv:.4f}' for tv in measured)} at T = 0, 0.3, 1, 2")
    assert measured == pytest.approx(bias, abs=5e-4)
