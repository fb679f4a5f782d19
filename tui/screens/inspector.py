"""The passes of one answer, one a row: what was drafted, what stands, what it cost, and why."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import DataTable, Static

from localspec.engine.events import Committed
from localspec.sanitize import sanitize
from localspec.settings.sizes import counted
from localspec.tui.screens.dialog import OverChat
from localspec.tui.trace import Trace
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.notices import NoticeBar
from localspec.ui.summary import done

MAX_PASSES = 5000  # passes that are listed
COLUMNS = {  # F1 says what each is
    "pass": "one run of the model; the first is the prompt's, whose time is the prompt's too",
    "at": "tokens of the text before this pass",
    "drafter": "who guessed",
    "k": "how many tokens were guessed",
    "right": "how many of these the model kept",
    "text": "what the pass wrote",
    "refused": "guesses that the model did not keep",
    "guess": "milliseconds of guessing",
    "check": "milliseconds in which the model checked the guesses",
    "rest ms": "milliseconds of everything else",
    "why": "why so many were guessed",
}


class Inspector(OverChat, Screen[None]):
    """A table of passes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "back", show=True)]

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    @property
    def about(self) -> list[tuple[str, list[tuple[str, str]]]]:
        rows = [*COLUMNS.items(), ("timing", "a pass without guesses, which is timed to compare with")]
        return [("The passes of an answer", rows)]

    def compose(self) -> ComposeResult:
        stats = self._trace.stats
        head = f"Passes {stats.passes}  ·  {counted(stats.emitted, 'token')}"
        head += f"  ·  {stats.accepted} of {stats.drafted} guesses right"
        head += f"  ·  asked for: {self._trace.request.speculation.method}, {done(stats)}"
        yield Static(Content.styled(head, "bold"), classes="title", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield NoticeBar()
        yield Keys()

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        table.add_columns(*COLUMNS)
        for event in self._trace.passes[:MAX_PASSES]:
            table.add_row(*map(Text, _row(event)))
        table.focus()


def _row(event: Committed) -> list[str]:
    ms = event.ms
    refused = "".join(piece.text for piece in event.drafted if piece.source == "rejected")
    return [
        f"{event.index}{' timing' if event.is_probe else ''}",
        str(event.position),
        sanitize(event.drafter) or "-",
        str(event.k),
        str(event.n_accepted),
        _cell("".join(piece.text for piece in event.out), 36),
        _cell(refused, 24),
        f"{ms.draft:.1f}",
        f"{ms.verify:.1f}",
        f"{ms.sample + ms.other:.1f}",
        _cell(event.why, 60),
    ]


def _cell(text: str, most: int) -> str:
    text = sanitize(text).replace("\n", "↵").replace("\t", "→")
    return text if len(text) <= most else f"{text[: most - 1]}…"
