"""A result as a table: aligned for terminals, or Markdown with what it was measured on."""

from collections.abc import Sequence

from localspec.bench.result import BenchResult, SummaryRow, Wire
from localspec.bench.statistics import Interval
from localspec.settings.sizes import counted, three_digits
from localspec.ui.columns import aligned

Cells = tuple[str, ...]
SHOWN = 8  # positions of a draft in a terminal
# Columns, in blocks of about 80 characters: a terminal has them one below the other.
RATES = ("tok/s", "× plain", "tok/pass", "accepted")
TIMES = ("draft/verify/host", "prompt tok/s", "ttft p50/p95", "total p50/p95")
DRAFTS = ("rule", "by position")
HOST = ("CPU", "BLAS")  # what names of devices begin with that compute in this machine's own memory
PAGE = ("tree", "length", "k", "peak memory", "answers", "stopped early")  # in Markdown only


def text(result: BenchResult) -> str:
    """Return a table in blocks for each temperature, without the columns that would be empty."""
    parts = []
    for temperature in temperatures(result):
        rows = [row for row in result.rows if row.temperature == temperature]
        last = DRAFTS if any(row.drafted for row in rows) else ()
        blocks = ["\n".join(aligned(_lines(rows, names, SHOWN))) for names in (RATES, TIMES, last) if names]
        parts.append("\n\n".join([f"T={temperature:g}\n{blocks[0]}", *blocks[1:]]))
    return "\n\n".join([*parts, _below(result)]) + "\n"


def markdown(result: BenchResult, command: str) -> str:
    """Return one table a temperature with every column, what it was measured on, and the command that measured it."""
    parts = [f"`{command}`\n\n{measured_on(result.provenance)}\n"]
    for temperature in temperatures(result):
        rows = [row for row in result.rows if row.temperature == temperature]
        names = (*RATES, *TIMES, *DRAFTS, *PAGE)
        parts += [f"### T={temperature:g}\n", piped(_lines(rows, names))]
    return "\n".join([*parts, _below(result)]) + "\n"


def piped(lines: Sequence[Cells]) -> str:
    head, *rest = (("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |") for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rest]) + "\n"


def fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


def temperatures(result: BenchResult) -> list[float]:
    return sorted({measurement.cell.temperature for measurement in result.measurements})


def measured_on(provenance: Wire) -> str:
    pair, machine, options = provenance["pair"], provenance["machine"], provenance["options"]
    files = " + ".join(
        f"{model['path'].rpartition('/')[2]} ({model['quant']}, {model['bytes'] / 1e6:.1f} MB, "
        f"sha256 {(model['sha256'] or 'unknown')[:12]})"
        for model in (pair["target"], pair["draft"])
        if model
    )
    versions = ", ".join(f"{name} {version}" for name, version in provenance["versions"].items())
    return (
        f"{files}; {machine['processor']}, {counted(machine['cores'], 'core')}, threads: {provenance['threads']}, "
        f"{machine['system']}; {versions}; suite {options['suite']}, {counted(options['n_prompts'], 'prompt')}, "
        f"{counted(options['max_tokens'], 'token')} an answer, {counted(options['repeats'], 'answer')} each, "
        f"{_cache(pair)}."
    )


def _cache(pair: Wire) -> str:
    n_bytes = sum(model["kv_bytes"] for model in (pair["target"], pair["draft"]) if model)
    return f"cache up to {n_bytes / 1e6:.1f} MB"


def _lines(rows: Sequence[SummaryRow], names: Sequence[str], shown: int | None = None) -> list[Cells]:
    """Return the head and a line for each row; with `shown`, that many positions at most, each below its like."""
    head = {"method": "method", **{name: name for name in names}}
    cells = [head, *({"method": row.contender, **_cells(row, shown)} for row in rows)]
    if shown is not None and "by position" in head:
        wide = max(len(cell["by position"]) for cell in cells)
        cells = [{**cell, "by position": cell["by position"].ljust(wide)} for cell in cells]
    return [tuple(cell[name] for name in head) for cell in cells]


def _cells(row: SummaryRow, shown: int | None) -> dict[str, str]:
    return {
        "tok/s": _spelt(row.tok_per_s, 1),
        "× plain": _spelt(row.ratio, 2),
        "tok/pass": _number(row.tokens_per_pass, 2),
        "accepted": "–" if row.acceptance is None else f"{row.acceptance:.0%}",
        "draft/verify/host": f"{row.draft_ms:.2f}/{row.verify_ms:.2f}/{row.host_ms:.2f} ms",
        "prompt tok/s": _number(row.prompt_per_s, 0),
        "ttft p50/p95": _pair(row.ttft_ms),
        "total p50/p95": _pair(row.total_ms),
        "rule": row.verify if row.drafted else "–",
        "by position": _by_position(row, shown),
        "tree": row.tree if row.drafted else "–",
        "length": row.length if row.drafted else "–",
        "k": str(row.k) if row.drafted and row.k else "–",
        "peak memory": f"{row.peak_memory / 1e6:.0f} MB" if row.peak_memory else "–",
        "answers": str(row.n),
        "stopped early": str(row.n_stopped),
    }


def _by_position(row: SummaryRow, shown: int | None) -> str:
    """Return the share of drafts that were accepted to each position, of those that were so long."""
    both = list(zip(row.accepted_per_pos, row.tested_per_pos, strict=True))
    width = 0 if shown is None else len("100%")
    shares = [f"{accepted / seen:.0%}".rjust(width) for accepted, seen in both[:shown] if seen]
    return " ".join([*shares, *(["…"] if len(both) > len(both[:shown]) else [])]) or "–"


def _below(result: BenchResult) -> str:
    peak = max((row.peak_memory for row in result.rows), default=0)
    notes = [
        "tok/s: decoding alone, median over prompts [95 % interval]",
        "× plain: the same, of the ratios to plain decoding on the same prompt",
        _cache(result.provenance["pair"]),
    ]
    if result.provenance["pair"]["draft"] is None and any(row.contender.startswith("auto") for row in result.rows):
        notes.append("auto had no draft model: none was loaded")
    outside = ", what lies on a GPU left out" if _has_gpu(result.provenance) else ""
    if peak:
        notes.append(f"peak resident memory while it answered, models included{outside}: {peak / 1e6:.0f} MB")
    if any(row.drafted for row in result.rows):
        notes.append("by position: of the drafts that were so long, those accepted to there")
    if result.row_costs:
        costs = ", ".join(f"{rows} {three_digits(ms)}" for rows, ms in result.row_costs)
        notes.append(f"ms of a target pass by rows: {costs}")
    stopped = sum(row.n_stopped for row in result.rows)
    if stopped:
        notes.append(f"{counted(stopped, 'answer')} ended before the last token: rates are of the tokens that came")
    short = _shorter(result)
    if short:
        notes.append(short)
    notes += [f"{name} was left out: {why}" for name, why in result.refused]
    if result.skipped:
        notes.append(f"{counted(result.skipped, 'prompt')} left out, too long for the context")
    if not result.is_complete:
        notes.append("interrupted: this is what was measured until then")
    return "\n".join(notes)


def _has_gpu(provenance: Wire) -> bool:
    models = (model for model in (provenance["pair"]["target"], provenance["pair"]["draft"]) if model)
    return any(not device.upper().startswith(HOST) for model in models for device in model["devices"])


def _shorter(result: BenchResult) -> str:
    """Return how many prompts have fewer tokens than were asked for, "" where none has."""
    asked = result.provenance["options"].get("prompt_tokens")
    lengths = {measurement.cell.prompt: measurement.prompt_n for measurement in result.measurements}
    short = [n for n in lengths.values() if asked is not None and n < asked]
    few = f"{len(short)} of {len(lengths)} prompts have fewer than the {asked} tokens asked for"
    return f"{few} (from {min(short)} on)" if short else ""


def _spelt(interval: Interval | None, digits: int) -> str:
    return "–" if interval is None else interval.spelt(digits)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _pair(both: tuple[float | None, float | None]) -> str:
    low, high = both
    if low is None or high is None:
        return "–"
    return f"{low:.0f}/{high:.0f} ms" if high < 10_000 else f"{low / 1e3:.1f}/{high / 1e3:.1f} s"
