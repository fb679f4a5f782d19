"""An answer in OpenAI's form: chunks, and the object at the end. Pure."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection

from localspec import __version__
from localspec.engine.events import Committed, Event, Finished
from localspec.server.refusal import Wire
from localspec.server.reply import Reply, is_cut, released, speculation, timings, told_logprobs
from localspec.server.tool_calls import CallReader, Read
from localspec.ui.stats import Stats

COPYING = ("copy", "suffix", "prompt-lookup", "ngram-cache")  # the methods that read a prediction


class OpenAI(Reply):
    """A chat or a completion, of one answer or of several, one after the other."""

    def __init__(
        self,
        model: str,
        *,
        is_chat: bool,
        has_usage: bool,
        has_prediction: bool = False,
        tools: Collection[str] = (),
    ) -> None:
        self._is_chat = is_chat
        self._has_usage = has_usage
        self._has_prediction = has_prediction
        self._calls = CallReader(tools) if tools else None
        self._index = 0
        self._told = 0  # characters of the tokens whose log-probabilities were told
        self._head = {
            "id": ("chatcmpl-" if is_chat else "cmpl-") + secrets.token_hex(12),
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"localspec-{__version__}",
        }

    def opening(self) -> list[Wire]:
        """Return the chunk that says who speaks."""
        return [self._chunk({"role": "assistant", "content": ""})] if self._is_chat else []

    def pieces(self, event: Event) -> list[Wire]:
        """Return a chunk for what an event released."""
        if not isinstance(event, Committed | Finished):
            return []
        text, logprobs = released(event)
        if self._calls is not None:
            text = self._calls.feed(text)
        if self._is_chat:
            parts = (("reasoning_content", event.reasoning), ("content", text))
            said = {name: value for name, value in parts if value}
        else:
            said = {"text": text} if text or logprobs else {}
        return [self._chunk(said, logprobs=logprobs)] if said or logprobs else []

    def following(self, stats: Stats) -> list[Wire]:
        """End the choice that `stats` is of, and begin the next one."""
        *wires, last = self._ending(stats)
        self._index, self._told = self._index + 1, 0
        return [*wires, last, *self.opening()]

    def closing(self, *answers: Stats) -> list[Wire]:
        """Return the chunk with the reason, and one with the usage, which has no choice."""
        wires = self._ending(answers[-1])
        if not self._has_usage:
            return wires
        figures = {name: wires[-1].pop(name) for name in ("timings", "speculation")}
        return [*wires, {**self._chunk({}), "choices": [], "usage": self._usage(*answers), **figures}]

    def whole(self, *answers: Stats) -> Wire:
        """Return the answer. Where there are several, each has its figures."""
        choices = []
        for self._index, stats in enumerate(answers):
            self._told = 0
            choices.append(self._choice(stats))
        figures = {name: choices[0].pop(name) for name in ("timings", "speculation")} if len(answers) == 1 else {}
        return {
            **self._head,
            "object": "chat.completion" if self._is_chat else "text_completion",
            "choices": choices,
            "usage": self._usage(*answers),
            **figures,
        }

    def _choice(self, stats: Stats) -> Wire:
        read = Read(stats.text) if self._calls is None else self._calls.read(stats.text)
        message: Wire = {"role": "assistant", "content": read.text or (None if read.calls else "")}
        if stats.reasoning:
            message["reasoning_content"] = stats.reasoning
        if read.calls:
            message["tool_calls"] = [call.to_openai() for call in read.calls]
        said = {"message": message} if self._is_chat else {"text": stats.text}
        logprobs = self._logprobs(told_logprobs(stats.logprobs))
        told = {"index": self._index, **said, "logprobs": logprobs, "finish_reason": _reason(stats, read)}
        return {**told, **_figures(stats, read)}

    def _usage(self, *answers: Stats) -> Wire:
        told = usage(*answers)
        if self._has_prediction:
            told["completion_tokens_details"] = predicted(*answers)
        return told

    def _ending(self, stats: Stats) -> list[Wire]:
        """Return the chunks that end a choice: what was held back, then the reason with the figures."""
        read = Read() if self._calls is None else self._calls.finish()
        held: Wire = {"content": read.text} if read.text else {}
        if read.calls:
            held["tool_calls"] = [{"index": i, **call.to_openai()} for i, call in enumerate(read.calls)]
        last = self._chunk({} if self._is_chat else {"text": ""}, _reason(stats, read))
        return [*([self._chunk(held)] if held else []), {**last, **_figures(stats, read)}]

    def _chunk(self, said: Wire, reason: str | None = None, logprobs: list[Wire] | None = None) -> Wire:
        content = {"delta": said} if self._is_chat else said
        told = {"logprobs": self._logprobs(logprobs or []), "finish_reason": reason}
        return {
            **self._head,
            "object": "chat.completion.chunk" if self._is_chat else "text_completion",
            "choices": [{"index": self._index, **content, **told}],
        }

    def _logprobs(self, found: list[Wire]) -> Wire | None:
        """Return log-probabilities as a chat has them, or as a completion does: in lists, with places in its text."""
        if not found:
            return None
        if self._is_chat:
            return {"content": found, "refusal": None}
        offsets = []
        for each in found:
            offsets.append(self._told)
            self._told += len(each["token"])
        return {
            "tokens": [each["token"] for each in found],
            "token_logprobs": [each["logprob"] for each in found],
            "top_logprobs": [{one["token"]: one["logprob"] for one in each["top_logprobs"]} for each in found],
            "text_offset": offsets,
        }


def _figures(stats: Stats, read: Read) -> Wire:
    return {"timings": timings(stats), "speculation": speculation(stats, read.warning)}


def _reason(stats: Stats, read: Read) -> str:
    return "tool_calls" if read.calls else "length" if is_cut(stats) else "stop"


def usage(*answers: Stats) -> Wire:
    """Return the counts of tokens: the prompt is one, whatever its answers are."""
    prefilled = answers[0].prefilled
    n, emitted = prefilled.prompt_n if prefilled else 0, sum(stats.emitted for stats in answers)
    return {
        "prompt_tokens": n,
        "completion_tokens": emitted,
        "total_tokens": n + emitted,
        "prompt_tokens_details": {"cached_tokens": prefilled.cache_n if prefilled else 0},
    }


def predicted(*answers: Stats) -> Wire:
    """Return how much of a prediction became text: tokens that were copied and stand, and those that were refused.

    Copies of the prompt are among them: a passage may stand in both.
    """
    counts = [counts for stats in answers for name, counts in stats.drafters.items() if name in COPYING]
    drafted, accepted = sum(n for n, _ in counts), sum(kept for _, kept in counts)
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": drafted - accepted}
