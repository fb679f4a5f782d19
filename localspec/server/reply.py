"""The form of an answer: what each API writes while it comes, at its end, and as one object.

Pure: events and figures in, JSON objects and bytes out.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from localspec.engine.events import Committed, Event, Finished, Logprob, Prefilled, Reading, Started
from localspec.server.refusal import Refusal, Wire, without_folders
from localspec.ui.result import timings as result_timings
from localspec.ui.stats import Stats

IMPOSSIBLE = -9999.0  # OpenAI's log-probability of a token that has no chance


class Reply(ABC):
    """One answer in the form of one API; the base is a stream of server-sent events with OpenAI's errors.

    `opening` begins a stream, `pieces` are what an event adds to it, `closing` and `end` end it. `following` stands
    between two answers to one request. `whole` is all as one object. `waiting` keeps the line open where nothing is
    sent for long.
    """

    media_type: ClassVar[str] = "text/event-stream"
    end: ClassVar[bytes] = b"data: [DONE]\n\n"
    notes: Sequence[str] = ()  # what of the request was not obeyed

    def frame(self, wire: Wire) -> bytes:
        """Return an object as the stream carries it."""
        return b"data: " + encoded(wire) + b"\n\n"

    def waiting(self) -> bytes:
        """Return a sign of life: a comment, or an event that adds nothing where clients count events alone."""
        return b": waiting\n\n"

    def opening(self) -> list[Wire]:
        return []

    @abstractmethod
    def pieces(self, event: Event) -> list[Wire]:
        """Return what an event adds, [] for one that adds nothing."""

    def following(self, stats: Stats) -> list[Wire]:
        """Return what ends the answer that `stats` is of, and begins another one; [] where there is one answer."""
        return []

    @abstractmethod
    def closing(self, *answers: Stats) -> list[Wire]:
        """Return what comes after the text of the last of `answers`."""

    @abstractmethod
    def whole(self, *answers: Stats) -> Wire | list[Wire]:
        """Return all answers as one object, or as a list where each has its own prompt."""

    def failure(self, refusal: Refusal) -> Wire:
        return refusal.to_openai()


class Progress:
    """How far a prompt is, as llama-server reports it where `return_progress` asks for that.

    What the cache had is known once the prompt is read.
    """

    def __init__(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._total = self._cached = 0
        self._began = time.monotonic()

    def read(self, event: Event) -> Wire:
        """Return `prompt_progress` for an event while a prompt is read, {} for another one."""
        processed = 0
        match event:
            case Started():
                self._total, self._cached, self._began = event.prompt_n, 0, time.monotonic()
            case Reading():
                processed = event.n
            case Prefilled():
                processed, self._cached = event.prompt_n, event.cache_n
        if not (self._is_wanted and processed):
            return {}
        ms = round(1e3 * (time.monotonic() - self._began))
        progress = {"total": self._total, "cache": self._cached, "processed": processed, "time_ms": ms}
        return {"prompt_progress": progress}


class JsonLines(Reply):
    """A stream of lines of JSON, as Ollama has it."""

    media_type = "application/x-ndjson"
    end = b""

    def waiting(self) -> bytes:
        """Return nothing: no line of JSON is empty."""
        return b""

    def frame(self, wire: Wire) -> bytes:
        return encoded(wire) + b"\n"

    def failure(self, refusal: Refusal) -> Wire:
        return refusal.to_ollama()


def encoded(wire: Any) -> bytes:
    return msgspec.json.encode(wire)


def timings(stats: Stats) -> Wire:
    """Return llama-server's `timings`: of the prompt only what was evaluated, and drafts only where there were any."""
    measured = result_timings(stats)
    cached, total = measured["cache_n"] or 0, measured["prompt_n"] or 0
    prompt_ms, predicted_ms, n = measured["prompt_ms"], measured["predicted_ms"], measured["predicted_n"]
    fresh = total - cached
    wire = {
        "cache_n": cached,
        "prompt_n": fresh,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / fresh if prompt_ms and fresh else None,
        "prompt_per_second": measured["prompt_per_second"],
        "predicted_n": n,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / n if predicted_ms and n else None,
        "predicted_per_second": measured["predicted_per_second"],
        "ttft_ms": measured["ttft_ms"],
    }
    if stats.drafted:
        wire |= {"draft_n": stats.drafted, "draft_n_accepted": stats.accepted, "draft_rounds": stats.drafting_passes}
    return wire


def speculation(stats: Stats, *warnings: str) -> Wire:
    """Return localspec's own object: how was drafted, and with which figures; `warnings` are the server's own."""
    started = stats.started
    axes = ("method", "tree", "length", "k", "verify", "seed", "is_lossless")
    wire = {name: getattr(started, name) for name in axes} if started is not None else {}
    return {
        **wire,
        **{name: getattr(stats, name) for name in ("passes", "tokens_per_pass", "acceptance", "speedup")},
        "warnings": [*(without_folders(warned.message) for warned in stats.warnings), *filter(None, warnings)],
    }


def told_logprobs(logprobs: Sequence[Logprob]) -> list[Wire]:
    """Return tokens with their log-probabilities, as OpenAI and llama-server have them.

    Control tokens are no part of the text, and none of the list.
    """
    return [{**_likely(each), "top_logprobs": [_likely(x) for x in each.top]} for each in logprobs if each.bytes]


def scored_prompt(scores: Sequence[Logprob]) -> tuple[str, list[Wire]]:
    """Return the text of a prompt whose tokens were scored, and each token with its log-probability; the first's: None.

    Control tokens are among them.
    """
    text = b"".join(bytes(each.bytes) for each in scores).decode("utf-8", "replace")
    wires = [{**_likely(each), "top_logprobs": [_likely(top) for top in each.top]} for each in scores]
    for first in wires[:1]:
        first["logprob"] = None
    return text, wires


def _likely(token: Logprob) -> Wire:
    logprob = IMPOSSIBLE if token.logprob is None else token.logprob
    return {"id": token.id, "token": token.text, "bytes": list(token.bytes), "logprob": logprob}


def released(event: Committed | Finished) -> tuple[str, list[Wire]]:
    return (event.text, told_logprobs(event.logprobs)) if isinstance(event, Committed) else (event.tail, [])


def is_cut(stats: Stats) -> bool:
    return stats.finished is not None and stats.finished.reason in ("length", "context")
