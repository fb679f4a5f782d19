"""A result as a table: aligned for terminals, or Markdown with what it was measured on."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.bench.result import Result, Wire
from localspec.bench.statistics import Interval
from localspec.bench.summary import Row

HEAD = ("method", "tok/s", "× plain", "tok/pass", "accepted", "draft/verify/host", "ttft p50/p95", "total p50/p95")
MORE = ("by position", "prompt tok/s", "rule", "answers", "stopped early", "J/token")
Cells = tuple[str, ...]


def text(result: Result) -> str:
    """Return one table a temperature for a terminal."""
    parts = []
    for temperature in temperatures(result):
        lines = aligned([HEAD, *(_cells(row) for row in result.rows if row.temperature == temperature)])
        parts.append("\n".join([f"T={temperature:g}", *lines]))
    return "\n\n".join([*parts, _below(result)]) + "\n"


def markdown(result: Result, command: str) -> str:
    """Return the same with every column, what it was measured on, and the command that measured it."""
    parts = [f"`{command}`\n\n{measured_on(result.provenance)}\n"]
    for temperature in temperatures(result):
        parts.append(f"### T={temperature:g}\n")
        parts.append(piped([HEAD + MORE, *(_cells(r) + _more(r) for r in result.rows if r.temperature == temperature)]))
    return "\n".join([*parts, _below(result)]) + "\n"


def aligned(lines: Sequence[Cells]) -> list[str]:
    """Return lines with columns of one width, the first to the left and the others to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        ).rstrip()
        for line in lines
    ]


def piped(lines: Sequence[Cells]) -> str:
    """Return a Markdown table."""
    head, *rest = (("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |") for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rest]) + "\n"


def temperatures(result: Result) -> list[float]:
    """Return the temperatures, ascending."""
    return sorted({one.cell.temperature for one in result.measurements})


def measured_on(provenance: Wire) -> str:
    """Return one sentence: the pair, the machine and the versions."""
    pair, machine, options = provenance["pair"], provenance["machine"], provenance["options"]
    files = " + ".join(
        f"{model['path'].rpartition('/')[2]} ({model['quant']}, {model['bytes'] / 1e6:.1f} MB, "
        f"sha256 {(model['sha256'] or 'unknown')[:12]})"
        for model in (pair["target"], pair["draft"])
        if model
    )
    versions = ", ".join(f"{name} {version}" for name, version in provenance["versions"].items())
    kv = sum(model["kv_bytes"] for model in (pair["target"], pair["draft"]) if model)
    return (
        f"{files}; {machine['processor']}, {machine['cores']} cores, threads: {provenance['threads']}, "
        f"{machine['system']}; {versions}; suite {options['suite']}, {options['n_prompts']} prompts, "
        f"{options['max_tokens']} tokens an answer, {options['repeats']} answers each, cache {kv / 1e6:.1f} MB."
    )


def _cells(row: Row) -> Cells:
    return (
        row.contender,
        _spelt(row.tok_per_s, 1),
        _spelt(row.ratio, 2),
        _number(row.tokens_per_pass, 2),
        "–" if row.acceptance is None else f"{row.acceptance:.0%}",
        f"{row.draft_ms:.2f}/{row.verify_ms:.2f}/{row.host_ms:.2f} ms",
        _pair(row.ttft_ms),
        _pair(row.total_ms),
    )


def _more(row: Row) -> Cells:
    by_position = [
        f"{kept / seen:.0%}" for kept, seen in zip(row.accepted_per_pos, row.tested_per_pos, strict=True) if seen
    ]
    return (
        " ".join(by_position) or "–",
        _number(row.prompt_per_s, 0),
        row.verify if row.k else "–",
        str(row.n),
        str(row.n_stopped),
        _number(row.joules_per_token, 2),
    )


def _below(result: Result) -> str:
    """Return what a reader must know of the figures."""
    kv = sum(model["kv_bytes"] for model in (result.provenance["pair"][key] for key in ("target", "draft")) if model)
    peak = max((row.peak_memory for row in result.rows), default=0)
    notes = [
        "tok/s: decoding alone, median over prompts [95 % interval]; × plain: the same prompt's ratio",
        f"cache {kv / 1e6:.1f} MB, peak memory {peak / 1e6:.0f} MB",
    ]
    if result.row_costs:
        costs = ", ".join(f"{rows} {ms:.3g}" for rows, ms in result.row_costs)
        notes.append(f"ms of a target pass by rows: {costs}")
    stopped = sum(row.n_stopped for row in result.rows)
    if stopped:
        notes.append(f"{stopped} answers ended before their last token: rates are of the tokens they have")
    if result.skipped:
        notes.append(f"{result.skipped} prompts did not fit the context and were left out")
    if not result.is_complete:
        notes.append("interrupted: this is what was measured until then")
    return "\n".join(notes)


def _spelt(interval: Interval | None, digits: int) -> str:
    return "–" if interval is None else interval.spelt(digits)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _pair(both: tuple[float | None, float | None]) -> str:
    low, high = both
    if low is None or high is None:
        return "–"
    return f"{low:.0f}/{high:.0f} ms" if high < 10_000 else f"{low / 1e3:.1f}/{high / 1e3:.1f} s"
