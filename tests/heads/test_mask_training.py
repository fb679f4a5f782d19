"""The script that trains the bundled masks: its network against numpy, and a run that was ended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from localspec.heads.mask_file import MASK_EMBEDDING
from scripts.storyteller.mask_tokens import MaskNetwork, MaskRecipe, arrays, load_target, taught, updates
from tests.heads.masks import mask_rows, random_masks
from tests.heads.reference import TARGET, read_weights

pytestmark = pytest.mark.training

RECIPE = MaskRecipe(masks=3, rank=8, updates=3, batch=2, anchors=4, warmup=1)


def test_the_network_computes_what_the_reference_computes() -> None:
    """Masks behind several places of one text, each chain by itself."""
    weights = random_masks(3, 8)
    network = MaskNetwork(load_target(TARGET), RECIPE)
    for name, parameter in zip(arrays(network), network.trained(), strict=True):
        parameter.data.copy_(torch.from_numpy(weights[name]))
    tokens = np.random.default_rng(0).integers(3, 4096, 24)
    with torch.no_grad():
        told, guessed = network(torch.from_numpy(tokens)[None], torch.tensor([[5, 19]]))
    target = read_weights(TARGET)
    for index, anchor in enumerate((5, 19)):
        expected = mask_rows(target, weights, tokens[: anchor + 1].tolist(), 3)
        assert np.abs(guessed[0, index].numpy() - expected).max() < 1e-3
    wanted = taught(told, torch.tensor([[5, 19]]), 3)
    assert torch.equal(wanted[0, 0], told[0, 6:9])


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """All weights are trained; a finished run is not repeated."""
    target = load_target(TARGET)
    tokens = np.random.default_rng(0).integers(3, 4096, (4, 48)).astype(np.uint16)
    network = MaskNetwork(target, RECIPE)
    fresh = {name: array.copy() for name, array in arrays(network).items()}
    assert list(updates(network, tokens, RECIPE, tmp_path, lambda _: None)) == [3]
    trained = arrays(network)
    assert all(not np.array_equal(trained[name], fresh[name]) for name in fresh)
    assert MASK_EMBEDDING in fresh
    again = MaskNetwork(target, RECIPE)
    assert not list(updates(again, tokens, RECIPE, tmp_path, lambda _: None))
    assert all(np.array_equal(array, trained[name]) for name, array in arrays(again).items())
