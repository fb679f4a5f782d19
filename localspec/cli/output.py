"""Writes an answer: as text for people, or as one JSON object; `stream` has the lines of JSON.

A sink sees every event in order, then `finish` or `fail`, once. It owns stdout; stderr is the console's. Tokens are
marked by source: accepted as it is (green), corrected ⟦so⟧, bonus so⁺. The marks carry the meaning, not the colour.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

from localspec.cli.console import Console, columns_of_stdout, is_accessible, is_terminal, write_out, write_text
from localspec.cli.live import SGR, Live, WordWrap
from localspec.engine.events import Committed, Event, Finished
from localspec.errors import INTERRUPTED, TIMED_OUT
from localspec.sanitize import Sanitizer
from localspec.settings.request import LoadSettings, Request
from localspec.ui.sources import SourceSpans, Span
from localspec.ui.stats import Stats

if TYPE_CHECKING:
    from localspec.chat.state import ChatState


MAX_HELD = 400  # characters that are held back, where no sentence ends
_END = re.compile(r".*(?:[.!?…:;][\"')\]»”’]*\s|[。！？]|\n)", re.DOTALL)
_GREEN, _RESET = "\x1b[32m", "\x1b[0m"
Wire = dict[str, Any]


class Sink(Protocol):
    def event(self, event: Event) -> None: ...
    def finish(self, stats: Stats) -> None: ...
    def fail(self, error: Wire) -> None: ...


class TextSink:
    """The text itself, flushed per pass, to an accessible terminal by sentences.

    On a terminal it is made safe, wrapped at words, loses a blank at its beginning, and ends in a fresh line. The
    reasoning goes before it there, dim; `-q` and an accessible terminal have the answer alone, as a pipe does. `label`
    goes before the first text, and is not part of it.
    """

    def __init__(
        self,
        console: Console,
        live: Live,
        *,
        control: str = "auto",
        has_marks: bool = False,
        label: str = "",
    ) -> None:
        self._live = live
        self._is_terminal = is_terminal(sys.stdout)
        is_shown = control == "show" or (control == "auto" and self._is_terminal)
        self._sanitizer = Sanitizer() if is_shown else None
        self._spans = SourceSpans() if has_marks else None
        self._can_color = console.can_color(sys.stdout)
        self._sentences = Sentences() if self._is_terminal and is_accessible() else None
        is_wrapped = self._is_terminal and is_shown and self._sentences is None
        self._wrap = WordWrap() if is_wrapped else None
        self._label = label
        self._has_begun = not self._is_terminal
        self._last = ""
        self._console = console
        self._shows_reasoning = self._is_terminal and self._sentences is None and not console.quiet
        self._is_reasoning = False  # some of it was shown
        self._reasoning = Sanitizer()

    def event(self, event: Event) -> None:
        if not isinstance(event, Committed | Finished):
            return
        if self._shows_reasoning:
            self._put_reasoning(event.reasoning)
        if self._spans is None:
            text = event.text if isinstance(event, Committed) else event.tail
            self._put(self._begun(self._safe(text)))
            return
        spans = self._spans.feed(event) if isinstance(event, Committed) else self._spans.release(event.tail)
        safe = [Span(self._begun(self._safe(span.text)), span.source) for span in spans]
        self._put("".join(marked(span, can_color=self._can_color) for span in safe))

    def finish(self, stats: Stats) -> None:
        """End the text with one newline; a terminal that is on a fresh line already gets none."""
        if self._sanitizer is not None:
            self._put(self._sanitizer.finish())
        self._put_rest()
        self._live.erase()
        if not (self._is_terminal and self._last.endswith("\n")):
            self._live.write("\n")

    def fail(self, error: Wire) -> None:
        self._put_rest()
        self._live.erase()
        if self._last and not self._last.endswith("\n"):
            self._live.write("\n")

    def _safe(self, text: str) -> str:
        return text if self._sanitizer is None else self._sanitizer.feed(text)

    def _begun(self, text: str) -> str:
        """Return the text without the blank that many answers begin with: on a terminal it only indents a line."""
        if self._has_begun or not text:
            return text
        self._has_begun = True
        return ("\n\n" if self._is_reasoning else "") + text.removeprefix(" ")

    def _put_reasoning(self, text: str) -> None:
        text = self._reasoning.feed(text)
        if text:
            text, self._is_reasoning = text if self._is_reasoning else f"thinking: {text}", True
            self._put(self._console.paint(text, "dim", sys.stdout))

    def _put_rest(self) -> None:
        if self._sentences is not None:
            rest, self._sentences = self._sentences.finish(), None
            self._put(rest)
        if self._wrap is not None:
            self._show(self._wrap.finish(columns_of_stdout()))

    def _put(self, text: str) -> None:
        if self._sentences is not None:
            text = self._sentences.feed(text)
        if text and self._label:
            self._label, label = "", self._label
            self._show(label if self._wrap is None else self._wrap.feed(label, columns_of_stdout()))
        self._show(text if self._wrap is None else self._wrap.feed(text, columns_of_stdout()))

    def _show(self, text: str) -> None:
        if text:
            self._last = text
            self._live.write(text, bare=SGR.sub("", text))


@dataclass(slots=True)
class JsonSink:
    """One object at the end; on failure the object of the error."""

    live: Live
    settings: LoadSettings
    request: Request
    state: ChatState
    has_tokens: bool = False
    _tokens: list[Wire] = field(default_factory=list)
    _text: str = ""

    def event(self, event: Event) -> None:
        if isinstance(event, Committed):
            self._text += event.text
            if self.has_tokens:
                from localspec.ui.result import with_logprob  # late: a text has no need of it

                self._tokens += [
                    {"id": piece.id, "s": piece.text, "source": piece.source, **with_logprob(logprob)}
                    for piece, logprob in zip_longest(event.out, event.logprobs)
                ]

    def finish(self, stats: Stats) -> None:
        from localspec.ui.result import result  # late, as above

        made = result(stats, self.settings, self.request, self.state.session)
        self.live.erase()
        write_json({**made, "tokens": self._tokens} if self.has_tokens else made)

    def fail(self, error: Wire) -> None:
        self.live.erase()
        partial = {"text": self._text} if self._text else {}
        write_json({"error": {**error, "detail": {**error.get("detail", {}), **partial}}})


def write_json(value: Wire) -> None:
    """Write one line of JSON in ASCII: valid in every locale, and no control character reaches a terminal."""
    write_out(json.dumps(value) + "\n")


def write_result(value: Wire, text: str, *, as_json: bool) -> int:
    if as_json:
        write_json(value)
    else:
        write_text(f"{text}\n")
    return 0


def lone_stop(code: int) -> None:
    kind = "timeout" if code == TIMED_OUT else "interrupted" if code == INTERRUPTED else "terminated"
    lone_error({"code": code, "kind": kind, "message": kind, "hint": "", "detail": {}})


def lone_error(error: Wire) -> None:
    write_json({"error": error})


def marked(span: Span, *, can_color: bool) -> str:
    word = span.text.lstrip()
    space = span.text[: len(span.text) - len(word)]
    match span.source:
        case "corrected":
            return f"{space}⟦{word}⟧"
        case "bonus":
            return f"{space}{word}⁺"
        case "accepted" if can_color and word:
            return f"{space}{_GREEN}{word}{_RESET}"
    return span.text


class Sentences:
    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        self._held += text
        match = _END.match(self._held)
        n = match.end() if match else len(self._held) if len(self._held) > MAX_HELD else 0
        done, self._held = self._held[:n], self._held[n:]
        return done

    def finish(self) -> str:
        rest, self._held = self._held, ""
        return rest


GLOSSARY = "words: localspec explain"


def ended_by_itself(stats: Stats) -> bool:
    return stats.finished is not None and stats.finished.reason not in ("interrupted", "timeout")


def tell_figures(stats: Stats, console: Console, *, with_plans: bool = False) -> None:
    """Write the stats line and below it what the plans promised, if that is asked, and what the controller found."""
    from localspec.ui.summary import (  # late: nothing of it is said before the end
        is_slower,
        plans,
        reason,
        stats_line,
        verdict,
    )

    room = None if with_plans or not is_terminal(sys.stderr) else shutil.get_terminal_size().columns - 1
    line, words = stats_line(stats, room), GLOSSARY if stats.drafted and ended_by_itself(stats) else ""
    lines = [f"{line} · {words}"] if words and (room is None or len(f"{line} · {words}") <= room) else [line, words]
    for text in filter(None, lines):
        console.note(text, "yellow" if is_slower(stats) else "dim")
    console.has_told_stop = not ended_by_itself(stats)  # the line begins with it
    has_verdict = stats.finished is not None and stats.finished.verdict  # else the line above says all of it
    more = (plans(stats), reason(stats, is_below=True), _seed(stats)) if with_plans else ()
    for line in (verdict(stats, is_below=True) if has_verdict else "", *more):
        if line:
            console.note(line, "dim")


def _seed(stats: Stats) -> str:
    started = stats.started
    return "" if started is None else f"seed {started.seed}{'' if started.is_seeded else ', drawn'}"
