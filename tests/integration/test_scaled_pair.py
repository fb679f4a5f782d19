"""A scaled model says what the small one says: every row agrees, so text, acceptance and cache behaviour do."""

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize

from localspec.heads.head_file import Kind, write_head
from localspec.models.gguf.header import read_header
from tests.heads.reference import FACTS, random_weights, storyteller_shape
from tests.integration import pair
from tests.integration.heads import opened_head
from tests.weights.scaled import QUANTS, SHAPES, Shape, main, write_scaled


@pytest.mark.parametrize("which", ["target", "draft"])
def test_rows_agree(f32_pair: dict[str, Path], tmp_path: Path, which: str) -> None:
    """The small model in F32 and the same in a wider, deeper shape: logits to 1e-3 over forty greedy tokens."""
    scaled = tmp_path / "scaled.gguf"
    write_scaled(f32_pair[which], scaled, Shape(width=320, layers=10, heads=6, kv_heads=2, ff=768), "F32")
    with pair.backend(f32_pair[which]) as small, pair.backend(scaled) as large:
        assert large.model.n_bytes > 2 * small.model.n_bytes
        tokens = small.model.tokenize(pair.OPENINGS[0], add_bos=True)
        for _ in range(40):
            rows = [backend.prefill(tokens, lambda: False).logits(0).copy() for backend in (small, large)]
            assert np.abs(rows[0] - rows[1]).max() <= 1e-3
            tokens.append(int(rows[0].argmax()))


def test_a_real_shape_says_what_the_small_one_says(tmp_path: Path) -> None:
    """The bundled draft, in Q8_0 as it is, and in the 150M shape in which tables have it: one greedy text."""
    scaled = tmp_path / "scaled.gguf"
    write_scaled(pair.DRAFT, scaled, SHAPES["150m"], "Q8_0")
    with pair.backend(pair.DRAFT) as small, pair.backend(scaled) as large:
        assert large.model.n_bytes > 100 * small.model.n_bytes
        expected = pair.plain(small, max_tokens=64)
        got = pair.plain(large, max_tokens=64)
        pair.assert_same(small, pair.OPENINGS[0], expected, got, pair.GREEDY)


@pytest.mark.parametrize("quant", QUANTS)
def test_every_quantisation_that_is_offered_can_be_written(quant: str) -> None:
    kind = gguf.GGMLQuantizationType[quant]
    rows = np.linspace(-1.0, 1.0, 64, dtype=np.float32).reshape(2, 32)
    assert np.abs(dequantize(quantize(rows, kind), kind) - rows).max() < 0.1
    assert ("ALL_F32" if quant == "F32" else f"MOSTLY_{quant}") in gguf.LlamaFileType.__members__


def test_a_quantisation_that_cannot_be_written_is_named_beside_those_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "no.gguf"
    monkeypatch.setattr("sys.argv", ["scaled", str(pair.DRAFT), str(out), "--quant", "Q4_K_M"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "invalid choice: 'Q4_K_M'" in said
    assert all(quant in said for quant in QUANTS)
    assert not out.exists()


def test_refuses_a_shape_that_does_not_hold_the_model(f32_pair: dict[str, Path], tmp_path: Path) -> None:
    """More query heads than share a cache head, or a narrower width, cannot be embedded."""
    for shape in (Shape(320, 10, 4, 2, 768), Shape(128, 10, 6, 2, 768), Shape(320, 2, 6, 2, 768)):
        with pytest.raises(ValueError, match="small"):
            write_scaled(f32_pair["target"], tmp_path / "no.gguf", shape, "F32")


@pytest.mark.parametrize("kind", ["eagle3", "eagle1", "mtp", "medusa"])
def test_rows_of_a_head_agree(f32_pair: dict[str, Path], tmp_path: Path, kind: Kind) -> None:
    """A head on the scaled target guesses what the small one guesses on the small target, step by step."""
    shape = replace(storyteller_shape(kind), heads=3, kv_heads=1)
    large = Shape(width=320, layers=10, heads=6, kv_heads=2, ff=768)
    files = {"small": tmp_path / "small.gguf", "large": tmp_path / "large.gguf"}
    write_head(files["small"], shape, random_weights(shape), FACTS, read_header(f32_pair["target"]), "F32")
    write_scaled(files["small"], files["large"], large, "F32")
    targets = {"small": f32_pair["target"], "large": tmp_path / "target.gguf"}
    write_scaled(f32_pair["target"], targets["large"], large, "F32")
    rows = {}
    for size, file in files.items():
        with opened_head(targets[size], file) as (target, head):
            target.prefill(range(100, 130), lambda: False)
            rows[size] = [head.prefill([*range(100, 130), 7], lambda: False).logits(0).copy()]
            rows[size] += [head.extend([30 + i], [i - 1]).logits(i).copy() for i in range(4)]
    for one, other in zip(rows["small"], rows["large"], strict=True):
        is_finite = np.isfinite(one)
        assert np.array_equal(np.isfinite(other), is_finite)
        assert np.abs(one[is_finite] - other[is_finite]).max() <= 1e-3
