"""What a round weighs, as docs/edge-and-cloud.md tells it."""

from pathlib import Path

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.remote.messages import Result, SentDist, ToEdge, ToVerifier, Verify, encode, packed, quantised

PAGE = Path(__file__).parents[2] / "docs" / "edge-and-cloud.md"
IDS = tuple(range(100_000, 148_000, 6_000))  # of a large vocabulary
PLACE = (1000, 3000, 2**63)  # round, base, digest


def law(m: int) -> SentDist:
    """Return the law of `m` tokens, as it is sent."""
    probs = np.arange(1.0, m + 1)
    return SentDist.of(quantised(Distribution.of(np.arange(1000, 1000 + m, dtype=np.int32), probs)))


STANDS = Result(1000, 5, 77_777, 3006, 45_000)
CHANCES = packed(quantised(Distribution.of(np.arange(8, dtype=np.int32), np.ones(8))).probs)
ROUNDS: dict[str, tuple[ToVerifier, ToEdge]] = {
    "`coupled`, `ids`": (Verify(*PLACE, IDS), STANDS),
    "`coupled`, `ids`, a tree": (Verify(*PLACE, IDS, (0, 0, 1, 1, 2, 2, 3, 3)), STANDS),
    "`scalar-q`": (Verify(*PLACE, IDS, (), (77_777,), CHANCES), STANDS),
    "`sparse-q`, distributions of 40 tokens": (Verify(*PLACE, IDS, laws=(law(40),) * 8, draw="iid"), STANDS),
    "`laws`, of 40 tokens": (Verify(*PLACE, IDS), Result(1000, 0, None, 3006, 45_000, "", (law(40),) * 9)),
}


@pytest.mark.parametrize("mode", ROUNDS)
def test_the_page_has_the_bytes_of_a_round(mode: str) -> None:
    up, down = map(encode, ROUNDS[mode])
    text = f"| {mode} | {len(up)} | {len(down)}"
    assert text in PAGE.read_text(encoding="utf-8"), text


def test_a_rejection_brings_one_law() -> None:
    weight = len(encode(Result(1000, 5, None, 3006, 45_000, "", (law(40),))))
    assert f"after a rejection {weight} |" in PAGE.read_text(encoding="utf-8")
