"""Training: a head learns, a killed run ends as one that was not killed, and damaged checkpoints are one error."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from localspec.errors import IntegrityError, ResourceError, UsageError
from localspec.heads.head_file import HeadShape, Kind
from localspec.heads.network import Network, fresh_weights
from localspec.heads.text_shards import Text
from localspec.heads.training import Trainer, TrainingRecipe

pytestmark = pytest.mark.training

KINDS: tuple[Kind, ...] = ("eagle3", "eagle1", "mtp", "medusa")
VOCAB, WIDTH = 24, 32
RECIPE = TrainingRecipe(updates=12, batch=2, pairs=16, unrolled=2, rate=1e-2, token_weight=1.0)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """One thread, so that sums are added in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Toy:
    """A target whose next token is 5 x + 3 modulo 24: its state is a row of its output matrix, scaled."""

    def __init__(self, kind: Kind, *, has_states: bool = True) -> None:
        rng = np.random.default_rng(0)
        self.shape = HeadShape(
            kind=kind, d=WIDTH, heads=2, kv_heads=1, head_width=16, ff=64, vocab=VOCAB, n_out=VOCAB,
            target_width=WIDTH, context=64, layers=(0, 1, 2) if kind == "eagle3" else (), norm_before_fc=True,
            guesses=4 if kind == "medusa" else 0,
        )  # fmt: skip
        self.has_states = has_states
        self.output = rng.standard_normal((VOCAB, WIDTH)).astype(np.float32)
        self.embedding = rng.standard_normal((VOCAB, WIDTH)).astype(np.float32)
        self.layers = rng.standard_normal((VOCAB, 3 * WIDTH)).astype(np.float32)

    def texts(self, seeds: Sequence[int], length: int = 40) -> list[Text]:
        found = []
        for seed in seeds:
            tokens = [seed % VOCAB]
            while len(tokens) < length:
                tokens.append((5 * tokens[-1] + 3) % VOCAB)
            after = [(5 * token + 3) % VOCAB for token in tokens]
            states = self.output[after].astype(np.float16)
            is_eagle = self.shape.kind == "eagle3"
            features = self.layers[tokens].astype(np.float16) if is_eagle else states
            found.append(Text(np.array(tokens, np.int32), features, states if is_eagle and self.has_states else None))
        return found

    def trainer(self, folder: Path, recipe: TrainingRecipe = RECIPE, seeds: Sequence[int] = range(VOCAB)) -> Trainer:
        fresh = fresh_weights(self.shape, self.output, np.ones(WIDTH, np.float32), recipe.seed)
        network = Network(self.shape, fresh | {"token_embd.weight": self.embedding})
        rows = np.arange(VOCAB)
        return Trainer(network, rows, self.output, self.texts(seeds), recipe, folder / "checkpoint")


def weights(trainer: Trainer) -> dict[str, Any]:
    return trainer.network.arrays()


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize(("kind", "has_states"), [(kind, True) for kind in KINDS] + [("eagle3", False)])
def test_a_head_learns_what_the_target_says_next(tmp_path: Path, kind: Kind, has_states: bool, bf16: bool) -> None:
    toy = Toy(kind, has_states=has_states)
    trainer = toy.trainer(tmp_path, replace(RECIPE, updates=150, unrolled=3, bf16=bf16))
    held = toy.texts(range(VOCAB), 30)
    before = trainer.accepted(held)
    reports = list(trainer.run(held, report_every=50, measure_every=100))
    after = reports[-1].accepted
    assert len(before) == len(after) == 4
    assert list(after) == sorted(after, reverse=True)
    assert before[0] < 0.5
    assert after[2] > 0.9
    assert [report.updates for report in reports] == [50, 100, 150]
    losses = [report.loss for report in reports if report.loss is not None]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3
    assert reports[-1].seconds_left == 0 < reports[0].seconds_left
    assert [len(report.accepted) for report in reports] == [0, 4, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_ends_as_one_that_was_not_killed(tmp_path: Path, kind: Kind) -> None:
    toy = Toy(kind)
    whole = toy.trainer(tmp_path)
    for _ in range(RECIPE.updates):
        whole.update()
    first = toy.trainer(tmp_path)
    for _ in range(5):
        first.update()
    first.save()
    first.update()  # lost
    second = toy.trainer(tmp_path)
    assert second.done == 5
    list(second.run([]))
    assert second.done == RECIPE.updates
    for name, expected in weights(whole).items():
        assert (weights(second)[name] == expected).all(), name
    assert [report.loss for report in toy.trainer(tmp_path).run([])] == [None]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_only_held_out_tokens_that_follow_each_other_count(tmp_path: Path) -> None:
    """The first k drafts count together: a text that breaks the rule at every fourth token has no run of four."""
    toy = Toy("eagle3")
    trainer = toy.trainer(tmp_path, replace(RECIPE, updates=150, unrolled=3))
    list(trainer.run([]))
    held = toy.texts([1], 41)
    broken = held[0].tokens.copy()
    broken[::4] = (broken[::4] + 1) % VOCAB
    shares = trainer.accepted([replace(held[0], tokens=broken)])
    assert shares[0] > 0.3
    assert shares[3] == 0.0


def test_only_the_targets_own_tokens_count(tmp_path: Path) -> None:
    """A prompt that breaks the rule is no fault of the head."""
    toy = Toy("eagle3")
    trainer = toy.trainer(tmp_path, replace(RECIPE, updates=150, unrolled=3))
    list(trainer.run([]))
    (whole,) = toy.texts([1], 41)
    own = np.arange(41) > 20
    tokens = np.where(own | (np.arange(41) % 4 > 0), whole.tokens, (whole.tokens + 1) % VOCAB).astype(np.int32)
    counted, marked = (trainer.accepted([replace(whole, tokens=tokens, own=mark)]) for mark in (None, own))
    assert marked[3] > counted[3] > 0
    assert trainer.accepted([replace(whole, own=np.zeros(41, np.bool_))]) == (0.0,) * 4


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_one_error(tmp_path: Path) -> None:
    toy = Toy("mtp")
    trainer = toy.trainer(tmp_path)
    trainer.update()
    trainer.save()
    for recipe, seeds in ((replace(RECIPE, seed=1), range(VOCAB)), (RECIPE, range(3))):
        with pytest.raises(UsageError, match="other options") as caught:
            toy.trainer(tmp_path, recipe, seeds)
        assert "Remove" in caught.value.hint
    path = tmp_path / "checkpoint"
    whole = path.read_bytes()
    foreign = tmp_path / "foreign"
    torch.save({"weights": {}}, foreign)
    for content in (b"", whole[: len(whole) // 2], b"text\n", foreign.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(IntegrityError, match="damaged") as failure:
            toy.trainer(tmp_path)
        assert "Remove" in failure.value.hint


def test_a_checkpoint_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    trainer = Toy("mtp").trainer(tmp_path / "none")
    with pytest.raises(ResourceError, match="cannot be written"):
        trainer.save()
