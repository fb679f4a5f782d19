"""The N likeliest items of a trie, by branch and bound: exact, and most items are never scored.

    log p(item) = sum of log p(token | prompt, tokens before it)

No term is above 0, so a node's log-probability bounds that of every item below it. Nodes are expanded best first. Once
the best node that is left is no better than the Nth item, no item below any node can be: the N are the likeliest.

A pass evaluates the paths to several nodes as one tree, each on a sequence of its own. Below a node it follows what has
one child alone, so that an item whose end is certain takes no further pass.

Drawing N distinct items is the same search with noise: an item's score is its log-probability plus Gumbel noise, and
the N greatest are draws without replacement, by what the items' probabilities are to each other (arXiv 1903.06059). A
node's noise is drawn before that of what lies below it, as the greatest of that, so it is a bound as well.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.engine.distribution import Ids
from localspec.engine.protocols import Backend, Cancel, Cancelled, Logits
from localspec.errors import IncompatibleError, UsageError
from localspec.ranking.items import Ints, Trie

WIDTH = 8  # nodes of a pass: more would be expanded before they are known to be needed
CHAIN = 16  # tokens that are followed below a node


@dataclass(frozen=True, slots=True)
class Found:
    """An item with its log-probability."""

    item: int
    logprob: float


@dataclass(slots=True)
class Ranking:
    """The likeliest items, and what finding them took.

    The probabilities of all items add up to something between `known`, of those that were scored, and `most`.
    """

    found: list[Found]
    known: float = 0.0
    most: float = 0.0
    scored: int = 0
    passes: int = 1
    rows: int = 1


def log_normaliser(row: Logits) -> float:
    peak = float(row.max())
    return peak + math.log(float(np.exp(row - np.float32(peak)).sum(dtype=np.float64)))


def rank(
    trie: Trie,
    backend: Backend,
    prompt: Sequence[int],
    top: int,
    *,
    cancel: Cancel,
    ends: Ids | None = None,
    seed: int | None = None,
) -> Ranking:
    """Return the `top` likeliest items after `prompt`, the likeliest first.

    With `ends`, the tokens that end a text, an item counts with the chance that the text ends behind it. With `seed`,
    too, `top` distinct items are drawn, in this order. Raises UsageError where an item has no room in the context,
    Cancelled once that is asked.
    """
    capabilities = backend.capabilities
    if not capabilities.can_rollback or capabilities.max_leaves < 2:
        raise IncompatibleError(
            "this model's cache holds no branches, which ranking evaluates", hint="a model without recurrent layers"
        )
    parents = trie.parents()
    depths = trie.depths()
    longest, room = int(depths.max()), min(capabilities.n_ctx - len(prompt), capabilities.max_rows)
    if longest > room:
        item = int(trie.items[np.argmax(depths)])
        raise UsageError(
            f"item {item + 1} has {longest} tokens, and {max(room, 0)} have room behind the prompt",
            hint="shorter items, or a longer --ctx",
        )
    search = _Search(trie, parents, top, ends, seed)
    rows = backend.prefill(prompt, cancel)
    search.expand(search.root, rows.logits(0))
    width = min(WIDTH, capabilities.max_leaves)
    while nodes := search.best(width):
        if cancel():
            raise Cancelled
        tree = _Tree.of(trie, search, nodes, room)
        evaluated = backend.extend(tree.tokens, tree.parents, np.array(tree.outputs, np.bool_))
        for node in nodes:
            search.follow(node, tree.place, evaluated.logits)
        backend.keep(())
        search.ranking.passes += 1
        search.ranking.rows += len(tree.tokens)
    return search.finished(trie.nested(parents) if ends is None else 1)


def shared_out(greatest: float, logprobs: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return `logprobs` [n] with Gumbel noise, given that the `greatest` of them is known."""
    noisy = logprobs + rng.gumbel(size=len(logprobs))
    with np.errstate(divide="ignore"):
        v = greatest - noisy + np.log1p(-np.exp(noisy - noisy.max()))
    shared: NDArray[np.float64] = greatest - np.maximum(v, 0.0) - np.log1p(np.exp(-np.abs(v)))
    return shared


@dataclass(frozen=True, slots=True)
class _Open:
    """A node that may be expanded. `bound`: no item below it has a greater score."""

    node: int
    logprob: float
    bound: float


@dataclass(slots=True)
class _Tree:
    """The rows of a pass: `place` is where a node of the trie stands in it; its logits are wanted if `outputs`."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    outputs: list[bool] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(trie: Trie, search: _Search, nodes: list[_Open], room: int) -> _Tree:
        """Return the paths to as many of `nodes` as have room, and what follows them alone; the rest wait again."""
        tree = _Tree()
        for at, open_node in enumerate(nodes):
            path = search.path(open_node.node)
            if len(tree.tokens) + sum(step not in tree.place for step in path) > room:
                search.wait(nodes[at:])
                del nodes[at:]
                break
            for step in path:
                tree._add(trie, search, step)
            tree.outputs[tree.place[open_node.node]] = True
        for open_node in nodes:
            for below in search.chain(open_node.node):
                if len(tree.tokens) >= room:
                    break
                tree._add(trie, search, below)
                tree.outputs[tree.place[below]] = True
        return tree

    def _add(self, trie: Trie, search: _Search, node: int) -> None:
        if node in self.place:
            return
        self.place[node] = len(self.tokens)
        self.tokens.append(int(trie.tokens[node]))
        self.parents.append(self.place.get(int(search.parents[node]), -1))
        self.outputs.append(False)


class _Search:
    """Nodes that wait to be expanded, the best first, and the best items so far.

    The score of an item is its log-probability, with noise where there is a `seed`.
    """

    def __init__(self, trie: Trie, parents: Ints, top: int, ends: Ids | None, seed: int | None) -> None:
        self.parents = parents
        self.ranking = Ranking([])
        self._trie = trie
        self._top = top
        self._ends = ends
        self._seed = seed
        self.root = _Open(0, 0.0, 0.0 if seed is None else float(np.random.default_rng(seed).gumbel()))
        self._best: list[tuple[float, int, float]] = []  # a heap of scores, the worst first; the item, its logprob
        self._waiting: list[tuple[float, int, float]] = []  # a heap of negative bounds; the node, its logprob
        self._left_out = 0.0  # probability of nodes that were not expanded

    @property
    def _bar(self) -> float:
        return self._best[0][0] if len(self._best) == self._top else -math.inf

    def best(self, width: int) -> list[_Open]:
        """Take at most `width` nodes below which the best items may be."""
        taken: list[_Open] = []
        while self._waiting and len(taken) < width and -self._waiting[0][0] > self._bar:
            bound, node, logprob = heapq.heappop(self._waiting)
            taken.append(_Open(node, logprob, -bound))
        return taken

    def wait(self, nodes: Sequence[_Open]) -> None:
        for node in nodes:
            heapq.heappush(self._waiting, (-node.bound, node.node, node.logprob))

    def path(self, node: int) -> list[int]:
        nodes = []
        while node > 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def chain(self, node: int) -> list[int]:
        """Return the nodes below `node` that are only children and must be evaluated, one below the other."""
        nodes: list[int] = []
        while len(nodes) < CHAIN:
            children = self._trie.children(node)
            if children.stop - children.start != 1 or not self._is_open(children.start):
                break
            node = children.start
            nodes.append(node)
        return nodes

    def follow(self, opened: _Open, place: dict[int, int], logits: Callable[[int], Logits]) -> None:
        """Expand a node and those of its chain that were evaluated with it."""
        for below in [below for below in self.chain(opened.node) if below in place]:
            opened = self.expand(opened, logits(place[opened.node]), keeps=below)
        self.expand(opened, logits(place[opened.node]))

    def expand(self, opened: _Open, row: Logits, *, keeps: int | None = None) -> _Open:
        """Score the children of a node by its row; return the child `keeps`, which does not wait, or the node."""
        node, total = opened.node, log_normaliser(row)
        below = self._trie.children(node)
        logprobs = opened.logprob + row[self._trie.tokens[below]].astype(np.float64) - total
        item, ended = int(self._trie.items[node]), -math.inf
        if self._ends is not None and item >= 0:
            ended = opened.logprob + log_normaliser(row[self._ends]) - total
        scores, score = self._scores(opened, logprobs, ended)
        if ended > -math.inf:
            self._score(item, score, ended)
        items = self._trie.items[below]
        if self._ends is None:
            self._score_all(items, logprobs)
        is_open = self._are_open(below)
        if keeps is not None:
            is_open[keeps - below.start] = False
        is_hopeful = is_open & (scores > self._bar)
        self._left_out += float(np.exp(logprobs[is_open & ~is_hopeful]).sum())
        for at in is_hopeful.nonzero()[0].tolist():
            heapq.heappush(self._waiting, (-float(scores[at]), below.start + at, float(logprobs[at])))
        if keeps is None:
            return opened
        at = keeps - below.start
        return _Open(keeps, float(logprobs[at]), float(scores[at]))

    def _scores(self, node: _Open, logprobs: NDArray[np.float64], ended: float) -> tuple[NDArray[np.float64], float]:
        """Return the bounds of a node's children [n] and the score of the item that ends there.

        A node's noise is shared out among its children, its end and all that is no item: drawn for each node by
        itself, it does not depend on the order of the passes.
        """
        if self._seed is None:
            return logprobs, ended
        rest = math.exp(node.logprob) - float(np.exp(logprobs).sum()) - math.exp(ended)
        parts = np.append(logprobs, [ended, math.log(rest) if rest > 0.0 else -math.inf])
        scores = shared_out(node.bound, parts, np.random.default_rng([self._seed, node.node]))
        return scores[:-2], float(scores[-2])

    def finished(self, nested: int) -> Ranking:
        """Return what was found; at most `nested` items lie on one path."""
        ranking = self.ranking
        ranking.found = [Found(-item, logprob) for _, item, logprob in sorted(self._best, reverse=True)]
        rest = self._left_out + sum(math.exp(logprob) for _, _, logprob in self._waiting)
        ranking.most = ranking.known + nested * rest
        return ranking

    def _is_open(self, node: int) -> bool:
        """Whether the row of a node tells the score of an item."""
        children = self._trie.children(node)
        return children.stop > children.start or (self._ends is not None and bool(self._trie.items[node] >= 0))

    def _are_open(self, nodes: slice) -> NDArray[np.bool_]:
        has_children: NDArray[np.bool_] = np.diff(self._trie.first[nodes.start : nodes.stop + 1]) > 0
        return has_children if self._ends is None else has_children | (self._trie.items[nodes] >= 0)

    def _score_all(self, items: Ints, logprobs: NDArray[np.float64]) -> None:
        is_item = items >= 0
        self.ranking.scored += int(is_item.sum())
        self.ranking.known += float(np.exp(logprobs[is_item]).sum())
        for at in (is_item & (logprobs > self._bar)).nonzero()[0].tolist():
            self._keep(int(items[at]), float(logprobs[at]), float(logprobs[at]))

    def _score(self, item: int, score: float, logprob: float) -> None:
        self.ranking.scored += 1
        self.ranking.known += math.exp(logprob)
        self._keep(item, score, logprob)

    def _keep(self, item: int, score: float, logprob: float) -> None:
        """Count an item among the best, if it is one."""
        if len(self._best) < self._top:
            heapq.heappush(self._best, (score, -item, logprob))
        elif score > self._bar:
            heapq.heapreplace(self._best, (score, -item, logprob))
