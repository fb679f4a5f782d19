"""The same numbers in three sizes: the live status, the stats line, and the table of /stats."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.engine.events import NOT_YET
from localspec.settings.sizes import count, counted
from localspec.ui.speedup import shown_after
from localspec.ui.stats import Baseline, Stats, Waited

COPY = "copy"  # the method that drafts beside a draft model
ABOUT = 1.25  # an interval within this factor of 1 tells that two speeds are about the same
PLAIN = "plain decoding"
ALIKE = "about the speed of plain decoding"
UNCLEAR = "no clear difference from plain"
DEMONSTRATION = "demonstration: too small to gain"
# Where a line has no room.
BRIEF = {PLAIN: "plain", ALIKE: "plain's speed", UNCLEAR: "not clearly faster", "speedup unknown": ""}
SENTENCES = {
    PLAIN: "This answer was decoded plainly",
    ALIKE: "This answer ran at about the speed of plain decoding",
    DEMONSTRATION: "This pair demonstrates drafting: it is so small that no time is won",
    UNCLEAR: "This answer was not clearly faster or slower than plain decoding",
}


def live_line(stats: Stats) -> str:
    """Return the status while text is coming, the most wanted number first: narrow terminals cut it."""
    parts = []
    rate = rate_of(stats)
    parts.append(counted(stats.emitted, "token") if rate is None else f"{rate:.1f} tok/s")
    if stats.speedup is not None:
        parts.append(standing(stats))
    if stats.drafted:
        parts.append(f"{accepted(stats)} of guesses right")
    if stats.drafted and rate is not None:
        parts.append(f"{stats.tokens_per_pass or 0:.1f} tokens a pass")
    if stats.ways.is_remote:
        parts.append(stats.ways.line())
    return " · ".join(parts)


def stats_line(stats: Stats, width: int | None = None) -> str:
    """Return the line that stands below an answer; with a width as much of it as has room in one line."""
    from localspec.conversations.records import ending  # late: a Python without SQLite runs all but conversations

    started = stats.started
    compared, _, plain = speedup_words(stats).partition(" (") if stats.wide_passes else ("", "", "")
    if not stats.wide_passes and started is not None and stats.emitted and (started.k == 0 or stats.passes > 1):
        compared = PLAIN
    notes = []
    if started is not None and not started.is_lossless:
        notes.append(f"approximate: {started.verify} changes the distribution")
    if started is not None and started.widths:
        notes.append(f"reproducible, widths 1 to {started.widths[-1]}")
    if stats.ways.is_remote:
        notes.append(stats.ways.line())
    figures = _Figures(
        None if started is None else stats.emitted, rate_of(stats), compared, stats.drafted, stats.accepted,
        acceptance_of(stats), shown_after(stats.tokens_per_pass, stats.passes - 1),
        "" if started is None else stats.waited,
        plain.removesuffix(")"), notes, stats.forced,
    )  # fmt: skip
    reason = "" if stats.finished is None else stats.finished.reason
    ended = ending(reason) if reason in ("interrupted", "timeout", "length") else ""
    return figures.line(ended, width)


def kept_line(stored: Mapping[str, Any], width: int | None = None) -> str:
    """Return that line for an answer of an earlier run, from what was kept of it: the object of --json."""
    timings, spec = stored.get("timings") or {}, stored.get("spec") or {}
    drafted, speedup = timings.get("draft_n"), spec.get("speedup")
    forced = spec.get("forced") or 0
    compared = PLAIN if drafted == forced == 0 and timings.get("predicted_n") else ""
    if speedup is not None:
        low, high = spec.get("speedup_ci95") or (speedup, speedup)
        compared = f"{speedup:.2f}× plain, {low:.2f} to {high:.2f}"
    parts, first_ms = timings.get("parts_ms"), timings.get("first_token_ms", timings.get("ttft_ms"))
    first = "" if first_ms is None else f"first token after {first_ms / 1e3:.2f} s"
    took = Waited(**parts) if parts else first
    n = (spec.get("passes") or timings.get("predicted_n") or 0) - 1
    n_accepted, n_drafting = timings.get("draft_n_accepted") or 0, spec.get("drafting_passes", n)
    share = shown_after(n_accepted / drafted, n_drafting) if drafted else None
    figures = _Figures(
        timings.get("predicted_n"), shown_after(timings.get("predicted_per_second"), n), compared, drafted or 0,
        n_accepted, share, shown_after(spec.get("tokens_per_pass"), n), took, forced=forced,
    )  # fmt: skip
    return figures.line("", width)


def kept_figures(stored: Mapping[str, Any]) -> str:
    seed = stored.get("seed")
    return " · ".join(filter(None, (kept_line(stored), "" if seed is None else f"seed {seed}")))


@dataclass(frozen=True, slots=True)
class _Figures:
    """The figures of the line below an answer; None for what is not known."""

    n: int | None
    rate: float | None
    compared: str  # with plain decoding, in words
    drafted: int
    accepted: int
    share: float | None  # of the drafted tokens that were accepted
    per_pass: float | None
    took: Waited | str | None  # a text where the parts are not known
    plain: str = ""  # what `compared` is measured against
    notes: Sequence[str] = ()
    forced: int = 0

    def line(self, ended: str, width: int | None) -> str:
        """Return the line; where that is wider than `width`, the least wanted parts are left out, one by one."""
        n, share = self.n, "" if self.share is None else percent(self.share)
        counts = f"{self.accepted} of {self.drafted} guesses right" if self.drafted else ""
        parts = {
            "tokens": "" if n is None else counted(n, "token"),
            "rate": "" if self.rate is None else f"{self.rate:.1f} tok/s",
            "compared": self.compared + (f" ({self.plain})" if self.plain else ""),
            "accepted": f"{counts} ({share})" if share else counts,
            "forced": f"{self.forced} forced" if self.forced else "",
            "a pass": f"{self.per_pass:.1f} tokens a pass" if self.per_pass and (counts or self.forced) else "",
            "notes": " · ".join(self.notes),
            "took": seconds(self.took),
            "ended": ended,
        }
        right = f"{share} of guesses right" if share else counts
        took = seconds(self.took, is_brief=True)
        words = re.split("[:,]", self.compared)[0]  # without the reason, or the interval
        shorter = [("a pass", ""), ("compared", self.compared), ("accepted", right), ("took", took)]
        shorter += [("compared", words), ("compared", BRIEF.get(words, words)), ("forced", ""), ("accepted", "")]
        for name, text in (*shorter, ("tokens", ""), ("took", took.partition(" (")[0]), ("compared", ""), ("took", "")):
            if width is None or len(_joined(parts)) <= width:
                break
            parts[name] = text
        return _joined(parts)


def _joined(parts: Mapping[str, str]) -> str:
    return " · ".join(filter(None, parts.values()))


def verdict(stats: Stats, *, is_below: bool = False) -> str:
    """Return one short sentence: how fast this answer was beside plain decoding, or what the controller found."""
    if stats.started is None:
        return ""
    return f"{_capital(_found(stats)) if _is_found(stats, is_below=is_below) else _sentence(stats)}."


def reason(stats: Stats, *, is_below: bool = False) -> str:
    if stats.finished is None or not _found(stats):
        return ""
    why_not = "" if _is_found(stats, is_below=is_below) else _found(stats)
    text = "; ".join(filter(None, (why_not, stats.finished.cause, _saving(stats))))
    return f"{_capital(text)}." if text else ""


def _found(stats: Stats) -> str:
    return "" if stats.finished is None else stats.finished.verdict.rstrip(".")


def _is_found(stats: Stats, *, is_below: bool) -> bool:
    """Whether the controller's words are the verdict, and not the speed."""
    is_untimed = is_below or not stats.wide_passes or stats.comparison is None
    return bool(_found(stats)) and is_untimed and stats.speedup is None


def _saving(stats: Stats) -> str:
    draft = None if stats.loaded is None else stats.loaded.draft
    is_used = any(n for name, (n, _) in stats.drafters.items() if name != COPY)
    if draft is None or not draft.load_ms or is_used or (stats.finished and NOT_YET in stats.finished.cause):
        return ""
    option = "-m" if stats.ways.is_remote else "-d"  # an edge has the draft alone
    megabytes = (draft.bytes + draft.kv_bytes) / 1e6
    return f"{option} none saves {megabytes:.0f} MB and {draft.load_ms / 1e3:.1f} s of loading"


def done(stats: Stats) -> str:
    counts = ", ".join(f"{name or 'unnamed'} {n}" for name, (n, _) in sorted(stats.drafters.items()))
    return f"guessed: {counts}" if counts else "decoded plainly"


def _sentence(stats: Stats) -> str:
    if stats.speedup is None:
        words = standing(stats)
        return SENTENCES.get(words, _capital(words))
    times = f"{stats.speedup:.2f} times as fast as plain decoding ({interval(stats)})"
    return f"Guesses made this answer {'slower: ' if is_slower(stats) else ''}{times}"


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def plans(stats: Stats) -> str:
    lines = []
    for name, plan in stats.foreseen.items():
        n = plan.passes
        rows = counted(plan.most, "row") if plan.fewest == plan.most else f"{plan.fewest} to {plan.most} rows"
        planned = f"{plan.promised_tokens / n:.1f} tokens in {plan.promised_ms / n:.1f} ms"
        came = f"{plan.tokens / n:.1f} in {plan.ms / n:.1f} ms"
        drafted = f"{name} drafted in {counted(n, 'pass', 'passes')} of {rows}"
        lines.append(f"{drafted}: a pass was expected to give {planned}, and gave {came}")
    return "; ".join(lines)


def ttft_ms(stats: Stats) -> float | None:
    """Return the engine's milliseconds to the first token, None if none came: what stopped earlier has no number."""
    return stats.finished.ttft_ms if stats.finished is not None and stats.emitted else None


def is_slower(stats: Stats) -> bool:
    return stats.speedup is not None and stats.speedup < 1.0


def standing(stats: Stats) -> str:
    if not stats.wide_passes:
        return PLAIN if stats.started is not None and stats.started.k == 0 else "nothing was guessed"
    if stats.is_demonstration:
        return DEMONSTRATION
    comparison = stats.comparison
    if comparison is None or comparison.why_not:
        return f"speedup unknown: {stats.why_not}"
    if stats.speedup is not None:
        return f"{stats.speedup:.2f}× plain"
    if not comparison.holds_one:
        return f"only {stats.wide_passes} of {counted(stats.passes - 1, 'pass', 'passes')} drafted"
    is_alike = stats.drafted_little or (comparison.low * ABOUT >= 1.0 and comparison.high <= ABOUT)
    return ALIKE if is_alike else UNCLEAR


def interval(stats: Stats) -> str:
    comparison = stats.comparison
    return "" if comparison is None or stats.speedup is None else f"{comparison.low:.2f} to {comparison.high:.2f}"


def speedup_words(stats: Stats) -> str:
    if stats.baseline is None or not stats.wide_passes or stats.is_demonstration:
        return standing(stats)
    shown = "" if stats.speedup is None else f", {interval(stats)}"
    return f"{standing(stats)}{shown} ({plain_rate(stats.baseline)})"


def plain_rate(baseline: Baseline) -> str:
    """Return how fast plain decoding is, by how many passes, and how long before the answer's end the last of them was.
    No word says that this is now: the line stays below the answer."""
    when = "" if baseline.age_s < 60 else f", last {age(baseline.age_s)} before the end"
    return f"plain {baseline.tok_per_s:.1f} tok/s, timed in {counted(baseline.n, 'pass', 'passes')}{when}"


def age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else "hours"


def table(stats: Stats) -> str:
    rows: list[tuple[str, str]] = []
    if stats.started is not None:
        s = stats.started
        axes = f"{s.method}, {s.tree}, {s.length}, k {s.k}, verified by {s.verify}"
        rows.append(("speculation", axes))
        rows.append(("seed", str(s.seed) if s.is_seeded else f"{s.seed}, drawn"))
    if stats.prefilled is not None:
        p = stats.prefilled
        cached = f"{count(p.cache_n)} of {count(p.prompt_n)} prompt tokens from the cache"
        rows.append(("prompt", cached))
    if stats.started is not None:
        rows.append(("answer", f"{counted(stats.emitted, 'token')} in {counted(stats.passes, 'pass', 'passes')}"))
    if stats.tok_per_s is not None:
        rate = rate_of(stats)
        rows.append(("speed", ("" if rate is None else f"{rate:.1f} tok/s, ") + speedup_words(stats)))
    if stats.drafted:
        rows += _draft_rows(stats)
    elif stats.forced:
        rows.append(_tokens_row(stats))
    if shown_after(stats.decode_ms, stats.passes - 1):
        n = stats.passes - 1  # the prompt's own pass is timed with the prompt
        parts = (("guess", stats.draft_ms), ("check", stats.verify_ms), ("choose", stats.sample_ms))
        times = " · ".join(f"{name} {ms / n:.1f}" for name, ms in (*parts, ("rest", stats.other_ms)))
        rows.append(("ms a pass", times))
    words = (("seconds", seconds(stats.waited)), ("plans", plans(stats)), ("in short", verdict(stats)))
    rows += [(name, text) for name, text in (*words, ("why", reason(stats))) if text]
    if stats.finished is not None and stats.finished.peak_memory:
        rows.append(("peak memory", f"{stats.finished.peak_memory / 2**20:.0f} MiB"))
    return "\n".join(f"  {name:<12} {value}" for name, value in rows)


def _draft_rows(stats: Stats) -> list[tuple[str, str]]:
    counts, share = f"{stats.accepted} of {stats.drafted} right", acceptance_of(stats)
    if share is None:
        return [("guesses", counts), _tokens_row(stats)]
    return [
        ("guesses", f"{counts} ({percent(share)})"),
        ("by place", f"{places(stats)} (where all before were right)"),
        _tokens_row(stats),
        ("a pass", f"{stats.tokens_per_pass or 0:.2f} tokens, {stats.accepted_length or 0:.2f} of them guesses"),
    ]


def rate_of(stats: Stats) -> float | None:
    return shown_after(stats.tok_per_s, stats.passes - 1)


def acceptance_of(stats: Stats) -> float | None:
    return shown_after(stats.acceptance, stats.drafting_passes)


def accepted(stats: Stats) -> str:
    share = acceptance_of(stats)
    return f"{stats.accepted} of {stats.drafted}" if share is None else percent(share)


def by_place(stats: Stats) -> list[float | None]:
    return [shown_after(rate, seen) for rate, seen in zip(stats.conditional, stats.reached, strict=True)]


def places(stats: Stats) -> str:
    named = zip(("1st", "2nd", "3rd", *(f"{n}th" for n in range(4, 65))), by_place(stats), strict=False)
    return " · ".join(f"{name} {percent(rate)}" for name, rate in named if rate is not None)


def seconds(waited: Waited | str | None, *, is_brief: bool = False) -> str:
    """Return the seconds that an answer took, and in brackets those of its parts, which add up to them; "" for none.

    In brief the start is a part of the load.
    """
    if not isinstance(waited, Waited):
        return waited or ""
    if is_brief and waited.load:
        waited = replace(waited, start=0.0, load=waited.start + waited.load)
    digits = 1 if is_brief or waited.total >= 2000.0 else 2
    spans = [(name, round(getattr(waited, name) / 1e3, digits)) for name in ("start", "load", "read", "write")]
    parts = ", ".join(f"{name} {s:.{digits}f}" for name, s in spans if s)
    return f"{sum(s for _, s in spans):.{digits}f} s" + (f" ({parts})" if parts else "")


def _tokens_row(stats: Stats) -> tuple[str, str]:
    return "tokens", " · ".join(f"{name} {n}" for name, n in stats.by_source.items() if n)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
