"""The stages of the work, each a function of a `Place`: what it reads and leaves under the work folder.

base -> warm (a first draft, from the base) -> target -> generate -> draft -> export -> heads -> masks -> evaluate
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tokenizers import Tokenizer

from .chat import ChatCutter
from .data import Split, load_split, read_books, train_tokenizer
from .distill import Distiller, Recipe, start_from_teacher, train_draft
from .evaluate import acceptance, bits_per_byte, exit_acceptance, samples
from .export import export
from .features import Shard, book_rows, chat_rows, corpus_shard, load_shard, save_shard
from .generate import Manner, shard_rng, write_shard
from .heads import train_heads
from .mask_tokens import MaskRecipe, train_masks
from .model import DRAFT, TARGET, Llama, load_model
from .optim import Log, Schedule, Trainer
from .target import Mix, TargetTask, target_schedule, train_target

HELD_TEMPERATURES = (1.0, 0.8, 0.0)


@dataclass(frozen=True)
class Budget:
    """Steps of the runs and shards of generated text; these numbers made what ships."""

    base: int = 2827
    warm: int = 1000
    target: int = 1500
    draft: int = 3000
    shards: int = 12


BUDGET = Budget()


@dataclass(frozen=True)
class Place:
    """Where a run reads and writes, on what, and how long."""

    corpus: Path
    work: Path
    init: Path | None
    out: Path
    device: str
    bf16: bool
    seed: int
    budget: Budget
    log: Log

    @property
    def tokenizer_json(self) -> Path:
        return self.work / "tokenizer.json"

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer: the one in the work folder, the one of --init, or a new one."""
        if not self.tokenizer_json.exists():
            self.work.mkdir(parents=True, exist_ok=True)
            if self.init is not None:
                shutil.copyfile(self.init / "tokenizer.json", self.tokenizer_json)
            else:
                train_tokenizer(read_books(self.corpus, "train"), TARGET.vocab, self.tokenizer_json)
        return Tokenizer.from_file(str(self.tokenizer_json))

    def split(self, name: str) -> Split:
        """Read one half of the corpus."""
        return load_split(self.corpus, name, self.tokenizer())

    def base(self) -> Llama:
        """Load the model that the target starts from."""
        return load_model(self.init or self.work / "base", self.device)

    def target(self) -> Llama:
        """Load the trained target."""
        return load_model(self.work / "target", self.device)


def base(place: Place) -> None:
    """Train a target from nothing on running text alone."""
    model = Llama(TARGET)
    model.reset(place.seed)
    schedule = Schedule(place.budget.base, matrix_lr=0.02, other_lr=3e-3)
    _train(place, model.to(place.device), Mix(lengths=(256,), chat=0.0), schedule, "base")


def target(place: Place) -> None:
    """Train the base on: books and chats."""
    schedule = target_schedule(place.budget.target, matrix_lr=0.014, other_lr=2e-3)
    _train(place, place.base(), Mix(), schedule, "target")


def _train(place: Place, model: Llama, mix: Mix, schedule: Schedule, name: str) -> None:
    split = place.split("train")
    task = TargetTask(model, split, ChatCutter(split.books, place.tokenizer()), mix, place.bf16)
    trainer = Trainer(model, schedule, place.seed, place.work / f"{name}.pt")
    place.log(f"{name}: {model.size():,} parameters, {len(split.tokens):,} tokens of books, {schedule.steps} steps")
    train_target(task, trainer, place.split("valid"), place.work / name, place.log)


def _write(place: Place, model: Llama, split: Split, manner: Manner, *, index: int, folder: Path) -> Shard:
    """Let `model` write one shard, unless that is done already."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        chats = ChatCutter(split.books, place.tokenizer())
        save_shard(write_shard(model, split, chats, manner, shard_rng(place.seed, index)), folder)
        place.log(f"generate: {folder.parent.name}/{folder.name} written")
    return load_shard(folder)


def _held(place: Place, model: Llama, temperature: float, folder: Path) -> Shard:
    """Let `model` write from the held-out books' prompts at one temperature."""
    manner = Manner(rows=64, length=384, temperatures=(temperature,), shares=(1.0,))
    index = 900 + HELD_TEMPERATURES.index(temperature)
    return _write(place, model, place.split("valid"), manner, index=index, folder=folder / f"held-{temperature}")


def _read(place: Place, model: Llama, count: int, folder: Path) -> list[Shard]:
    """Run `model` over rows of the corpus: books and chats."""
    split = place.split("train")
    chats = ChatCutter(split.books, place.tokenizer())
    for index in range(count):
        path = folder / f"corpus-{index}"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            cut = chat_rows(chats, 128, 512, place.seed, index) if index % 3 == 2 else None
            rows = book_rows(split, 128, 512, place.seed, index) if cut is None else cut
            save_shard(corpus_shard(model, rows), path)
    return [load_shard(folder / f"corpus-{index}") for index in range(count)]


def warm(place: Place) -> None:
    """Distil a first draft from the base, to start the real one from."""
    teacher = place.base()
    folder = place.work / "shards-base"
    split = place.split("train")
    shards = [_write(place, teacher, split, Manner(), index=i, folder=folder / f"own-{i}") for i in range(3)]
    shards += _read(place, teacher, 3, folder)
    model = Llama(DRAFT).to(place.device)
    model.reset(place.seed)
    start_from_teacher(model, teacher)
    schedule = Schedule(place.budget.warm, matrix_lr=0.02, other_lr=3e-3, warmup=40)
    _distil(place, model, teacher, shards, recipe=Recipe(kl_share=1.0), schedule=schedule, name="warm")


def generate(place: Place) -> None:
    """Let the target write what the draft learns from, and what it is measured on."""
    model, split, folder = place.target(), place.split("train"), place.work / "shards"
    for temperature in HELD_TEMPERATURES:
        _held(place, model, temperature, folder)
    for index in range(place.budget.shards):
        _write(place, model, split, Manner(), index=index, folder=folder / f"own-{index}")
    _read(place, model, place.budget.shards // 3, folder)


def draft(place: Place) -> None:
    """Distil the draft from the target, from the first draft on."""
    folder = place.work / "shards"
    shards = [load_shard(folder / f"own-{i}") for i in range(place.budget.shards)]
    shards += [load_shard(folder / f"corpus-{i}") for i in range(place.budget.shards // 3)]
    model = load_model(place.work / "warm", place.device)
    schedule = Schedule(place.budget.draft, matrix_lr=0.015, other_lr=2e-3, warmup=40, flat=0.35, floor=0.01)
    _distil(place, model, place.target(), shards, recipe=Recipe(cool_weight=0.25), schedule=schedule, name="draft")


def _distil(
    place: Place,
    model: Llama,
    teacher: Llama,
    shards: Sequence[Shard],
    *,
    recipe: Recipe,
    schedule: Schedule,
    name: str,
) -> None:
    held = _held(place, teacher, 1.0, place.work / ("shards-base" if name == "warm" else "shards"))
    size = sum(shard.tokens.size for shard in shards)
    place.log(f"{name}: {model.size():,} parameters, {size:,} tokens to learn from, {schedule.steps} steps")
    trainer = Trainer(model, schedule, place.seed, place.work / f"{name}.pt")
    distiller = Distiller(model, teacher, shards, recipe, place.bf16)
    train_draft(distiller, trainer, teacher, held, out=place.work / name, log=place.log)


def export_pair(place: Place) -> None:
    """Write both models as GGUF."""
    place.out.mkdir(parents=True, exist_ok=True)
    about = "writes stories in the manner of old children's books; trained on public-domain books"
    export(place.target(), place.tokenizer_json, place.out / "target-q8_0.gguf", "storyteller", about)
    about = "drafts for storyteller in speculative decoding; distilled from its own text"
    model = load_model(place.work / "draft")
    export(model, place.tokenizer_json, place.out / "draft-q8_0.gguf", "storyteller-draft", about)


def heads(place: Place) -> None:
    """Train the draft heads of the exported target."""
    chats = ChatCutter(read_books(place.corpus, "train"), place.tokenizer())
    train_heads(place.out / "target-q8_0.gguf", place.out, place.work / "heads", chats, place.log, place.seed)


def masks(place: Place) -> None:
    """Train mask tokens for the exported target."""
    target, out = place.out / "target-q8_0.gguf", place.out / "mask-tokens-q8_0.gguf"
    train_masks(target, out, place.corpus, place.work / "masks", MaskRecipe(seed=place.seed), place.log)


def evaluate(place: Place) -> None:
    """Measure everything the model card says; leaves figures.json and samples.txt."""
    model, start, valid = place.target(), place.base(), place.split("valid")
    small = load_model(place.work / "draft", place.device)
    held = {t: _held(place, model, t, place.work / "shards") for t in HELD_TEMPERATURES}
    figures = {
        "parameters": {"target": model.size(), "draft": small.size()},
        "bits_per_byte": {"base": bits_per_byte(start, valid), "target": bits_per_byte(model, valid)},
        "acceptance": {str(t): asdict(acceptance(small, model, held[t], t)) for t in HELD_TEMPERATURES},
        "exits": {layer: asdict(exit_acceptance(model, held[1.0], layer, 1.0)) for layer in range(2, TARGET.layers)},
    }
    (place.work / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    text = samples(model, place.tokenizer(), 0.8, place.seed)
    (place.work / "samples.txt").write_text(text, encoding="utf-8")
    place.log(json.dumps(figures))
