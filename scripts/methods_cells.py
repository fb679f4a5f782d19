"""The cells of the table of methods: what drafts, within how many nodes (`methods_table` measures them)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from localspec.engine.draft import Draw
from localspec.errors import UsageError
from localspec.models.gguf.head import KINDS
from localspec.models.store import bundled_head
from localspec.settings.declaration import read_options
from localspec.settings.request import Speculation
from localspec.speculation import registered
from localspec.speculation.resolve import Axes, resolve_axes
from localspec.trees.builder import MAX_LEAVES
from localspec.trees.static import Static

PAIR = "storyteller"
BUDGETS = (4, 8, 16, 32, 64)
TEMPERATURES = (0.0, 0.8)
HEAD_TREES = ("chain", "eagle2")  # that draft heads are measured with
FREE_TREES = {"medusa": ("dyspec",)}  # and those that suit heads whose trees cost nothing
COMPARED = (16, 32, 64)  # budgets at which trees and chain are compared, at the highest temperature
WIDTHS = {4: "2,1", 8: "2,1,1,1", 16: "2,2,1,1", 32: "3,2,1,1,1", 64: "4,2,1,1,1,1,1,1"}  # expansion vectors
MAX_ROWS = 128  # of one pass: the nodes and the pending token


@dataclass(frozen=True)
class Choice:
    """One cell: what drafts, within how many nodes (0: any), as it is typed, or the reason why it is not measured."""

    name: str
    budget: int
    speculation: Speculation
    axes: Axes | None
    skipped: str = ""

    @property
    def is_compared(self) -> bool:
        """Whether it stands against the chain, or is the chain."""
        return self.speculation.method == "draft-model" and self.budget in COMPARED

    @property
    def typed(self) -> str:
        """Return the options that choose it."""
        asked = self.speculation
        tree = f" --tree {asked.tree}" if asked.tree != "chain" else ""
        k = "" if asked.k is None else f" -k {asked.k}"
        verify = "" if asked.verify == "auto" else f" --verify {asked.verify}"
        options = "".join(f" -o {name}={value}" for name, value in asked.options)
        return f"--method {asked.method}{tree}{k}{verify}{options}"


def choices(budgets: tuple[int, ...], temperature: float) -> Iterator[Choice]:
    """Yield every tree policy under the draft model, then heads, then every other method, for every budget."""
    is_greedy = temperature == 0.0
    yield _choice("plain", 0, Speculation(method="plain"), is_greedy)
    for name in registered("tree"):
        for budget in budgets:
            yield _choice(f"draft-model, {name}", budget, _tree(name, budget), is_greedy)
    for kind in KINDS:
        if bundled_head(PAIR, kind) is not None:
            for name in (*HEAD_TREES, *FREE_TREES.get(kind, ())):
                for budget in budgets:
                    yield _largest(kind, name, budget, is_greedy)
    if temperature == max(TEMPERATURES):
        yield from _under_one_rule(tuple(budget for budget in budgets if budget in COMPARED))
    for info in (method.info for method in registered("method").values()):
        if info.name != "plain" and not info.draft_kind:
            for budget in budgets:
                k = None if info.name == "lookahead" else budget
                options = _window(budget) if info.name == "lookahead" else ()
                yield _choice(info.name, budget, Speculation(method=info.name, k=k, options=options), is_greedy)


def _under_one_rule(budgets: tuple[int, ...]) -> Iterator[Choice]:
    """Yield what the comparisons need beside auto's rules: every tree and the chain token by token, and coupled."""
    for name, tree in registered("tree").items():
        is_drawn = not tree.draws.isdisjoint({Draw.IID, Draw.WITHOUT_REPLACEMENT})
        by_token = ["token" if name == "chain" else "tree"] if is_drawn else []
        for rule in ("coupled", *by_token):
            if rule != "coupled" or is_drawn:  # else auto's own
                for budget in budgets:
                    yield _choice(f"draft-model, {name}, {rule}", budget, replace(_tree(name, budget), verify=rule))


def _tree(name: str, budget: int) -> Speculation:
    """Return the draft model with the largest tree of a policy within a budget."""
    if name == "chain":
        return Speculation(method="draft-model", k=budget)
    is_vector = issubclass(registered("tree")[name], Static)
    return Speculation(method="draft-model", tree=f"{name}:{WIDTHS[budget] if is_vector else budget}")


def _choice(name: str, budget: int, speculation: Speculation, is_greedy: bool = False) -> Choice:
    """Resolve a choice, or say why it cannot be measured."""
    try:
        kind = speculation.method if speculation.method in KINDS else "model"
        axes = resolve_axes(speculation, has_draft=True, is_seeded=False, is_greedy=is_greedy, draft_kind=kind)
    except UsageError as error:
        return Choice(name, budget, speculation, None, error.message)
    shape, reason = axes.shape, ""
    if shape.leaves > MAX_LEAVES:
        reason = f"{shape.leaves} leaves, {MAX_LEAVES} fit"
    elif shape.nodes >= MAX_ROWS:
        reason = f"{shape.nodes + 1} rows, {MAX_ROWS} fit"
    elif budget and shape.nodes > budget:
        reason = f"its smallest has {shape.nodes} nodes"
    return Choice(name, budget, speculation, axes, reason)


def _largest(kind: str, name: str, budget: int, is_greedy: bool) -> Choice:
    """Return the largest draft of a head within a budget. Masks below its nodes count as nodes."""
    for size in range(budget, 0, -1):
        asked = Speculation(method=kind, k=size) if name == "chain" else Speculation(method=kind, tree=f"{name}:{size}")
        choice = _choice(f"{kind}, {name}", budget, asked, is_greedy)
        if not choice.skipped:
            break
    return choice


def _window(budget: int) -> tuple[tuple[str, str], ...]:
    """Return the largest balanced window of Lookahead, W = G and N = 3, within a budget."""
    method = registered("method")["lookahead"]

    def nodes(width: int) -> int:
        options = read_options(method.info.options, map("=".join, _options(width)), of="lookahead")
        return int(method.shape(0, options).nodes)

    return _options(max([1, *(width for width in range(1, 17) if nodes(width) <= budget)]))


def _options(width: int) -> tuple[tuple[str, str], ...]:
    return (("W", str(width)), ("N", "3"), ("G", str(width)))
