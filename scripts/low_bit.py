"""Acceptance and tokens a pass of low-bit copies, with and without importance matrix and middle layers.

  low_bit.py models/storyteller/target-q8_0.gguf --work FOLDER
  low_bit.py TARGET.gguf --sibling DRAFT.gguf --work FOLDER --prompts 12 -n 64

The target continues shipped prompts that no matrix saw, at temperature 0 and 0.8. Then each draft reads these texts
beside the target. Token y of such a text is accepted with the chance min(1, q(y)/p(y)), and at temperature 0 where the
draft's likeliest token is y. Given these chances the tokens a pass of chains of any length follow exactly, for
acceptance token by token: the committed text has the target's distribution, whatever was drafted. So one reading tells
every k, and the load of the machine does not matter. At temperature 0 a tree of k nodes has the draft's likeliest
tokens, in the shape that is best for how often its first, second ... guess was right here. At 0.8 trees draw their
children, and these texts do not tell what a second draw brings.

Each part is kept in FOLDER, and a run goes on where it was. The rows of the drafts are kept too: replay_machines.py
reads them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
from localspec.bench.suites import SAMPLES, load_suite
from localspec.engine.sampling import Sampler
from localspec.heads.make_copy import make_copy
from localspec.models.gguf.shards import read_model
from localspec.models.low_bit import KINDS
from localspec.prompt.prompt import special_texts, tokenise
from localspec.settings.lone_jobs import CopyOptions
from localspec.settings.request import Message, Request, Sampling
from localspec.trees.sequoia import Tree, best_tree

TEMPERATURES = (0.0, 0.8)
LENGTHS = (4, 8, 16)
LONGEST = 384  # tokens of a prompt, its last
SELDOM = 1e-6  # the chance of a rank that never was right
KEPT = 8  # of the draft's likeliest tokens at each place, for replays


@dataclass(frozen=True)
class Variant:
    """A draft: `bits` of a copy, "" of another model; `cut`: without an eighth of the layers, from the middle."""

    name: str
    bits: str = ""
    kind: str = ""
    has_matrix: bool = False
    cut: bool = False


VARIANTS = (
    Variant("2 bits, matrix", "2", "Q2_K", True),
    Variant("2 bits", "2", "Q2_K"),
    Variant("3 bits, matrix", "3", "Q3_K_S", True),
    Variant("3 bits", "3", "Q3_K_S"),
    Variant("2 bits, matrix, cut", "2", "Q2_K", True, True),
    Variant("2 bits, cut", "2", "Q2_K", False, True),
    Variant("mixed, matrix", "mixed", KINDS["mixed"], True),
    Variant("IQ2_XXS, matrix", "2", "IQ2_XXS", True),
)


def prompts(is_chat: bool, *, held_out: bool) -> list[Request]:
    """Return every other shipped prompt: the others are for the matrix."""
    found = []
    for name in SAMPLES:
        suite = load_suite(name)
        if suite.is_chat and not is_chat:
            continue
        for prompt in suite.prompts[1 if held_out else 0 :: 2]:
            asked = suite.is_chat and is_chat
            found.append(Request(messages=(Message("user", prompt.text),)) if asked else Request(prompt=prompt.text))
    return found


def texts(target: Path, work: Path, n_prompts: int, n: int, threads: int) -> dict[str, Any]:
    """Return the target's texts by temperature: tokens, where its own begin, and their probabilities."""
    file = work / "texts.json"
    kept: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"done": []}
    options = LoadOptions(n_ctx=LONGEST + n + 8, threads=threads)
    with Model(target, options) as model, LlamaBackend(model, options) as backend:
        specials = special_texts(model)
        asked = prompts(model.chat_template is not None, held_out=True)
        for at in np.linspace(0, len(asked) - 1, n_prompts).astype(int).tolist():
            for temperature in TEMPERATURES:
                if any((one["prompt"], one["temperature"]) == (at, temperature) for one in kept["done"]):
                    continue
                tokens = list(tokenise(asked[at], model, specials).tokens[-LONGEST:])
                text = continued(backend, tokens, temperature, n)
                kept["done"].append({"prompt": at, "temperature": temperature, **text})
                file.write_text(json.dumps(kept))
    return kept


def continued(backend: LlamaBackend, tokens: list[int], temperature: float, n: int) -> dict[str, Any]:
    """Let the target go on for `n` tokens at most."""
    sampler, rng = Sampler(Sampling(temperature=temperature)), np.random.default_rng(len(tokens))
    first, chances = len(tokens), []
    backend.truncate(0)
    row = backend.prefill(tokens, lambda: False).logits(0)
    for _ in range(n):
        dist = sampler.dist(row)
        at = int(rng.choice(len(dist.ids), p=dist.probs / dist.probs.sum()))
        token = int(dist.ids[at])
        if backend.model.is_eog(token):
            break
        tokens.append(token)
        chances.append(float(dist.probs[at]))
        row = backend.extend([token], [-1]).logits(0)
        backend.keep([0])
    return {"tokens": tokens, "first": first, "p": chances}


def read(draft: Path, variant: Variant, kept: dict[str, Any], file: Path, threads: int) -> dict[str, Any]:
    """Let a draft read the texts; keep in `file` the chance of each token, and the likeliest tokens with theirs."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {**asdict(variant), "texts": []}
    left = kept["done"][len(found["texts"]) :]
    if not left:
        return found
    options = LoadOptions(n_ctx=max(len(one["tokens"]) for one in left) + 8, threads=threads)
    with Model(draft, options) as model, LlamaBackend(model, options) as backend:
        most = backend.capabilities.max_rows
        for one in left:
            judge = Judge(one["temperature"])
            tokens, first = one["tokens"], one["first"]
            backend.truncate(0)
            row = backend.prefill(tokens[:first], lambda: False).logits(0)
            for at in range(first, len(tokens), most):
                chunk = tokens[at : at + most]
                judge.take(row, chunk[0], one["p"][at - first])
                rows = backend.extend(chunk, range(-1, len(chunk) - 1))
                for i, token in enumerate(chunk[1:]):
                    judge.take(rows.logits(i), token, one["p"][at - first + i + 1])
                row = rows.logits(len(chunk) - 1).copy()
                backend.keep(range(len(chunk)))
            found["texts"].append({"accepted": judge.accepted, "tops": judge.tops})
            file.write_text(json.dumps(found))
    return found


class Judge:
    """The chances that a text's tokens are `accepted`, and at each place the likeliest tokens of the draft."""

    def __init__(self, temperature: float) -> None:
        self.accepted: list[float] = []
        self.tops: list[list[tuple[int, float]]] = []
        self._sampler = Sampler(Sampling(temperature=temperature))
        self._whole = Sampler(Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0))

    def take(self, row: Any, token: int, p: float) -> None:
        """Take the draft's row at a place where the target's token has the probability `p`."""
        q = float(self._sampler.dist(row).at(np.array([token]))[0])
        self.accepted.append(min(1.0, q / p))
        dist = self._whole.dist(row)
        order = np.argpartition(-dist.probs, KEPT)[:KEPT]
        order = order[np.argsort(-dist.probs[order])]
        self.tops.append([(int(dist.ids[at]), round(float(dist.probs[at]), 5)) for at in order])


@dataclass(frozen=True)
class Figures:
    """Tokens a pass."""

    chain: float
    tree: float


def passes(chances: Sequence[float], k: int) -> float:
    """Return the expected passes for a text whose tokens are accepted with these chances, drafted by `k`."""
    n = len(chances)
    left = np.zeros(n + 1)
    for i in range(n - 1, -1, -1):
        reached, expected = 1.0, 1.0
        for j in range(k):
            if i + j >= n:
                break
            expected += reached * (1.0 - chances[i + j]) * left[min(n, i + j + 1)]
            reached *= chances[i + j]
        else:
            expected += reached * left[min(n, i + k + 1)]
        left[i] = expected
    return float(left[0])


def passes_of_tree(ranks: Sequence[int], tree: Tree) -> int:
    """Return the passes for a text whose tokens stand at these `ranks` among the draft's likeliest."""
    at = n = 0
    while at < len(ranks):
        node = 0
        while at < len(ranks) and ranks[at] < len(tree[node]):
            node, at = tree[node][ranks[at]], at + 1
        at, n = at + 1, n + 1
    return n


def ranks_of(text: dict[str, Any], one: dict[str, Any]) -> list[int]:
    """Return the ranks of a text's own tokens among the draft's likeliest, KEPT where they are none of them."""
    tokens = text["tokens"][text["first"] :]
    likeliest = ([token for token, _ in top] for top in one["tops"])
    return [top.index(token) if token in top else KEPT for token, top in zip(tokens, likeliest, strict=True)]


def figures(kept: dict[str, Any], found: dict[str, Any], temperature: float) -> tuple[float, dict[int, Figures]]:
    """Return the mean chance of a token, and by k the tokens a pass of a chain and of the best tree."""
    texts = [
        (text, one)
        for text, one in zip(kept["done"], found["texts"], strict=True)
        if text["temperature"] == temperature and one["accepted"]
    ]
    chances, ranks = [one["accepted"] for _, one in texts], [ranks_of(text, one) for text, one in texts]
    n = sum(map(len, chances))
    every = [rank for one in ranks for rank in one]
    vector = tuple(max(SELDOM, every.count(rank) / n) for rank in range(KEPT))
    by_k = {
        k: Figures(
            n / sum(passes(one, k) for one in chances),
            n / sum(passes_of_tree(one, best_tree(vector, k, k)) for one in ranks),
        )
        for k in LENGTHS
    }
    return sum(map(sum, chances)) / n, by_k


def made(target: Path, variant: Variant, work: Path, threads: int) -> tuple[Path, float]:
    """Return the file of a variant and the seconds that it took to make; made if it is not there yet."""
    # A folder of its own: what is unfinished there is removed.
    path, note = work / "copies" / f"{slug(variant)}.gguf", work / f"{slug(variant)}.seconds"
    if not (path.is_file() and note.is_file()):
        header = read_model(target)
        n_layers = int(header.metadata[f"{header.metadata['general.architecture']}.block_count"])
        n = max(1, n_layers // 8)
        middle = (n_layers - n) // 2
        has_chat = "tokenizer.chat_template" in header.metadata
        asked = prompts(has_chat, held_out=False)
        options = CopyOptions(
            str(target), str(work / "matrix"), variant.bits, variant.kind,
            tuple(range(middle, middle + n)) if variant.cut else (),
            tuple(one.messages[0].content for one in asked if one.messages),
            tuple(one.prompt for one in asked if one.prompt is not None),
            4096 if variant.has_matrix else 0, threads=threads, output=str(path),
        )  # fmt: skip
        began = time.monotonic()
        for _ in make_copy(options):
            pass
        note.write_text(f"{time.monotonic() - began:.1f}")
    return path, float(note.read_text())


def slug(variant: Variant) -> str:
    return variant.name.replace(",", "").replace(" ", "-").lower()


def table(target: Path, siblings: Sequence[Path], work: Path, asked: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table as they are known."""
    kept = texts(target, work, asked.prompts, asked.n, asked.threads)
    n = sum(len(one["p"]) for one in kept["done"])
    yield f"{target.name}, {target.stat().st_size / 1e6:.0f} MB, {n} tokens of {len(kept['done'])} texts\n"
    yield "| draft | MB | made in s | T=0: token | k=4 | 8 | 16 | tree of 4 | 8 | 16 | T=0.8: token | k=4 | 8 | 16 |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    drafts = [(Variant(path.stem), path) for path in siblings]
    wanted = [one for one in VARIANTS if not asked.only or one.name in asked.only.split("|")]
    for variant, path in [*drafts, *((one, None) for one in wanted)]:
        seconds = 0.0
        if path is None:
            path, seconds = made(target, variant, work, asked.threads)
        found = read(path, variant, kept, work / f"{slug(variant)}.json", asked.threads)
        cells = []
        for temperature in TEMPERATURES:
            mean, by_k = figures(kept, found, temperature)
            chains, trees = ([f"{getattr(one, kind):.2f}" for one in by_k.values()] for kind in ("chain", "tree"))
            cells += [f"{100 * mean:.0f} %", *chains, *([] if temperature else trees)]
        took = f"{seconds:.0f}" if seconds else "-"
        yield f"| {variant.name} | {path.stat().st_size / 1e6:.1f} | {took} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--sibling", type=Path, action="append", default=[], help="a smaller model, as a draft too")
    parser.add_argument("--work", type=Path, required=True, help="a folder for what is kept")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("-n", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="variants by name, as '2 bits|3 bits, matrix'")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    for line in table(asked.target.absolute(), asked.sibling, asked.work, asked):
        print(line, flush=True)


if __name__ == "__main__":
    main()
