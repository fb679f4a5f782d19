"""A scaled model says what the small one says: every row agrees, so text, acceptance and cache behaviour do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts.make_scaled_pair import Shape, write_scaled
from tests.integration import pair


@pytest.mark.parametrize("which", ["target", "draft"])
def test_rows_agree(f32_pair: dict[str, Path], tmp_path: Path, which: str) -> None:
    """The small model in F32 and the same in a wider, deeper shape: logits to 1e-3 over forty greedy tokens."""
    scaled = tmp_path / "scaled.gguf"
    write_scaled(f32_pair[which], scaled, Shape(width=320, layers=10, heads=6, kv_heads=2, ff=768), "F32")
    with pair.backend(f32_pair[which]) as small, pair.backend(scaled) as large:
        assert large.model.n_params > 2 * small.model.n_params
        tokens = small.model.tokenize(pair.OPENINGS[0], add_bos=True)
        for _ in range(40):
            rows = [backend.prefill(tokens, lambda: False).logits(0).copy() for backend in (small, large)]
            assert np.abs(rows[0] - rows[1]).max() <= 1e-3
            tokens.append(int(rows[0].argmax()))


def test_refuses_a_shape_that_does_not_hold_the_model(f32_pair: dict[str, Path], tmp_path: Path) -> None:
    """More query heads than share a cache head, or a narrower width, cannot be embedded."""
    for shape in (Shape(320, 10, 4, 2, 768), Shape(128, 10, 6, 2, 768), Shape(320, 2, 6, 2, 768)):
        with pytest.raises(ValueError, match="small"):
            write_scaled(f32_pair["target"], tmp_path / "no.gguf", shape, "F32")
