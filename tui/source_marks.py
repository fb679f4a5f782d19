"""An answer shown by where each token came from: colour, and a mark for all that is not the draft model's.

Accepted from the draft model: green, unmarked. Copied from the text ‹so›, drafted by the target itself ⟨so⟩, corrected
⟦so⟧, bonus so⁺, plain ·so·. Rejected drafts, where they are revealed, are struck through.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from textual.content import Content

from localspec.ui.sources import Span

_MARKS = {"copied": ("‹", "›"), "early": ("⟨", "⟩"), "corrected": ("⟦", "⟧"), "bonus": ("", "⁺"), "plain": ("·", "·")}
LEGEND = (
    ("draft", "draft"),
    ("copied", "‹copied›"),
    ("early", "⟨early⟩"),
    ("corrected", "⟦corrected⟧"),
    ("bonus", "bonus⁺"),
    ("plain", "·plain·"),
)


class View(Enum):
    """The ways to show answers; F3 goes round."""

    OFF = "off"
    FULL = "full"
    MARKS = "marks"  # without colours

    def next(self) -> View:
        views = list(View)
        return views[(views.index(self) + 1) % len(views)]


def marked(origins: Iterable[Span], view: View, *, is_revealed: bool = False) -> Content:
    parts: list[tuple[str, str]] = []
    merged = _merged(origins)
    if {origin.source for origin in merged} <= {"plain"}:  # nothing to tell apart
        return Content("".join(origin.text for origin in merged))
    for origin in merged:
        if origin.source == "rejected":
            if is_revealed:
                parts.append((origin.text.replace("\n", "↵"), "$origin-rejected strike"))
            continue
        style = f"$origin-{origin.source}" if view is View.FULL else ""
        before, after = _MARKS.get(origin.source, ("", ""))
        word = origin.text.lstrip()
        if not word:
            parts.append((origin.text, style))
            continue
        space = origin.text[: len(origin.text) - len(word)]
        body = word.rstrip()
        parts.append((f"{space}{before}{body}{after}{word[len(body) :]}", style))
    return Content.assemble(*parts)


def legend(origins: Iterable[Span], view: View) -> Content:
    sources = {origin.source for origin in origins}
    shown = [
        (f"{text} ", f"$origin-{source}" if view is View.FULL else "$muted")
        for source, text in LEGEND
        if source in sources
    ]
    return Content.assemble(*shown)


def _merged(origins: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for origin in origins:
        is_run = origin.source in ("draft", "copied", "early", "plain")
        if merged and is_run and merged[-1].source == origin.source:
            merged[-1] = Span(merged[-1].text + origin.text, origin.source)
        else:
            merged.append(origin)
    return merged
