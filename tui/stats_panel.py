"""The numbers beside the chat, as lines of text. Each is one of `Stats`; what was not measured is said to be so."""

from __future__ import annotations

import re
import textwrap

from textual.content import Content

from localspec.engine.events import Loaded
from localspec.sanitize import sanitize
from localspec.settings.sizes import counted
from localspec.tui.trace import Trace
from localspec.tui.widgets.folded import pieces
from localspec.ui import summary
from localspec.ui.glossary import TERMS
from localspec.ui.speedup import shown_after
from localspec.ui.stats import Stats

PANE = 35  # columns of the text beside the chat: the 40 of tui.tcss without border and padding
Part = tuple[str, str]  # text and style
POSITIONS = 8  # levels of the draft that get a bar
SOURCES = (("accepted", "corrected"), ("bonus", "plain"))  # two lines
_HASH = re.compile(r"(sha256-)?[0-9a-f]{64}(\.gguf)?")  # names of files that say nothing to people
_SPLIT = (("guess", "▒", "$origin-draft"), ("check", "█", "$primary"), ("rest", "░", "$muted"))


def split(stats: Stats) -> dict[str, float]:
    """Return the milliseconds of the mean pass by who took them; {} before there are enough passes."""
    n = stats.passes - 1
    if shown_after(stats.decode_ms, n) is None:
        return {}
    return {"guess": stats.draft_ms / n, "check": stats.verify_ms / n, "rest": (stats.sample_ms + stats.other_ms) / n}


def pane(trace: Trace | None, loaded: Loaded | None, width: int, *, is_loading: bool = False) -> Content:
    if trace is None or not trace.stats.passes:
        return _lines(_pair(loaded, width, is_loading=is_loading))
    stats = trace.stats
    lines = [*_speed(trace, width), [], *_passes(trace, width), [], *_accepted(stats, width)]
    if time := split(stats):
        lines += [[], *_time(time, width)]
    lines += [[], *_tokens(stats), [], *_verdict(trace, width)]
    return _lines(lines)


def strip(trace: Trace | None, width: int) -> Content:
    """Return the most wanted figures in two lines, for a small terminal; empty where there are none yet."""
    if trace is None or not trace.stats.passes:
        return Content("")
    stats = trace.stats
    first: list[Part] = [(_rate(trace), "bold $foreground")]
    first += [(" ", ""), *_speedup(stats)]
    first += [(f" {trace.meter.sparkline(max(0, min(16, width - 40)))}", "$primary")]
    share = summary.accepted(stats)
    right = f"{share} of guesses right" if share.endswith("%") else f"{share} guesses right"
    second: list[Part] = [(right if stats.drafted else "no guesses", "$origin-draft")]
    second += [(f" │ {_per_pass(stats)} tokens a pass", "$muted")]
    if time := split(stats):
        used, total = sum(len(text) for text, _ in second), f" │ {sum(time.values()):.1f} ms"
        parts = f" │ {' '.join(f'{name} {ms:.1f}' for name, ms in time.items())} ms"
        second += [(parts if used + len(parts) <= width else total, "$muted")]
    return _lines([first, second])


def cell(trace: Trace | None) -> Content:
    return Content("" if trace is None or not trace.stats.passes else f" {_rate(trace)}")


def verdict(trace: Trace) -> str:
    stats = trace.stats
    return sanitize(summary.verdict(stats)) + (" F6 turns drafting off." if summary.is_slower(stats) else "")


def explained(trace: Trace) -> list[tuple[str, str]]:
    rows = {
        "in short": verdict(trace) if trace.stats.finished is not None else "",
        "why": sanitize(summary.reason(trace.stats)) if trace.stats.finished is not None else "",
        "tok/s": TERMS["tok/s"].short,
        "guesses right": "tokens that were guessed and that the model kept, of all that were guessed",
        "tokens a pass": "what one run of the model wrote; without guesses it is 1",
        "guess, check, rest": "the milliseconds of a pass: guessing, the model's check, everything else",
        "× plain": TERMS["speedup"].short,
        "first token after": TERMS["time-to-first-token"].short,
    }
    return [(name, text) for name, text in rows.items() if text]


def _lines(lines: list[list[Part]]) -> Content:
    return Content("\n").join([Content.assemble(*line) for line in lines])


def _pair(loaded: Loaded | None, width: int, *, is_loading: bool) -> list[list[Part]]:
    if loaded is None:
        return [[("the pair is loading" if is_loading else "no pair is loaded", "$muted")]]
    lines: list[list[Part]] = []
    names = loaded.name.partition("+")
    for title, model, typed in (("TARGET", loaded.target, names[0]), ("DRAFT", loaded.draft, names[2])):
        lines.append([(title, "bold $primary")])
        if model is None:
            lines.append([(" none; /draft NAME loads one", "$muted")])
        else:
            file = model.path.rsplit("/", 1)[-1]
            name = sanitize(typed if typed and _HASH.fullmatch(file) else file)
            lines += [[(f" {part}", "")] for part in pieces(name, width - 1)]
            size = f" {_count(model.n_params)} parameters · {sanitize(model.quant)}"
            lines.append([(size, "$muted")])
            devices = ", ".join(map(sanitize, model.devices))
            where = f"{model.bytes / 1e6:.0f} MB, {counted(model.n_layer, 'layer')} on {devices}"
            lines += [[(f" {line}", "$muted")] for line in wrapped(where, width - 1)]
        lines.append([])
    lines.append([("The figures of the next answer", "$muted")])
    lines.append([("will be here.", "$muted")])
    return lines


def _speed(trace: Trace, width: int) -> list[list[Part]]:
    bars = trace.meter.sparkline(max(0, width - 16))
    rate: list[Part] = [(f" {_rate(trace):<13}", "bold $foreground"), (bars, "$primary")]
    stats = trace.stats
    speedup: list[list[Part]] = [[(f" {line}", "$muted")] for line in wrapped(summary.standing(stats), width - 1)]
    if stats.speedup is not None:
        speedup = [[(" ", ""), *_speedup(stats), (f"  {summary.interval(stats)}", "$muted")]]
    return [[("SPEED", "bold $primary")], rate, *speedup, *_baseline(stats)]


def _rate(trace: Trace) -> str:
    rate = summary.rate_of(trace.stats)
    if rate is not None and trace.stats.finished is None:
        rate = trace.meter.rate or rate
    return "- tok/s" if rate is None else f"{rate:.1f} tok/s"


def _speedup(stats: Stats) -> list[Part]:
    if stats.speedup is None:
        return [(summary.standing(stats), "$muted")]
    return [(summary.standing(stats), f"bold {'$warning' if summary.is_slower(stats) else '$success'}")]


def _baseline(stats: Stats) -> list[list[Part]]:
    if stats.baseline is None or stats.is_demonstration:
        return []
    rate, _, rest = summary.plain_rate(stats.baseline).partition(", ")  # together they are wider than the pane
    return [[(f" {line}", "$muted")] for line in (rate, rest)]


def _per_pass(stats: Stats, digits: int = 1) -> str:
    mean = shown_after(stats.tokens_per_pass, stats.passes - 1)
    return "-" if mean is None else f"{mean:.{digits}f}"


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _passes(trace: Trace, width: int) -> list[list[Part]]:
    stats = trace.stats
    head: list[Part] = [("PASSES ", "bold $primary"), (f"{stats.passes}", "bold"), ("  ", "")]
    head += [(f"{_per_pass(stats, 2)} tokens a pass", "")]
    started = stats.started
    if started is None:
        return [head]
    lines = [f"{started.method} k {started.k} · {started.tree} · {started.verify}"]
    if trace.request.speculation.method == "auto":  # what it may draft with tells nothing of what it did
        lines = [f"asked for: auto · {started.tree} · {started.verify}", summary.done(stats)]
    return [head, *([(f" {line}", "$muted")] for each in lines for line in wrapped(each, width - 1))]


def _accepted(stats: Stats, width: int) -> list[list[Part]]:
    head: list[Part] = [("GUESSES ", "bold $primary"), (summary.percent(summary.acceptance_of(stats)), "bold")]
    head += [(f"  {stats.accepted} of {stats.drafted} right", "$muted")]
    lines = [head]
    for position, rate in enumerate(summary.by_place(stats)[:POSITIONS], 1):
        if rate is None:
            continue
        room = max(4, width - 10)
        filled = round(rate * room)
        bar = [("━" * filled, "$origin-draft"), ("─" * (room - filled), "$muted")]
        lines.append([(f" {position} ", "$muted"), *bar, (f" {summary.percent(rate):>5}", "")])
    if len(lines) > 1:
        lines.append([(" guess n is right, if n-1 was", "$muted")])
    return lines


def _time(time: dict[str, float], width: int) -> list[list[Part]]:
    room, total = max(8, width - 3), sum(time.values())
    bar = [(mark * (round(room * time[name] / total) if total else 0), style) for name, mark, style in _SPLIT]
    words = [(f"{mark}{name} {_ms(time[name])} ", style) for name, mark, style in _SPLIT]
    return [[("A PASS ", "bold $primary"), (f"{total:.1f} ms", "bold")], [(" ", ""), *bar], [(" ", ""), *words]]


def _tokens(stats: Stats) -> list[list[Part]]:
    counts = [[(f" {f'{name} {stats.by_source.get(name, 0)}':<16}", "") for name in names] for names in SOURCES]
    if stats.forced:
        counts.append([(f" forced {stats.forced}", "")])
    return [[("TOKENS ", "bold $primary"), (f"{stats.emitted}", "bold")], *counts]


def _verdict(trace: Trace, width: int) -> list[list[Part]]:
    lines: list[list[Part]] = []
    plan = sanitize(trace.passes[-1].why) if trace.passes else ""
    if plan and trace.stats.finished is None:
        lines += [[("NOW", "bold $primary")], *([(f" {line}", "")] for line in wrapped(plan, width - 2))]
    lines.append([("IN SHORT", "bold $primary")])
    lines += [[(f" {line}", "")] for line in wrapped(verdict(trace), width - 2)]
    return lines


def wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _count(n: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return str(n)
