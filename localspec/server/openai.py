"""OpenAI's API: /v1/chat/completions and /v1/completions. Pure: JSON in, a request and the form of its answer out."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import Any

from localspec import __version__
from localspec.engine.events import Committed, Event, Finished
from localspec.server.fields import NO_LOGPROBS, NO_TOOLS, ONE, Asked, Fields, Served
from localspec.server.refusal import Wire
from localspec.server.reply import Reply, is_cut, released, speculation, timings
from localspec.settings.request import Request
from localspec.settings.values import GIVEN, with_tuples
from localspec.ui.stats import Stats

DEEPEST = 20  # levels of a variable of the template
# Fields that say who asks, or how to serve; no text depends on them.
HARMLESS = (
    "user",
    "store",
    "metadata",
    "parallel_tool_calls",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "cache_prompt",
)
# What cannot be obeyed, each with the reason and with the values that ask for nothing.
REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "n": (ONE, (1,)),
    "best_of": (ONE, (1,)),
    "tools": (NO_TOOLS, ([],)),
    "tool_choice": (NO_TOOLS, ("none", "auto")),
    "functions": (NO_TOOLS, ([],)),
    "function_call": (NO_TOOLS, ("none", "auto")),
    "logprobs": (NO_LOGPROBS, (False, 0)),
    "top_logprobs": (NO_LOGPROBS, (0,)),
    "n_probs": (NO_LOGPROBS, (0,)),
    "modalities": ("this server writes text only", (["text"],)),
    "audio": ("this server writes text only", ()),
    "web_search_options": (NO_TOOLS, ()),
    "verbosity": ("this model has no such setting", ("medium",)),
    "timings_per_token": ("timings come at the end", (False,)),
    "echo": ("the prompt is not repeated", (False,)),
}


def chat(body: object, served: Served) -> Asked:
    """Read the body of /v1/chat/completions; raises Refusal."""
    fields = Fields(body)
    request = replace(served.request, messages=fields.messages(), continues=True)
    request = replace(request, think=_think(fields, request.think), template_args=_template_args(fields, request))
    return _asked(fields, request, served, is_chat=True)


def completion(body: object, served: Served) -> Asked:
    """Read the body of /v1/completions; raises Refusal."""
    fields = Fields(body)
    prompt = fields.take("prompt", str | list[str])
    prompts = [prompt] if isinstance(prompt, str) else prompt or []
    if len(prompts) != 1:
        raise fields.refusal("prompt", "one text is needed")
    suffix = fields.take("suffix", str) or None
    return _asked(fields, replace(served.request, prompt=prompts[0], suffix=suffix), served, is_chat=False)


def _asked(fields: Fields, request: Request, served: Served, *, is_chat: bool) -> Asked:
    """Read the fields that both share, and refuse what is left."""
    served.require(fields.take("model", str) or served.name)
    request = fields.drawn(request, "max_tokens", "max_completion_tokens")
    request = replace(request, prediction=_prediction(fields) or request.prediction)
    request = fields.form(_formatted(fields, request), "json_schema", "grammar")
    is_streamed = fields.take("stream", bool, False)
    options = fields.within("stream_options")
    has_usage = options.take("include_usage", bool, False)
    options.finish(("include_obfuscation",))
    fields.refuse(REFUSED)
    fields.finish(HARMLESS)
    return Asked(request, OpenAI(served.name, is_chat=is_chat, has_usage=has_usage), is_streamed)


def _prediction(fields: Fields) -> str:
    """Return what the answer may turn out to be, a text to copy drafts from; "" where nothing is predicted."""
    own = fields.within("prediction")
    if own.take("type", str, "content") != "content":
        raise own.refusal("type", "content is the only kind")
    content = own.content()
    own.finish(())
    return content


def _formatted(fields: Fields, request: Request) -> Request:
    """Return the request with the form that `response_format` gives the answer."""
    own = fields.within("response_format")
    kind = own.take("type", str, "text")
    if kind == "json_schema":
        given = own.within("json_schema")
        if not given.has_content("schema"):
            raise given.refusal("schema", "a schema is needed")
        request = given.form(request, "schema")
        given.finish(("name", "strict", "description"))
    elif kind == "json_object":  # llama-server takes a schema beside it
        request = own.form(request, "schema") if own.has_content("schema") else own.formed(request, "type", "json")
    elif kind != "text":
        raise own.refusal("type", "text, json_object or json_schema")
    own.finish(())
    return request


def _think(fields: Fields, usual: str) -> str:
    """Return whether to reason: an effort of "none" is not to."""
    effort = fields.take("reasoning_effort", str)
    return usual if effort is None else "off" if effort == "none" else "auto"


def _template_args(fields: Fields, request: Request) -> tuple[tuple[str, Any], ...]:
    """Return the variables of the chat template, llama-server's `chat_template_kwargs` among them."""
    given = fields.take("chat_template_kwargs", dict[str, Any], {})
    if not given.keys().isdisjoint(GIVEN):
        raise fields.refusal("chat_template_kwargs", "a template is given its messages with every prompt")
    if not _is_shallow(given):
        raise fields.refusal("chat_template_kwargs", f"at most {DEEPEST} levels")
    return (*request.template_args, *((name, with_tuples(value)) for name, value in given.items()))


def _is_shallow(value: Any, levels: int = DEEPEST) -> bool:
    """Whether lists and objects are nested in each other no deeper than this."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(each, levels - 1) for each in inner)


class OpenAI(Reply):
    """An answer as a chat or a completion."""

    def __init__(self, model: str, *, is_chat: bool, has_usage: bool) -> None:
        self._is_chat = is_chat
        self._has_usage = has_usage
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
        text = released(event)
        if not self._is_chat:
            return [self._chunk({"text": text})] if text else []
        delta = {name: value for name, value in (("reasoning_content", event.reasoning), ("content", text)) if value}
        return [self._chunk(delta)] if delta else []

    def closing(self, stats: Stats) -> list[Wire]:
        """Return the chunk with the reason, and one with the usage, which has no choice."""
        figures = {"timings": timings(stats), "speculation": speculation(stats)}
        last = self._chunk({} if self._is_chat else {"text": ""}, _reason(stats))
        if not self._has_usage:
            return [{**last, **figures}]
        return [last, {**self._chunk({}), "choices": [], "usage": _usage(stats), **figures}]

    def whole(self, stats: Stats) -> Wire:
        """Return the answer."""
        message: Wire = {"role": "assistant", "content": stats.text}
        if stats.reasoning:
            message["reasoning_content"] = stats.reasoning
        said = {"message": message} if self._is_chat else {"text": stats.text}
        return {
            **self._head,
            "object": "chat.completion" if self._is_chat else "text_completion",
            "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": _reason(stats)}],
            "usage": _usage(stats),
            "timings": timings(stats),
            "speculation": speculation(stats),
        }

    def _chunk(self, said: Wire, reason: str | None = None) -> Wire:
        content = {"delta": said} if self._is_chat else said
        return {
            **self._head,
            "object": "chat.completion.chunk" if self._is_chat else "text_completion",
            "choices": [{"index": 0, **content, "logprobs": None, "finish_reason": reason}],
        }


def _reason(stats: Stats) -> str:
    return "length" if is_cut(stats) else "stop"


def _usage(stats: Stats) -> Wire:
    prefilled = stats.prefilled
    n = prefilled.prompt_n if prefilled else 0
    return {
        "prompt_tokens": n,
        "completion_tokens": stats.emitted,
        "total_tokens": n + stats.emitted,
        "prompt_tokens_details": {"cached_tokens": prefilled.cache_n if prefilled else 0},
    }


def models(served: Served) -> Wire:
    """Return the body of /v1/models."""
    return {"object": "list", "data": [model(served)]}


def model(served: Served) -> Wire:
    """Return the pair as a model."""
    facts, draft = served.target, served.draft
    meta = {name: getattr(facts, name) for name in ("arch", "quant", "n_vocab", "n_params", "bytes")}
    drafts = draft and {"arch": draft.arch, "n_params": draft.n_params}
    made = {"id": served.name, "object": "model", "created": served.created, "owned_by": "localspec"}
    return {**made, "aliases": list(served.aliases), "meta": {"n_ctx": served.n_ctx, **meta, "draft": drafts}}
