"""The own API: a job of `run`, `chat` or `race` on another machine, answered by its events, and the server's page.

Text goes in, and text and figures come out. Nothing of a job names a file of this machine, brings tokens of its own
into a prompt, or is kept on disk. The page puts a model's text in as text only, and its policy allows its own script
and style by their hashes, and no other source of anything.
"""

import base64
import hashlib
import re
from collections import deque
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from localspec import __version__
from localspec.engine.events import Committed, Event, Finished, Loaded, ModelFacts, Warned
from localspec.errors import UsageError
from localspec.server.fields import LONGEST_STOPS, ClientRequest, Fields, Searched, ServedPair
from localspec.server.messages import MOST_MESSAGES, is_shallow
from localspec.server.openai import DEEPEST
from localspec.server.refusal import Refusal, Wire, without_folders
from localspec.server.reply import JsonLines
from localspec.settings.jobs import ForkQuestion, Generate, with_request
from localspec.settings.request import FORMS, LoadSettings, Request
from localspec.settings.structure import require_short
from localspec.settings.values import GIVEN
from localspec.ui.settings import check, check_form
from localspec.ui.sources import SourceSpans, Span
from localspec.ui.stats import Stats
from localspec.worker.codec import JSON, CodecError, event_wire, job_of, kinds

JOBS = kinds(Generate | ForkQuestion)


def events(body: object, served: ServedPair) -> ClientRequest | Searched:
    fields = Fields(body)
    served.require(fields.take("model", str) or served.name)
    wire = fields.take("job", dict[str, Any], {})
    fields.finish()
    try:
        job: Generate | ForkQuestion = job_of(wire, JOBS)
    except (CodecError, RecursionError) as error:
        raise Refusal(400, f"job: {str(error)[:200]}", param="job") from None
    request = _checked(job.request, served)
    if isinstance(job, Generate):
        return ClientRequest(request, Events(served.settings), is_streamed=True, notes=fields.notes)
    n_vocab = served.target.n_vocab if served.target is not None else 0
    if not all(0 <= token < n_vocab for tokens in (job.plain, job.other) for token in tokens):
        raise Refusal(400, "job: a token is none of this model's", param="job")
    return Searched(with_request(job, request), lambda facts: facts)


def _checked(request: Request, served: ServedPair) -> Request:
    given, arguments = request.speculation, dict(request.template_args)
    for is_wrong, problem in (
        (given.corpus, "--corpus names files, and those of this server are not for its clients"),
        (request.tools is not None or request.reads_ahead, "a field is not for clients"),
        (request.prompt_ids or request.scores_prompt, "a field is not for clients"),
        (len(request.messages) > MOST_MESSAGES, f"at most {MOST_MESSAGES} messages"),
        (sum(map(len, request.stop)) > LONGEST_STOPS, f"texts that end an answer have at most {LONGEST_STOPS} bytes"),
        (not is_shallow(arguments, DEEPEST) or arguments.keys() & GIVEN, "a variable of the template is not allowed"),
    ):
        if is_wrong:
            raise Refusal(400, problem, param="job")
    try:
        for name in FORMS:
            require_short(name, getattr(request, name) or "")
        check(request, served.settings)
        check_form(request)
    except UsageError as error:
        raise Refusal(400, f"{error.message}{error.advice}", param="job") from None
    messages = tuple(replace(message, ids=()) for message in request.messages)
    return replace(request, messages=served.begun(messages) if messages else (), keeps=False)


class Events(JsonLines):
    """An answer as its events. One that fails ends in a line with the refusal."""

    def frame(self, wire: Wire) -> bytes:
        return JSON(wire).encode("ascii") + b"\n"

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings

    def pieces(self, event: Event) -> list[Wire]:
        return [event_wire(_public(event, self._settings), 0)]

    def closing(self, *answers: Stats) -> list[Wire]:
        return []

    def whole(self, *answers: Stats) -> Wire:
        """Never asked for."""
        raise AssertionError("events are a stream")

    def failure(self, refusal: Refusal) -> Wire:
        return {"type": "refused", "status": refusal.status, **refusal.to_openai()}


def pair(served: ServedPair) -> Wire:
    loaded = None if served.loaded is None else event_wire(_public(served.loaded, served.settings), 0)
    has_draft = served.settings.draft is not None
    return {"localspec": __version__, "model": served.name, "has_draft": has_draft, "loaded": loaded}


def _public(event: Event, settings: LoadSettings) -> Event:
    """Return an event as clients may know it: where a file is on this machine is not told."""
    match event:
        case Warned():
            return replace(event, message=without_folders(event.message, settings))
        case Loaded():
            return replace(event, target=_bare(event.target), draft=event.draft and _bare(event.draft))
    return event


def _bare(facts: ModelFacts) -> ModelFacts:
    return replace(facts, path=Path(facts.path).name)


LAST = 5  # answers that are kept to be shown
MOST_SPANS = 400  # spans of an answer that are shown: its end


class Board:
    """What the page shows. Threads of the engine write it; a look from another thread may be a pass behind."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[Stats, SourceSpans, deque[Span]]] = {}  # by the id of their figures
        self._last: deque[Wire] = deque(maxlen=LAST)

    def begin(self, stats: Stats) -> None:
        self._running[id(stats)] = (stats, SourceSpans(), deque(maxlen=MOST_SPANS))

    def observe(self, stats: Stats, event: Event) -> None:
        if id(stats) not in self._running:
            return
        _, cut, spans = self._running[id(stats)]
        if isinstance(event, Committed):
            spans.extend(cut.feed(event))
        elif isinstance(event, Finished):
            spans.extend(cut.release(event.tail))

    def end(self, stats: Stats) -> None:
        running = self._running.pop(id(stats), None)
        if running is not None and stats.passes:
            self._last.appendleft(_summary(stats, running[2]))

    def summary(self) -> Wire:
        """Return the answer that began last and runs, None without one, and the last ones, the latest first."""
        running = list(self._running.values())[-1:]
        now = _summary(running[0][0], running[0][2]) if running else None
        return {"running": now, "last": list(self._last)}


def _summary(stats: Stats, spans: deque[Span]) -> Wire:
    started = stats.started
    return {
        "method": started.method if started is not None else "",
        **{name: getattr(stats, name) for name in ("emitted", "drafted", "accepted", "acceptance", "tok_per_s")},
        "speedup": stats.speedup if stats.finished is not None else None,
        "reason": stats.finished.reason if stats.finished is not None else "",
        "spans": [{"text": span.text, "source": span.source} for span in spans.copy()],
    }


@cache
def page() -> tuple[bytes, dict[str, str]]:
    text = files("localspec.server").joinpath("page.html").read_text("utf-8")
    script, style = (_hash(re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)[0]) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    headers = {"content-security-policy": policy, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
    return text.encode(), {**headers, "cache-control": "no-store"}


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
