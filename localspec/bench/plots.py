"""Figures of a result, each as PNG and SVG. matplotlib is an extra, imported when a plot is asked for.

The functions take plain numbers, so that other measurements can be drawn with them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.bench.contenders import PLAIN, without_size
from localspec.bench.result import BenchResult
from localspec.bench.statistics import Interval
from localspec.bench.table import temperatures
from localspec.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (7.0, 4.0)  # inches
COLOURS = 10  # of matplotlib's cycle; beyond that they come again, with another mark
MARKS = "os^Dv"


def require_plots() -> None:
    """Raise UsageError where matplotlib is not installed: before anything is measured."""
    if find_spec("matplotlib") is None:
        raise UsageError("--plots needs matplotlib, which is not installed", hint="pip install 'localspec[plots]'")


def draw(result: BenchResult, folder: Path) -> list[Path]:
    """Write every figure that the result has numbers for; return the files. Raises ResourceError."""
    figures = {}
    for temperature in temperatures(result):
        rows = [row for row in result.rows if row.temperature == temperature]
        t = f"{temperature:g}"
        speeds = {row.contender: row.ratio for row in rows if row.contender != PLAIN and row.ratio is not None}
        positions = {
            row.contender: [n / seen for n, seen in zip(row.accepted_per_pos, row.tested_per_pos, strict=True)]
            for row in rows
            if row.drafted and row.tested_per_pos
        }
        sizes: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            if row.drafted and row.tokens_per_pass is not None:
                longest = row.k or len(row.tested_per_pos)  # copies that auto drafts without a draft model have no k
                sizes.setdefault(without_size(row.contender), []).append((longest, row.tokens_per_pass))
        if speeds:
            figures[f"speedup-T{t}"] = speedup(speeds, f"T={t}")
        if positions:
            figures[f"acceptance-T{t}"] = acceptance(positions, f"T={t}")
        if sizes:
            figures[f"tokens-per-pass-T{t}"] = tokens_per_pass(sizes, f"T={t}")
    if result.row_costs:
        figures["row-cost"] = row_cost(result.row_costs)
    return [path for name, figure in figures.items() for path in _save(figure, folder / name)]


def speedup(ratios: Mapping[str, Interval], title: str = "") -> Figure:
    """Draw the speed of each method over plain decoding with its interval."""
    figure, axes = _axes(title)
    names = list(ratios)
    for at, interval in enumerate(ratios.values()):
        axes.barh(at, interval.median, color="C0", height=0.6)
        if interval.low is not None and interval.high is not None:
            axes.plot([interval.low, interval.high], [at, at], color="black", linewidth=1.5)
    axes.axvline(1.0, color="grey", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(names)), [_plain_text(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("speed over plain decoding (median, 95 % interval)")
    return figure


def acceptance(shares: Mapping[str, Sequence[float]], title: str = "") -> Figure:
    """Draw the share of passes that accepted more than i tokens, of those whose draft was deeper than i."""
    figure, axes = _axes(title)
    for at, (name, values) in enumerate(shares.items()):
        mark = MARKS[at // COLOURS % len(MARKS)]
        axes.plot(range(1, len(values) + 1), values, marker=mark, label=_plain_text(name))
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted to here")
    axes.set_ylim(0, 1.02)
    figure.legend(loc="outside right upper")  # there may be a dozen, and no room among the lines
    return figure


def row_cost(costs: Sequence[tuple[int, float]]) -> Figure:
    figure, axes = _axes("")
    ordered = sorted(costs)
    axes.step([n for n, _ in ordered], [ms for _, ms in ordered], where="post", marker="o")
    axes.set_xlabel("rows of one target pass")
    axes.set_ylabel("ms")
    axes.set_ylim(bottom=0)
    return figure


def tokens_per_pass(sizes: Mapping[str, Sequence[tuple[int, float]]], title: str = "") -> Figure:
    """Draw tokens a pass against the size of the tree, a line a shape."""
    figure, axes = _axes(title)
    for name, points in sizes.items():
        ordered = sorted(points)
        axes.plot([n for n, _ in ordered], [value for _, value in ordered], marker="o", label=_plain_text(name))
    axes.set_xlabel("draft tokens of a pass, at most")
    axes.set_ylabel("tokens a pass")
    axes.set_ylim(bottom=1)
    axes.legend()
    return figure


def _axes(title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # no pyplot: no window, no global state

    figure = Figure(figsize=SIZE, layout="constrained")
    axes: Any = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def _plain_text(name: str) -> str:
    return name.replace("$", r"\$")  # no formula


def _save(figure: Figure, stem: Path) -> list[Path]:
    paths = [stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")]
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            figure.savefig(path, dpi=150)
    except OSError as error:
        raise ResourceError(f"cannot write {error.filename}: {error.strerror}", hint="--plots FOLDER") from None
    return paths
