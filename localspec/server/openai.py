"""OpenAI's API: /v1/chat/completions and /v1/completions. Pure: JSON in, a request and the form of its answer out."""

import codecs
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from localspec import __version__
from localspec.engine.events import Committed, Event, Finished, Scored
from localspec.prompt.call_forms import NO_TOOLS, Tools
from localspec.server.call_pieces import CallPiece
from localspec.server.fields import (
    MOST_ANSWERS,
    NO_SAMPLER,
    ONE,
    ClientRequest,
    Fields,
    OfferedPair,
    Reasons,
    ServedPair,
    with_prompts,
)
from localspec.server.messages import OLD_TOOLS, is_shallow, messages_of, offered, resumed
from localspec.server.model_facts import longest_context
from localspec.server.refusal import Wire
from localspec.server.reply import Progress, Reply, is_cut, released, scored_prompt, speculation, timings, told_logprobs
from localspec.server.tool_calls import CallReader, Part, ReadAnswer
from localspec.settings.request import Request
from localspec.settings.values import GIVEN, with_tuples
from localspec.ui.stats import Stats

COPYING = ("copy", "suffix", "prompt-lookup")  # the methods that read a prediction
EFFORT = "reasoning_effort"
DEEPEST = 20  # levels of a variable of the template
# What cannot be obeyed, each with the reason and with the values that ask for nothing.
REFUSED: Reasons = {
    "best_of": (ONE, (1,)),
    "functions": (OLD_TOOLS, ([],)),
    "function_call": (OLD_TOOLS, ("none", "auto")),
    "modalities": ("this server writes text only", (["text"],)),
    "audio": ("this server writes text only", ()),
    "mirostat": (NO_SAMPLER, (0,)),
}
# What is passed over, with what the client is told of it.
LEFT: Reasons = {
    "web_search_options": ("this server searches nothing", ()),
    "verbosity": ("this model has no such setting", ("medium",)),
    "timings_per_token": ("timings come at the end", (False,)),
}


def chat(body: object, served: ServedPair) -> ClientRequest:
    fields = Fields(body)
    request = resumed(fields, served.asked(messages_of(fields)))
    request = thinking(fields, "reasoning_effort", replace(request, template_args=_template_args(fields, request)))
    return _asked(fields, request, served, is_chat=True)


def completion(body: object, served: ServedPair) -> ClientRequest:
    fields = Fields(body)
    suffix, has_echo = fields.take("suffix", str) or None, fields.take("echo", bool, False)
    requests = with_prompts(replace(served.request, suffix=suffix, scores_prompt=has_echo), fields.prompts())
    asked = _asked(fields, requests[0], served, is_chat=False)
    others = (replace(asked.request, prompt=each.prompt, prompt_ids=each.prompt_ids) for each in requests[1:])
    return replace(asked, others=tuple(others))


def _asked(fields: Fields, request: Request, served: ServedPair, *, is_chat: bool) -> ClientRequest:
    is_silent = not is_chat and fields.reads_only("max_tokens")
    served.require(fields.take("model", str) or served.name)
    request = fields.drawn(request, "max_tokens", "max_completion_tokens")
    request = replace(request, prediction=_prediction(fields) or request.prediction)
    request = fields.form(formatted(fields.within("response_format"), request), "json_schema", "grammar")
    request, tools = offered(fields, request) if is_chat else (request, NO_TOOLS)
    request = fields.chat_logprobs(request) if is_chat else _legacy_logprobs(fields, request)
    is_streamed, n = fields.take("stream", bool, False), fields.take("n", int, 1)
    if not 1 <= n <= MOST_ANSWERS:
        raise fields.refusal("n", f"1 to {MOST_ANSWERS} answers")
    options = fields.within("stream_options")
    has_usage = options.take("include_usage", bool, False)
    options.finish()
    reply = OpenAI(
        served.name,
        is_chat=is_chat,
        has_usage=has_usage,
        has_prediction=bool(request.prediction),
        tools=tools,
        has_progress=fields.take("return_progress", bool, False),
        is_silent=is_silent,
        has_echo=request.scores_prompt,
        has_logprobs=request.logprobs is not None,
        n=n,
    )
    fields.finish(refused=REFUSED, left=LEFT)
    return ClientRequest(request, reply, is_streamed, n, fields.notes)


def _legacy_logprobs(fields: Fields, request: Request) -> Request:
    """Return the request with the log-probabilities of a completion: a number of tokens; true and false pass, too."""
    n = fields.take("logprobs", int | bool)
    return fields.logprobs(request, "logprobs", None if n is None or n is False else int(n) if n is not True else 0)


def _prediction(fields: Fields) -> str:
    """Return what the answer may turn out to be, a text to copy drafts from; "" where nothing is predicted."""
    own = fields.within("prediction")
    if own.take("type", str, "content") != "content":
        raise own.refusal("type", "content is the only kind")
    content = own.content()
    own.finish()
    return content


def formatted(own: Fields, request: Request, *, is_flat: bool = False) -> Request:
    """Return the request with the form that a format gives the answer: the fields of a schema are in an object of it.

    `is_flat`: they stand beside its type, as /v1/responses has them.
    """
    kind = own.take("type", str, "text")
    if kind == "json_schema":
        given = own if is_flat else own.within("json_schema")
        schema = given.take("schema", str | bool | dict[str, Any], "")
        if schema == "":
            raise given.refusal("schema", "a schema is needed")
        request = given.formed(request, "schema", schema)
        given.finish("description")
    elif kind == "json_object":  # llama-server takes a schema beside it
        request = own.form(request, "schema") if own.has_content("schema") else own.formed(request, "type", "json")
    elif kind != "text":
        raise own.refusal("type", "text, json_object or json_schema")
    own.finish("description")
    return request


def thinking(fields: Fields, name: str, request: Request) -> Request:
    effort: str | None = fields.take(name, Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"])
    return request if effort is None else with_effort(request, effort)


def with_effort(request: Request, effort: str) -> Request:
    """Return the request with an effort of reasoning, which templates read by OpenAI's name of it."""
    if effort == "none":
        return replace(request, think="off")
    others = tuple(each for each in request.template_args if each[0] != EFFORT)
    return replace(request, think="auto", template_args=(*others, (EFFORT, effort)))


def _template_args(fields: Fields, request: Request) -> tuple[tuple[str, Any], ...]:
    given = fields.take("chat_template_kwargs", dict[str, Any], {})
    if not given.keys().isdisjoint(GIVEN):
        raise fields.refusal("chat_template_kwargs", "a template is given its messages with every prompt")
    if not is_shallow(given, DEEPEST):
        raise fields.refusal("chat_template_kwargs", f"at most {DEEPEST} levels")
    return (*request.template_args, *((name, with_tuples(value)) for name, value in given.items()))


def models(listed: Sequence[OfferedPair]) -> Wire:
    return {"object": "list", "data": [model(each) for each in listed]}


def model(listed: OfferedPair) -> Wire:
    facts, draft = listed.target, listed.draft
    made = {"id": listed.name, "object": "model", "created": listed.created, "owned_by": "localspec"}
    made["aliases"] = list(listed.aliases)
    if facts is None:
        return {**made, "meta": {"quant": listed.quant, "bytes": listed.bytes}}
    meta = {name: getattr(facts, name) for name in ("arch", "quant", "n_vocab", "n_params", "bytes")}
    drafts = draft and {"arch": draft.arch, "n_params": draft.n_params}
    return {**made, "meta": {"n_ctx": longest_context(listed), **meta, "draft": drafts}}


@dataclass(eq=False)
class OpenAI(Reply):
    """A chat or a completion, of one answer or of several, one after the other.

    `is_silent`: the prompt is read, and no token of the answer is wanted. `has_echo`: the text begins with the prompt.
    `n` answers are to each prompt.
    """

    model: str
    is_chat: bool
    has_usage: bool
    has_prediction: bool = False
    tools: Tools = field(default_factory=dict)
    has_progress: bool = False
    is_silent: bool = False
    has_echo: bool = False
    has_logprobs: bool = False
    n: int = 1

    def __post_init__(self) -> None:
        self._progress = Progress(self.has_progress)
        self._calls = CallReader(self.tools, in_pieces=True)
        self._index = 0
        self._restart()
        self._head = {
            "id": ("chatcmpl-" if self.is_chat else "cmpl-") + secrets.token_hex(12),
            "created": int(time.time()),
            "model": self.model,
            "system_fingerprint": f"localspec-{__version__}",
        }

    def _restart(self) -> None:
        self._told = 0  # whole characters of the tokens whose log-probabilities were told
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def opening(self) -> list[Wire]:
        return [self._chunk({"role": "assistant", "content": ""})] if self.is_chat else []

    def pieces(self, event: Event) -> list[Wire]:
        if isinstance(event, Scored) and self.has_echo:
            text, scores = scored_prompt(event.logprobs)
            return [self._chunk({"text": text}, logprobs=scores if self.has_logprobs else [])]
        if not isinstance(event, Committed | Finished):
            progress = self._progress.read(event)
            return [{**self._chunk({} if self.is_chat else {"text": ""}), **progress}] if progress else []
        text, logprobs = ("", []) if self.is_silent else released(event)
        said = [each for part in self._calls.feed(text) if (each := self._said(part))]
        if self.is_chat and event.reasoning:
            said[:1] = [{"reasoning_content": event.reasoning, **(said[0] if said else {})}]
        if logprobs and not said:
            said = [self._said("")]
        return [self._chunk(each, logprobs=[] if i else logprobs) for i, each in enumerate(said)]

    def _said(self, part: Part) -> Wire:
        if isinstance(part, str):
            return {"content": part} if self.is_chat and part else {} if self.is_chat else {"text": part}
        assert isinstance(part, CallPiece)
        if part.is_first:
            function = {"name": part.name, "arguments": ""}
            return {"tool_calls": [{"index": part.index, "id": part.id, "type": "function", "function": function}]}
        return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]} if part.text else {}

    def following(self, stats: Stats) -> list[Wire]:
        *wires, last = self._ending(stats)
        self._index += 1
        self._restart()
        return [*wires, last, *self.opening()]

    def closing(self, *answers: Stats) -> list[Wire]:
        wires = self._ending(answers[-1])
        if not self.has_usage:
            return wires
        figures = {name: wires[-1].pop(name) for name in ("timings", "speculation")}
        return [*wires, {**self._chunk({}), "choices": [], "usage": self._usage(*answers), **figures}]

    def whole(self, *answers: Stats) -> Wire:
        choices = []
        for self._index, stats in enumerate(answers):
            self._restart()
            choices.append(self._choice(stats))
        figures = {name: choices[0].pop(name) for name in ("timings", "speculation")} if len(answers) == 1 else {}
        return {
            **self._head,
            "object": "chat.completion" if self.is_chat else "text_completion",
            "choices": choices,
            "usage": self._usage(*answers),
            **figures,
        }

    def _choice(self, stats: Stats) -> Wire:
        read = self._calls.read(stats.text)
        message: Wire = {"role": "assistant", "content": read.text or (None if read.calls else "")}
        if stats.reasoning:
            message["reasoning_content"] = stats.reasoning
        if read.calls:
            message["tool_calls"] = [call.to_openai() for call in read.calls]
        text, logprobs = ("", []) if self.is_silent else (stats.text, told_logprobs(stats.logprobs))
        if self.has_echo:
            prompt, scores = scored_prompt(stats.prompt_logprobs)
            text, logprobs = prompt + text, [*scores, *logprobs] if self.has_logprobs else []
        said = {"message": message} if self.is_chat else {"text": text}
        choice = {
            "index": self._index,
            **said,
            "logprobs": self._logprobs(logprobs),
            "finish_reason": _reason(stats, read),
        }
        return {**choice, **self._figures(stats, read)}

    def _usage(self, *answers: Stats) -> Wire:
        counts = usage(*answers, n=self.n)
        if self.is_silent:
            counts |= {"completion_tokens": 0, "total_tokens": counts["prompt_tokens"]}
        if self.has_prediction:
            counts["completion_tokens_details"] |= predicted(*answers)
        return counts

    def _ending(self, stats: Stats) -> list[Wire]:
        read = self._calls.finish()
        held = [self._chunk(said) for part in read.parts if (said := self._said(part))]
        last = self._chunk({} if self.is_chat else {"text": ""}, _reason(stats, read))
        return [*held, {**last, **self._figures(stats, read)}]

    def _figures(self, stats: Stats, read: ReadAnswer) -> Wire:
        return {"timings": timings(stats), "speculation": speculation(stats, *self.notes, read.warning)}

    def _chunk(self, said: Wire, reason: str | None = None, logprobs: list[Wire] | None = None) -> Wire:
        content = {"delta": said} if self.is_chat else said
        ending = {"logprobs": self._logprobs(logprobs or []), "finish_reason": reason}
        return {
            **self._head,
            "object": "chat.completion.chunk" if self.is_chat else "text_completion",
            "choices": [{"index": self._index, **content, **ending}],
        }

    def _logprobs(self, logprobs: list[Wire]) -> Wire | None:
        """Return log-probabilities as a chat has them, or as a completion does: in lists, with places in its text."""
        if not logprobs:
            return None
        if self.is_chat:
            return {"content": logprobs, "refusal": None}
        offsets = []
        for each in logprobs:
            offsets.append(self._told)
            self._told += len(self._decoder.decode(bytes(each["bytes"])))
        return {
            "tokens": [_spelled(each) for each in logprobs],
            "token_logprobs": [each["logprob"] for each in logprobs],
            "top_logprobs": [_top(each) for each in logprobs],
            "text_offset": offsets,
        }


def _top(each: Wire) -> Wire | None:
    """Return the likeliest tokens at a place, None for the first token of a text."""
    return None if each["logprob"] is None else {_spelled(top): top["logprob"] for top in each["top_logprobs"]}


def _spelled(likely: Wire) -> str:
    """Return a token's text. One that is part of a character has its bytes, as with OpenAI: no two share a name."""
    raw = bytes(likely["bytes"])
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _reason(stats: Stats, read: ReadAnswer) -> str:
    return "tool_calls" if read.has_called else "length" if is_cut(stats) else "stop"


def usage(*answers: Stats, n: int | None = None) -> Wire:
    """Return the counts of tokens; `n` answers have one prompt, all of them where it is None."""
    read = [stats.prefilled for stats in answers[:: n or len(answers)] if stats.prefilled]
    emitted, prompt_n = sum(stats.emitted for stats in answers), sum(each.prompt_n for each in read)
    return {
        "prompt_tokens": prompt_n,
        "completion_tokens": emitted,
        "total_tokens": prompt_n + emitted,
        "prompt_tokens_details": {"cached_tokens": sum(each.cache_n for each in read)},
        "completion_tokens_details": {"reasoning_tokens": sum(stats.reasoning_tokens for stats in answers)},
    }


def predicted(*answers: Stats) -> Wire:
    """Return how much of a prediction became text: tokens that were copied and stand, and those that were refused.

    Copies of the prompt are among them: a passage may stand in both.
    """
    counts = [counts for stats in answers for name, counts in stats.drafters.items() if name in COPYING]
    drafted, accepted = sum(n for n, _ in counts), sum(n_accepted for _, n_accepted in counts)
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": drafted - accepted}
