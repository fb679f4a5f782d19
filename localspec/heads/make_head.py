"""The whole way from a target's file to its head: text, features, training, the file. Each part goes on where it was.

It runs in a process of its own, since it needs llama.cpp and PyTorch, and tells its progress as JSON objects.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from localspec.errors import IncompatibleError, UsageError
from localspec.heads.head_file import ARCHITECTURES, HeadOrigin, HeadShape, Kind, Weights, write_head
from localspec.heads.target_file import EMBEDDING, OUTPUT_NORM, output_rows, target_rows
from localspec.heads.text_shards import Text, frequent_tokens, read_shards, shards
from localspec.models.derived_files import require_space
from localspec.models.gguf.architectures import TAPPABLE, UNTOLD_LAST
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.header import Header
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import read_model
from localspec.models.heads import path_for
from localspec.models.pair_check import require_fit
from localspec.settings.lone_jobs import TrainOptions
from localspec.settings.request import Message, Request
from localspec.settings.stores import read_stored, write_stored

if TYPE_CHECKING:
    from localspec.heads.training import Trainer, TrainingRecipe

Event = dict[str, Any]

PROMPT, ANSWER = 512, 256  # tokens of a prompt, its last, and of an answer, at most
HELD_SHARE = 16  # of so many tokens one is held out
TIMED = 3  # updates that tell how long one takes
GUESSES = 4  # of a Medusa head, each with a matrix of its own
IDLE_HEAD, IDLE_FF = 64, 32  # widths of a block that adds nothing


def train(options: TrainOptions) -> Iterator[Event]:
    """Make a head and write it; report the progress.

    Events have a `stage`: "text" with `part`, `tokens`, `of` and `seconds_left`; "training" with `updates`, `of`,
    `seconds_left`, `loss` and `accepted`; "done" with `path`, `kind`, `bytes` and `accepted`.
    """
    require_packages(options)
    header = read_model(Path(options.target))
    info = model_info(header)
    kind = chosen_kind(options.kind, info)
    shape = head_shape(header, info, kind)
    work = work_folder(options, kind)
    _require_space(work, shape, options.tokens)
    ends = yield from _collected(options, shape, work)
    texts, held = (read_shards(shards(work / part)) for part in ("text", "held"))
    rows = frequent_tokens(texts, options.outputs, shape.vocab, ends)
    shape = replace(shape, n_out=len(rows))
    run = _Run(options, header, shape, rows, texts, work)
    trainer, accepted = yield from run.train(held)
    yield run.write(trainer, accepted, info)
    shutil.rmtree(work, ignore_errors=True)


def require_packages(options: TrainOptions) -> None:
    missing = [name for name in ("torch", "gguf") if find_spec(name) is None]
    if missing:
        raise UsageError(f"training needs the package {missing[0]}", hint="pip install 'localspec[train]'")
    from localspec.heads.training import use

    use(options.device, options.threads)


def chosen_kind(wanted: str, info: ModelInfo) -> Kind:
    """Return the kind of head: EAGLE-3 where llama.cpp tells the layers, else EAGLE-1. Raises IncompatibleError."""
    can_tap = info.architecture in TAPPABLE
    if info.is_recurrent:
        raise IncompatibleError(
            f"{info.label} is a recurrent model, and heads are trained for attention alone",
            hint="train a head for another model",
        )
    if wanted == "eagle3" and not can_tap:
        raise IncompatibleError(
            f"llama.cpp does not tell the layers of {info.architecture} models, which an EAGLE-3 head reads",
            hint="--kind eagle1",
        )
    kinds: dict[str, Kind] = {kind: kind for kind in ARCHITECTURES}
    chosen = kinds.get(wanted, "eagle3" if can_tap else "eagle1")
    if chosen != "eagle3" and info.architecture in UNTOLD_LAST:
        raise IncompatibleError(
            f"llama.cpp does not tell the last state of {info.architecture} models, which this head reads",
            hint="--kind eagle3",
        )
    return chosen


def head_shape(header: Header, info: ModelInfo, kind: Kind) -> HeadShape:
    """Return a head as wide as the target, with the attention of one of its layers; the outputs are all its tokens."""

    def number(key: str, default: float) -> float:
        value = header.metadata.get(f"{info.architecture}.{key}", default)
        return float(value) if isinstance(value, int | float) else default

    heads = max(1, info.n_head)
    width = int(number("attention.key_length", info.n_embd // heads))
    last = info.n_layer - 1
    shape = HeadShape(
        kind=kind,
        d=info.n_embd,
        heads=heads,
        kv_heads=info.n_head_kv if info.n_head_kv and heads % info.n_head_kv == 0 else heads,
        head_width=width + width % 2,
        ff=int(number("feed_forward_length", 4 * info.n_embd)),
        vocab=info.n_vocab,
        n_out=info.n_vocab,
        target_width=info.n_embd,
        context=info.n_ctx_train,
        layers=(min(2, last), info.n_layer // 2, last) if kind == "eagle3" else (),
        norm_before_fc=kind in ("eagle3", "eagle1"),
        rope_base=number("rope.freq_base", 10000.0),
        eps=number("attention.layer_norm_rms_epsilon", 1e-5),
    )
    if kind != "medusa":
        return shape
    return replace(shape, heads=1, kv_heads=1, head_width=IDLE_HEAD, ff=IDLE_FF, guesses=GUESSES)


def work_folder(options: TrainOptions, kind: Kind) -> Path:
    """Return where a run keeps text and checkpoint: the same for the same target and options."""
    same = {**options.by_name(), "target": file_fingerprint(Path(options.target)), "kind": kind}
    for name in ("output", "folder", "threads", "gpu"):
        del same[name]
    return Path(options.folder) / hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:16]


def _require_space(work: Path, shape: HeadShape, tokens: int) -> None:
    widths = shape.feature_width + (shape.target_width if shape.kind == "eagle3" else 0)
    known = sum(
        file.stat().st_size for name in ("text", "held") for shard in shards(work / name) for file in shard.iterdir()
    )
    needed = 2 * widths * (tokens + tokens // HELD_SHARE) - known
    require_space(work, needed, "the training data", "--tokens with a smaller number")


def _collected(options: TrainOptions, shape: HeadShape, work: Path) -> Generator[Event, None, list[int]]:
    """Let the target write the text that is missing, the held-out part first; return the tokens that end a text."""
    from localspec.backends.llama_cpp import LlamaBackend, Model
    from localspec.backends.options import LoadOptions
    from localspec.heads.data import ROWS, WRITERS, TextSource, collect, split
    from localspec.prompt.prompt import special_texts, tokenise

    n_ctx = WRITERS * (PROMPT + ANSWER)
    loading = LoadOptions(n_ctx=n_ctx, threads=options.threads, gpu=options.gpu, n_batch=ROWS, max_leaves=WRITERS)
    with Model(options.target, loading) as model, LlamaBackend(model, loading) as backend:
        specials = special_texts(model)
        asked = [Request(messages=(Message("user", prompt),)) for prompt in options.prompts]
        asked += [Request(prompt=text) for text in options.raw]
        order = np.random.default_rng(options.seed).permutation(len(asked))
        mixed = [tokenise(asked[at], model, specials).tokens for at in order]
        longest = max(1, min(PROMPT, (model.n_ctx_train or n_ctx) - ANSWER))
        training, held = split([tokens[-longest:] for tokens in mixed])
        source = TextSource(backend, shape.layers, shape.target_width)
        parts = {"held": (held, max(1, options.tokens // HELD_SHARE)), "text": (training, options.tokens)}
        for part, (prompts, n) in parts.items():
            is_held = part == "held"
            for done in collect(work / part, source, prompts, n, most=ANSWER, seed=options.seed, is_held=is_held):
                yield {"stage": "text", "part": part, "tokens": done.tokens, "of": n, "seconds_left": done.seconds_left}
        return [token for token in range(model.n_vocab) if model.is_eog(token)]


@dataclass(frozen=True)
class _Run:
    """The training of one head: `rows` are the tokens that its output is trained for."""

    options: TrainOptions
    header: Header
    shape: HeadShape
    rows: NDArray[np.int64]
    texts: Sequence[Text]
    work: Path

    def train(self, held: Sequence[Text]) -> Generator[Event, None, tuple[Trainer, tuple[float, ...]]]:
        recipe, weights, teacher = yield from self._prepared()
        trainer = self._trainer(recipe, weights, teacher, self.work / "checkpoint")
        accepted: tuple[float, ...] = ()
        for progress in trainer.run(held):
            accepted = progress.accepted
            yield {"stage": "training", "of": recipe.updates, **asdict(progress)}
        return trainer, accepted

    def write(self, trainer: Trainer, accepted: Sequence[float], info: ModelInfo) -> Event:
        """Write the head, check that it fits its target, and say where it is."""
        weights = trainer.network.arrays() | ({"d2t": self.rows} if self.shape.has_encoder else {})
        origin = HeadOrigin(
            target=file_fingerprint(self.header.path),
            tokens=sum(map(len, self.texts)),
            steps=trainer.done,
            accepted=tuple(accepted),
            seed=self.options.seed,
        )
        kind = self.shape.kind
        path = Path(self.options.output) if self.options.output else path_for(self.header.path, kind)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_head(path, self.shape, weights, origin, self.header)
        require_fit(info, model_info(read_model(path), may_be_head=True))
        result = {"path": str(path), "kind": kind, "bytes": path.stat().st_size, "accepted": list(accepted)}
        return {"stage": "done", **result}

    def _prepared(self) -> Generator[Event, None, tuple[TrainingRecipe, Weights, NDArray[np.float32]]]:
        """Return the recipe, the weights to begin with, and the target's rows of the output.

        The recipe is that of an earlier try, if there was one: how many updates fit into the minutes is measured once.
        """
        from localspec.heads.network import fresh_weights
        from localspec.heads.training import UNROLLED, TrainingRecipe, bf16_is_quicker

        teacher = output_rows(self.header, self.rows)
        norm, embedding = (target_rows(self.header, name) for name in (OUTPUT_NORM, EMBEDDING))
        if norm is None or embedding is None:
            raise IncompatibleError(
                f"{self.header.name} has no embedding or no norm before its output", hint="train for another model"
            )
        weights = fresh_weights(self.shape, teacher, norm, self.options.seed)
        weights[EMBEDDING] = embedding.astype(np.float16)
        file = self.work / "recipe.json"
        known = read_stored(file, TrainingRecipe)
        if known is not None:
            return known, weights, teacher
        steps = self.shape.guesses or UNROLLED
        recipe = TrainingRecipe(
            TIMED, unrolled=steps, seed=self.options.seed, bf16=bf16_is_quicker(self.options.device)
        )
        updates = self.options.epochs * self.options.tokens // (recipe.batch * recipe.pairs) + 1
        if self.options.minutes is not None:
            yield {"stage": "timing"}
            trial = self._trainer(recipe, weights, teacher, self.work / "trial")
            trial.update()
            began = time.monotonic()
            for _ in range(1, TIMED):
                trial.update()
            seconds = (time.monotonic() - began) / (TIMED - 1)
            updates = max(1, int(60 * self.options.minutes / seconds))
        recipe = replace(recipe, updates=updates)
        write_stored(file, recipe)
        return recipe, weights, teacher

    def _trainer(
        self, recipe: TrainingRecipe, weights: Weights, teacher: NDArray[np.float32], checkpoint: Path
    ) -> Trainer:
        from localspec.heads.network import Network
        from localspec.heads.training import Trainer

        network = Network(self.shape, weights, self.options.device)
        return Trainer(network, self.rows, teacher, self.texts, recipe, checkpoint, self.options.device)
