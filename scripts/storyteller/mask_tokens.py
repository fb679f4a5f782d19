"""Train mask tokens for the bundled target: their embeddings, and a LoRA adapter that acts on their rows alone.

The target (weights of its Q8_0 file, frozen) first writes text on beginnings out of the corpus. At places in this text
stand chains of masks. Mask i behind position a learns the target's own distribution at position a + i: the paper's loss
(arXiv 2507.11851) with distributions in the place of tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.llama_cpp import Model
from localspec.heads.head_file import HeadOrigin
from localspec.heads.mask_file import MASK_EMBEDDING, write_masks
from localspec.models.gguf.header import file_fingerprint, read_header
from localspec.prompt.prompt import special_texts, tokenise
from localspec.settings.request import Message, Request
from localspec.settings.sizes import size

from .data import BOS, END, read_books
from .export import BLOCK_NAMES, gguf_name
from .generate import draw
from .model import HEAD, Cache, Llama, Shape, rope

Log = Callable[[str], None]

LORA = ("q", "k", "v", "o", "gate", "up", "down")
TEMPERATURES, SHARES = (1.0, 0.8, 0.0), (0.4, 0.4, 0.2)


@dataclass(frozen=True)
class MaskRecipe:
    """How to train: `rows` texts of `length` tokens; an update takes `batch` of them with `anchors` chains of masks."""

    masks: int = 4
    rank: int = 32
    rows: int = 2048
    length: int = 256
    held: int = 64
    batch: int = 8
    anchors: int = 48
    updates: int = 3000
    rate: float = 2e-3
    warmup: int = 50
    floor: float = 0.02
    seed: int = 0


class MaskNetwork(torch.nn.Module):
    """The masks beside a frozen target."""

    def __init__(self, target: Llama, recipe: MaskRecipe) -> None:
        super().__init__()
        self.target = target.requires_grad_(False)
        generator = torch.Generator().manual_seed(recipe.seed)
        table = target.embed.weight
        noise = torch.randn(recipe.masks, target.shape.d, generator=generator)
        self.embedding = torch.nn.Parameter(table.mean(0) + 0.5 * table.std() * noise)
        self.lora = torch.nn.ParameterDict()
        for layer, block in enumerate(target.blocks):
            for part in LORA:
                n_out, n_in = getattr(block, part).weight.shape
                down = torch.randn(recipe.rank, n_in, generator=generator) / n_in**0.5
                self.lora[f"{layer}-{part}-a"] = torch.nn.Parameter(down)
                self.lora[f"{layer}-{part}-b"] = torch.nn.Parameter(torch.zeros(n_out, recipe.rank))

    def trained(self) -> list[torch.nn.Parameter]:
        """Return the parameters that are trained."""
        return [self.embedding, *self.lora.values()]

    def forward(self, tokens: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the target's logits [B, T, V] of `tokens` [B, T], and those of the masks, [B, A, k, V].

        `anchors` [B, A] are the positions that chains of masks stand behind.
        """
        shape, k = self.target.shape, len(self.embedding)
        batch, length = tokens.shape
        places = anchors[:, :, None] + torch.arange(1, k + 1)  # [B, A, k]
        cos, sin = self.target.cos[places.flatten(1)][:, None], self.target.sin[places.flatten(1)][:, None]
        seen = torch.arange(length) <= anchors.repeat_interleave(k, 1)[..., None]  # [B, A k, T]
        chain = torch.ones(k, k, dtype=torch.bool).tril()
        x = self.target.embed(tokens)
        y = self.embedding.expand(batch, anchors.shape[1], -1, -1).flatten(1, 2)  # [B, A k, d]
        for layer, block in enumerate(self.target.blocks):
            with torch.no_grad():
                normed = block.attn_norm(x)
                turns = self.target.cos[:length], self.target.sin[:length]
                text_k = rope(block._split(block.k(normed), shape.kv), *turns)
                text_v = block._split(block.v(normed), shape.kv)
                x = block(x, *turns)
            normed = block.attn_norm(y)
            q = rope(block._split(self._apply(block, layer, "q", normed), shape.heads), cos, sin)
            own_k = rope(block._split(self._apply(block, layer, "k", normed), shape.kv), cos, sin)
            own_v = block._split(self._apply(block, layer, "v", normed), shape.kv)
            heard = _attend(q, text_k, text_v, own_k, own_v, seen, chain)
            y = y + self._apply(block, layer, "o", heard)
            inner = block.ffn_norm(y)
            gated = F.silu(self._apply(block, layer, "gate", inner)) * self._apply(block, layer, "up", inner)
            y = y + self._apply(block, layer, "down", gated)
        with torch.no_grad():
            told = self.target.logits(self.target.norm(x))
        return told, self.target.logits(self.target.norm(y)).unflatten(1, (anchors.shape[1], k))

    def _apply(self, block: torch.nn.Module, layer: int, part: str, x: Tensor) -> Tensor:
        a, b = self.lora[f"{layer}-{part}-a"], self.lora[f"{layer}-{part}-b"]
        return getattr(block, part)(x) + F.linear(F.linear(x, a), b)


def _attend(
    q: Tensor, text_k: Tensor, text_v: Tensor, own_k: Tensor, own_v: Tensor, seen: Tensor, chain: Tensor
) -> Tensor:
    """Attend from masks [B, H, A k, w] to the text before their anchor and to the masks before them; [B, A k, H w]."""
    k, length = len(chain), text_k.shape[2]
    to_text = (q @ text_k.transpose(-1, -2)).masked_fill(~seen[:, None], -torch.inf)
    chains = [each.unflatten(2, (-1, k)) for each in (q, own_k, own_v)]  # [B, H, A, k, w]
    to_masks = (chains[0] @ chains[1].transpose(-1, -2)).masked_fill(~chain, -torch.inf).flatten(2, 3)
    share = (torch.cat((to_text, to_masks), -1) / HEAD**0.5).softmax(-1)
    of_masks = share[..., length:].unflatten(2, (-1, k)) @ chains[2]
    return (share[..., :length] @ text_v + of_masks.flatten(2, 3)).transpose(1, 2).flatten(2)


def load_target(path: Path) -> Llama:
    """Return the target with the weights of its file."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    model = Llama(Shape())
    state = {}
    for name, value in model.state_dict().items():
        tensor = tensors[gguf_name(name)]
        array = np.array(dequantize(tensor.data, tensor.tensor_type), np.float32, subok=False)
        state[name] = torch.from_numpy(array).reshape(value.shape)
    model.load_state_dict(state)
    return model


def beginnings(path: Path, corpus: Path, split: str, rows: int, rng: np.random.Generator) -> list[list[int]]:
    """Return beginnings: half of them running text, half asked through the chat template."""
    books = read_books(corpus, split)
    found = []
    with Model(path) as model:
        specials = special_texts(model)
        for row in range(rows):
            book = books[int(rng.integers(len(books)))]
            at = int(rng.integers(max(1, len(book) - 1000)))
            text = book[at : at + 1000].partition(" ")[2]
            if row % 2:
                asked = " ".join(text.split()[: int(rng.integers(4, 24))])
                found.append(list(tokenise(Request(messages=(Message("user", asked),)), model, specials).tokens))
            else:
                found.append([BOS, *model.tokenize(text)[: int(rng.integers(2, 48))]])
    return found


@torch.no_grad()
def written(
    target: Llama, prompts: Sequence[Sequence[int]], length: int, warmth: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.uint16]:
    """Let the target go on with `prompts`, together; return [rows, length] tokens."""
    rows = len(prompts)
    tokens = np.zeros((rows, length), np.uint16)
    cache = Cache(target.shape, rows, length, torch.device("cpu"))
    drawn = np.zeros(rows, np.int64)
    for at in range(length):
        for row, prompt in enumerate(prompts):
            tokens[row, at] = prompt[at] if at < len(prompt) else drawn[row]
        state = target.step(torch.from_numpy(tokens[:, at].astype(np.int64)), cache, at)
        logits = target.logits(state)
        logits[:, [BOS, END]] = -torch.inf  # the text goes on
        uniform = torch.from_numpy(rng.random(rows, dtype=np.float32))
        drawn = draw(logits, torch.from_numpy(warmth), uniform).numpy()
    return tokens


def texts(target: Llama, path: Path, corpus: Path, split: str, rows: int, recipe: MaskRecipe) -> NDArray[np.uint16]:
    """Return `rows` texts of the target: of the part `train` at several temperatures, of `valid` at 0."""
    rng = np.random.default_rng([recipe.seed, split == "valid"])
    prompts = beginnings(path, corpus, split, rows, rng)
    temperatures, shares = ((0.0,), (1.0,)) if split == "valid" else (TEMPERATURES, SHARES)
    warmth = rng.choice(np.array(temperatures, np.float32), rows, p=shares).astype(np.float32)
    parts = [
        written(target, prompts[at : at + 128], recipe.length, warmth[at : at + 128], rng) for at in range(0, rows, 128)
    ]
    return np.concatenate(parts)


def batch_of(
    tokens: NDArray[np.uint16], recipe: MaskRecipe, rng: np.random.Generator, anchors: int, rows: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return rows of `tokens` with anchors drawn in each, in ascending order."""
    last = tokens.shape[1] - recipe.masks - 1
    places = np.stack([np.sort(rng.choice(np.arange(1, last), anchors, replace=False)) for _ in rows])
    return torch.from_numpy(tokens[list(rows)].astype(np.int64)), torch.from_numpy(places)


def taught(told: Tensor, anchors: Tensor, k: int) -> Tensor:
    """Return the target's logits [B, A, k, V] that the masks are to guess."""
    places = (anchors[:, :, None] + torch.arange(1, k + 1)).flatten(1)
    return told.gather(1, places[..., None].expand(-1, -1, told.shape[-1])).unflatten(1, (-1, k))


@torch.no_grad()
def accepted(network: MaskNetwork, tokens: NDArray[np.uint16], recipe: MaskRecipe) -> tuple[float, ...]:
    """Return for k = 1, 2, ... how often the likeliest tokens of the first k masks are all the target's."""
    rng = np.random.default_rng(recipe.seed)
    hits = []
    for at in range(0, len(tokens), recipe.batch):
        rows = range(at, min(at + recipe.batch, len(tokens)))
        x, anchors = batch_of(tokens[:, 64:], recipe, rng, recipe.anchors, rows)
        told, guessed = network(x, anchors)
        hits.append((guessed.argmax(-1) == taught(told, anchors, recipe.masks).argmax(-1)).flatten(0, 1))
    return tuple(torch.cat(hits).float().cumprod(1).mean(0).tolist())


def updates(
    network: MaskNetwork, tokens: NDArray[np.uint16], recipe: MaskRecipe, work: Path, log: Log
) -> Iterator[int]:
    """Train to the last update, from the checkpoint on if there is one."""
    optimiser = torch.optim.AdamW(network.trained(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0.01)
    checkpoint, first = work / "checkpoint.pt", 0
    if checkpoint.exists():
        kept = torch.load(checkpoint)
        first = kept["step"]
        optimiser.load_state_dict(kept["optimiser"])
        for parameter, value in zip(network.trained(), kept["weights"], strict=True):
            parameter.data.copy_(value)
    loss_sum, began = 0.0, time.monotonic()
    for step in range(first, recipe.updates):
        rng = np.random.default_rng([recipe.seed, step, 7])
        rate = min(1.0, (step + 1) / recipe.warmup) * max(recipe.floor, 1 - step / recipe.updates)
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * rate
        rows = rng.choice(len(tokens), recipe.batch, replace=False)
        x, anchors = batch_of(tokens, recipe, rng, recipe.anchors, rows)
        told, guessed = network(x, anchors)
        law = taught(told, anchors, recipe.masks).softmax(-1)
        loss = -(law * guessed.log_softmax(-1)).sum(-1).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.trained(), 1.0)
        optimiser.step()
        loss_sum += loss.item()
        if (step + 1) % 20 == 0:
            pace = (time.monotonic() - began) / (step + 1 - first)
            log(f"masks: update {step + 1}/{recipe.updates} loss {loss_sum / 20:.4f}, {pace:.2f} s each")
            loss_sum = 0.0
        if (step + 1) % 100 == 0 or step + 1 == recipe.updates:
            weights = [parameter.detach() for parameter in network.trained()]
            torch.save({"step": step + 1, "optimiser": optimiser.state_dict(), "weights": weights}, f"{checkpoint}.tmp")
            Path(f"{checkpoint}.tmp").replace(checkpoint)
            yield step + 1


def arrays(network: MaskNetwork) -> dict[str, NDArray[np.float32]]:
    """Return the trained weights by the names of the masks' file."""
    found = {MASK_EMBEDDING: network.embedding.detach().numpy()}
    for name, value in network.lora.items():
        layer, part, side = name.split("-")
        found[f"blk.{layer}.{BLOCK_NAMES[part]}.lora_{side}"] = value.detach().numpy()
    return found


def kept_texts(
    target: Llama, path: Path, corpus: Path, work: Path, recipe: MaskRecipe
) -> dict[str, NDArray[np.uint16]]:
    """Return the texts `train` and `valid`, from the work folder where they are there."""
    work.mkdir(parents=True, exist_ok=True)
    parts = {}
    for part, rows in (("valid", recipe.held), ("train", recipe.rows)):
        kept, partial = work / f"{part}.npy", work / f"{part}.tmp.npy"
        if not kept.exists():
            np.save(partial, texts(target, path, corpus, part, rows, recipe))
            partial.replace(kept)
        parts[part] = np.load(kept)
    return parts


def train_masks(path: Path, out: Path, corpus: Path, work: Path, recipe: MaskRecipe, log: Log) -> None:
    """Train masks for the target in the file `path`, measure them, and write them to `out`. It goes on where it was."""
    target = load_target(path)
    parts = kept_texts(target, path, corpus, work, recipe)
    network = MaskNetwork(target, recipe)
    shares: tuple[float, ...] = ()
    for step in updates(network, parts["train"], recipe, work, log):
        shares = accepted(network, parts["valid"], recipe)
        log(f"masks: update {step}, first guesses right {', '.join(f'{share:.3f}' for share in shares)}")
    shares = shares or accepted(network, parts["valid"], recipe)
    facts = HeadOrigin(file_fingerprint(path), parts["train"].size, recipe.updates, shares, recipe.seed)
    write_masks(out, arrays(network), facts, read_header(path))
    log(f"masks: {out.name} has {size(out.stat().st_size)}")
