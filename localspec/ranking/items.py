"""The items of a file as token paths in a trie, which is built once for a vocabulary and kept.

Node 0 is the root, the place where an item begins. Nodes stand level by level, and the children of a node are
neighbours, ascending by token. So three arrays are the whole trie.
"""

import hashlib
import zipfile
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import NotFoundError, UsageError
from localspec.settings.folders import replacing

LARGEST = 64 << 20  # bytes of a file
VERSION = b"1"  # of the kept form

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Items:
    """The `texts` of a file, one a line, each once; `n_double` further lines said the same. `key` tells the file."""

    texts: tuple[str, ...]
    n_double: int
    key: str


def read_items(named: str) -> Items:
    """Read a file with an item a line, or items as in a,b,c where there is no such file.

    Raises NotFoundError or UsageError. Spaces at the ends of a line count.
    """
    path = Path(named)
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        if "," not in named:
            why = error.strerror if isinstance(error, OSError) else error
            raise NotFoundError(f"--items {named}: {why}", hint="--items FILE, with an item a line") from None
        raw = named.replace(",", "\n").encode("utf-8", "replace")
    if len(raw) > LARGEST:
        raise UsageError(f"--items {path} has more than {LARGEST >> 20} MiB", hint="a smaller file")
    try:
        lines = [line.removesuffix("\r") for line in raw.decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError:
        raise UsageError(f"--items {path} is not UTF-8 text", hint="--items FILE, with an item a line") from None
    items = [line for line in lines if line.strip()]
    if not items:
        raise UsageError(f"--items {path} has no items", hint="--items FILE, with an item a line")
    texts = tuple(dict.fromkeys(items))
    return Items(texts, len(items) - len(texts), hashlib.sha256(raw).hexdigest())


@dataclass(frozen=True, slots=True, eq=False)
class Trie:
    """The paths of items: by node the `tokens` [n] and the `items` [n] that end there (-1: none), both int32.

    The children of node i are `first[i]` to `first[i + 1]` - 1; `first` has n + 1 entries. The root's token is -1.
    """

    tokens: Ints
    items: Ints
    first: Ints

    def __len__(self) -> int:
        return len(self.tokens)

    def children(self, node: int) -> slice:
        return slice(int(self.first[node]), int(self.first[node + 1]))

    def parents(self) -> Ints:
        """Return the parent [n] of each node, -1 of the root."""
        counts = np.diff(self.first)
        return np.concatenate([np.array([-1], np.int32), np.repeat(np.arange(len(self), dtype=np.int32), counts)])

    def depths(self) -> Ints:
        """Return the number of tokens [n] of the path to each node."""
        depths = np.zeros(len(self), np.int32)
        begin, end, depth = 0, 1, 0
        while begin < end:  # a level after the other
            depths[begin:end] = depth
            begin, end, depth = end, int(self.first[end]), depth + 1
        return depths

    def nested(self, parents: Ints) -> int:
        """Return how many items lie on one path at most: more than one where an item begins another."""
        most = (self.items >= 0).astype(np.int32)
        begin, end = int(self.first[0]), int(self.first[1])
        while begin < end:
            most[begin:end] += most[parents[begin:end]]
            begin, end = end, int(self.first[end])
        return int(most.max())


def build(paths: Sequence[Sequence[int]]) -> Trie:
    """Return the trie of the items' tokens; of two items with the same tokens the first counts."""
    order = sorted(range(len(paths)), key=lambda item: (paths[item], item))
    tokens, items = [-1], [-1]
    first: list[int] = []
    waiting = deque([(0, len(order), 0)])  # a node's items in this order, and how many tokens lead to it
    while waiting:
        begin, end, depth = waiting.popleft()
        node = len(first)
        first.append(len(tokens))
        while begin < end and len(paths[order[begin]]) == depth:
            items[node] = order[begin] if items[node] < 0 else items[node]
            begin += 1
        while begin < end:
            token, last = paths[order[begin]][depth], begin + 1
            while last < end and paths[order[last]][depth] == token:
                last += 1
            tokens.append(token)
            items.append(-1)
            waiting.append((begin, last, depth + 1))
            begin = last
    first.append(len(tokens))
    return Trie(np.array(tokens, np.int32), np.array(items, np.int32), np.array(first, np.int32))


def kept_trie(items: Items, tokenize: Callable[[str], list[int]], vocabulary: str, folder: Path) -> tuple[Trie, bool]:
    """Return the trie of the items, and whether it was kept in `folder`; `vocabulary` tells the tokenizer."""
    name = hashlib.sha256(b"\0".join([VERSION, items.key.encode(), vocabulary.encode()])).hexdigest()[:32]
    path = folder / f"{name}.npz"
    loaded = _load(path, len(items.texts))
    if loaded is not None:
        return loaded, True
    trie = build([tokenize(text) for text in items.texts])
    _save(trie, path)
    return trie, False


def _load(path: Path, n_items: int) -> Trie | None:
    try:
        with np.load(path, allow_pickle=False) as held:
            trie = Trie(held["tokens"], held["items"], held["first"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    n = len(trie)
    is_whole = len(trie.items) == n == len(trie.first) - 1 and trie.first[-1] == n and (np.diff(trie.first) >= 0).all()
    return trie if is_whole and trie.items.max() < n_items else None


def _save(trie: Trie, path: Path) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, tokens=trie.tokens, items=trie.items, first=trie.first)
