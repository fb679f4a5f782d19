"""The PyTorch heads compute the same as the reference: features, true pairs, and each unrolled step."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from localspec.heads.head_file import Kind
from localspec.heads.network import Network, fresh_weights
from tests.heads.reference import Reference, medusa_rows, random_weights, storyteller_shape, write_random_head

pytestmark = pytest.mark.training

KINDS: tuple[Kind, ...] = ("eagle3", "eagle1", "mtp")


@pytest.mark.parametrize("kind", KINDS)
def test_every_unrolled_step_is_the_references_chain(kind: Kind) -> None:
    """Step j at pair i: the true pairs 0 to i - j, then j drafted ones, each with the vector of the one before it."""
    shape, n, steps = storyteller_shape(kind), 9, 4
    weights = random_weights(shape, 3)
    rng = np.random.default_rng(4)
    tokens = rng.integers(3, shape.vocab, n)
    features = rng.standard_normal((n, shape.feature_width)).astype(np.float32)
    network = Network(shape, weights)
    with torch.no_grad():
        found = network.unroll(torch.as_tensor(tokens)[None], torch.as_tensor(features)[None], steps)
    for pair in range(n):
        for step in range(min(steps, pair + 1)):
            reference = Reference(shape, weights)
            true = pair - step + 1
            vectors = reference.encode(features[:true].astype(float))
            logits, passed = reference.feed(tokens[:true].tolist(), vectors, range(-1, true - 1))
            for row in range(true, pair + 1):
                logits, passed = reference.feed([int(tokens[row])], passed[-1:], [row - 1])
            with torch.no_grad():
                ours = network.logits(found[step][0][0, pair]).numpy()
            assert np.abs(ours - logits[-1][reference.d2t]).max() < 1e-4
            assert np.abs(found[step][1][0, pair].numpy() - passed[-1]).max() < 1e-4


def test_medusa_heads_are_the_references(tmp_path: Path) -> None:
    """Step j at pair i is the guess for the token j + 1 places behind the one that follows the state of pair i - j."""
    shape, weights = storyteller_shape("medusa"), random_weights(storyteller_shape("medusa"), 3)
    path = write_random_head(tmp_path / "head.gguf", "medusa", seed=3)
    features = np.random.default_rng(4).standard_normal((5, shape.d)).astype(np.float32)
    network = Network(shape, weights)
    with torch.no_grad():
        found = network.unroll(torch.zeros(1, 5, dtype=torch.int64), torch.as_tensor(features)[None], shape.guesses)
        rows = [network.logits(normed)[0].numpy() for normed, _ in found]
    d2t = np.asarray(weights["d2t"], int)
    for pair in range(5):
        for step in range(min(shape.guesses, pair + 1)):
            expected = medusa_rows(path, features[pair - step].astype(float))[step, d2t]
            assert np.abs(rows[step][pair] - expected).max() < 1e-4


def test_a_fresh_medusa_head_guesses_as_the_targets_own_output() -> None:
    shape, rng = storyteller_shape("medusa"), np.random.default_rng(0)
    output = rng.standard_normal((shape.n_out, shape.d)).astype(np.float32)
    norm = rng.uniform(1, 3, shape.d).astype(np.float32)
    network = Network(shape, fresh_weights(shape, output, norm, seed=1))
    state = rng.standard_normal(shape.d)
    state = (norm * state / np.sqrt((state**2).mean())).astype(np.float32)
    with torch.no_grad():
        found = network.unroll(torch.zeros(1, 1, dtype=torch.int64), torch.as_tensor(state)[None, None], 1)
        row = network.logits(found[0][0])[0, 0].numpy()
    assert np.corrcoef(row, output @ state)[0, 1] > 0.9999
    assert abs(row.std() / (output @ state).std() - 1) < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_fresh_weights_begin_with_what_the_target_has(kind: Kind) -> None:
    shape = storyteller_shape(kind)
    rng = np.random.default_rng(0)
    output = rng.standard_normal((shape.n_out, shape.d)).astype(np.float32)
    norm = rng.standard_normal(shape.d).astype(np.float32)
    weights = fresh_weights(shape, output, norm, seed=1)
    assert weights.keys() == shape.tensors().keys() - {"token_embd.weight", "d2t"}
    assert all(weights[name].shape == shape.tensors()[name] for name in weights)
    assert (weights["output.weight"] == output).all()
    assert (weights["output_norm.weight"] == norm).all()
    other = fresh_weights(shape, output, norm, seed=2)
    assert (weights["blk.0.attn_q.weight"] != other["blk.0.attn_q.weight"]).any()


def test_only_what_the_target_does_not_own_is_trained() -> None:
    shapes = (storyteller_shape("eagle3"), storyteller_shape("mtp"))
    eagle, mtp = (Network(shape, random_weights(shape)) for shape in shapes)
    assert eagle.weights.keys() - eagle.trained.keys() == {"token_embd.weight", "d2t"}
    assert mtp.weights.keys() - mtp.trained.keys() == {"token_embd.weight", "output.weight", "output_norm.weight"}
    assert eagle.arrays().keys() == eagle.trained.keys()
