"""The lines of --events: JSON, one object a line, flushed each. `localspec.ui.json_fields` says what each field is.

Invariants: `start` is the first line and there is one;
the last is `end` or `error` and there is one; the texts of the steps and the tail make the answer. Readers are to
ignore types and fields they do not know.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from localspec.cli.live import Live
from localspec.cli.output import Wire, write_json
from localspec.engine.events import Committed, Event, Loading, Piece, Prefilled, Probed, Warned
from localspec.settings.request import LoadSettings, Request
from localspec.ui import json_fields
from localspec.ui.result import params, result, with_logprob
from localspec.ui.stats import Stats

if TYPE_CHECKING:
    from localspec.chat.state import ChatState


VERSION = 1
_PARTIAL = "\ufffd"  # a token that is no text alone, as one byte of a character


class EventsSink:
    """Writes every event as it is read, several passes at a time where they are quick."""

    def __init__(self, live: Live, settings: LoadSettings, request: Request, state: ChatState) -> None:
        self._live = live
        self._state = state
        self._settings = settings
        self._request = request
        self._lines = EventLines()
        self._stats = Stats(asked_at=time.monotonic())
        self._loading = ("", -1)
        pair = json_fields.AskedFields(name=settings.name, target=settings.target, draft=settings.draft)
        asked = params(settings, request)
        self._put("start", _start(pair, asked, request.sampling.seed, settings.ctx))

    def event(self, event: Event) -> None:
        self._stats.observe(event)
        match event:
            case Loading(what, fraction):
                step = (what, int(10 * fraction))
                if step != self._loading:
                    self._loading = step
                    self._put("load", json_fields.LoadLine(what=what, frac=fraction))
            case Prefilled():
                self._put("prefill", self._prefill(event))
            case Committed():
                self._put("step", json_fields.StepLine(**_step(event), cum=_cumulative(self._stats)))
                if event.plain_ms is not None:
                    self._probe(Probed(event.plain_ms, event.position))
            case Probed():
                self._probe(event)
            case Warned():
                self._put("warn", json_fields.WarnLine(code=event.code, message=event.message))

    def _probe(self, event: Probed) -> None:
        self._put("probe", json_fields.Probe(plain_ms=event.plain_ms, ctx=event.ctx, age_s=round(event.age_s, 3)))

    def finish(self, stats: Stats) -> None:
        tail = stats.finished.tail if stats.finished else ""
        made = result(stats, self._settings, self._request, self._state.session)
        self._put("end", {"tail": tail, "result": made})

    def fail(self, error: Wire) -> None:
        self._put("error", {"error": error})

    def _prefill(self, event: Prefilled) -> json_fields.Prefill:
        stats = self._stats
        return {
            "prompt_n": event.prompt_n,
            "cache_n": event.cache_n,
            "ms": event.ms,
            "prepare_ms": event.prepare_ms,
            "seed": stats.started.seed if stats.started else None,
            "n_ctx": stats.loaded.n_ctx if stats.loaded else None,
            "params": params(self._settings, self._request, stats),
        }

    def _put(self, kind: str, content: Mapping[str, object]) -> None:
        self._live.erase()  # both may be one terminal
        self._lines.put(kind, content)


class EventLines:
    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seq = 0

    def put(self, kind: str, content: Mapping[str, object]) -> None:
        t = round(time.monotonic() - self._began, 6)
        write_json({"v": VERSION, "seq": self._seq, "t": t, "type": kind, **content})
        self._seq += 1


def lone_error_event(error: Wire) -> None:
    lines = EventLines()
    lines.put("start", _start(None, None, None, None))
    lines.put("error", {"error": error})


def _start(
    pair: json_fields.AskedFields | None, asked: Wire | None, seed: int | None, n_ctx: int | None
) -> json_fields.Start:
    run = os.urandom(8).hex()
    return {"run": run, "pair": pair, "params": asked, "seed": seed, "n_ctx": n_ctx, "baseline": None}


def _step(event: Committed) -> json_fields.StepFields:
    ms = event.ms
    return {
        "i": event.index,
        "pos": event.position,
        "k": event.k,
        "depth": event.depth,
        "rows": event.rows,
        "n_accepted": event.n_accepted,
        "n_forced": event.n_forced,
        "draft": [_token(piece) for piece in event.drafted],
        "out": [
            cast(json_fields.OutToken, {**_token(piece), **with_logprob(logprob)})
            for piece, logprob in zip_longest(event.out, event.logprobs)
        ],
        "text": event.text,
        "reasoning": event.reasoning,
        "ms": {"draft": ms.draft, "verify": ms.verify, "sample": ms.sample, "other": ms.other},
        "drafter": event.drafter,
        "why": event.why,
        "expected": json_fields.Expected(tokens=event.expected_tokens, ms=event.expected_ms)
        if event.expected_ms
        else None,
        "probe": event.is_probe,
        "way": None if event.way is None else cast(json_fields.WayFields, dataclasses.asdict(event.way)),
    }


def _token(piece: Piece) -> json_fields.StepToken:
    """Return a token; `src` of a drafted one is accepted or rejected, which in a tree its place does not say."""
    text = _PARTIAL if _PARTIAL in piece.text else piece.text
    token: json_fields.StepToken = {"id": piece.id, "s": text, "src": piece.source}
    return token if piece.p is None else {**token, "p": piece.p}


def _cumulative(stats: Stats) -> json_fields.Sums:
    names = ("emitted", "drafted", "accepted", "forced", "passes", "tok_per_s")
    return cast(json_fields.Sums, {name: getattr(stats, name) for name in names})
