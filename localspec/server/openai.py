"""OpenAI's API: /v1/chat/completions and /v1/completions. Pure: JSON in, a request and the form of its answer out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from localspec.server.fields import MOST_ANSWERS, ONE, Asked, Fields, Listed, Served
from localspec.server.messages import OLD_TOOLS, messages_of
from localspec.server.openai_reply import OpenAI
from localspec.server.refusal import Wire
from localspec.server.tools import is_shallow, offered
from localspec.settings.request import Request
from localspec.settings.values import GIVEN, with_tuples

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
    "best_of": (ONE, (1,)),
    "functions": (OLD_TOOLS, ([],)),
    "function_call": (OLD_TOOLS, ("none", "auto")),
    "modalities": ("this server writes text only", (["text"],)),
    "audio": ("this server writes text only", ()),
    "web_search_options": ("this server searches nothing", ()),
    "verbosity": ("this model has no such setting", ("medium",)),
    "timings_per_token": ("timings come at the end", (False,)),
    "echo": ("the prompt is not repeated", (False,)),
}


def chat(body: object, served: Served) -> Asked:
    """Read the body of /v1/chat/completions; raises Refusal."""
    fields = Fields(body)
    request = replace(served.request, messages=messages_of(fields), continues=True)
    request = replace(
        request,
        think=thinking(fields, "reasoning_effort", request.think),
        template_args=_template_args(fields, request),
    )
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
    request = fields.form(formatted(fields.within("response_format"), request), "json_schema", "grammar")
    request, tools = offered(fields, request) if is_chat else (request, frozenset[str]())
    request = fields.chat_logprobs(request) if is_chat else _legacy_logprobs(fields, request)
    is_streamed, n = fields.take("stream", bool, False), fields.take("n", int, 1)
    if not 1 <= n <= MOST_ANSWERS:
        raise fields.refusal("n", f"1 to {MOST_ANSWERS} answers")
    options = fields.within("stream_options")
    has_usage = options.take("include_usage", bool, False)
    options.finish(("include_obfuscation",))
    fields.refuse(REFUSED)
    fields.finish(HARMLESS)
    reply = OpenAI(
        served.name, is_chat=is_chat, has_usage=has_usage, has_prediction=bool(request.prediction), tools=tools
    )
    return Asked(request, reply, is_streamed, n)


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
    own.finish(())
    return content


def formatted(own: Fields, request: Request, *, is_flat: bool = False) -> Request:
    """Return the request with the form that a format gives the answer: the fields of a schema are in an object of it.

    `is_flat`: they stand beside its type, as /v1/responses has them.
    """
    kind, beside = own.take("type", str, "text"), ("name", "strict", "description")
    if kind == "json_schema":
        given = own if is_flat else own.within("json_schema")
        if not given.has_content("schema"):
            raise given.refusal("schema", "a schema is needed")
        request = given.form(request, "schema")
        given.finish(beside)
    elif kind == "json_object":  # llama-server takes a schema beside it
        request = own.form(request, "schema") if own.has_content("schema") else own.formed(request, "type", "json")
    elif kind != "text":
        raise own.refusal("type", "text, json_object or json_schema")
    own.finish(beside if is_flat else ())
    return request


def thinking(fields: Fields, name: str, usual: str) -> str:
    """Return whether to reason: an effort of "none" is not to."""
    effort = fields.take(name, str)
    return usual if effort is None else "off" if effort == "none" else "auto"


def _template_args(fields: Fields, request: Request) -> tuple[tuple[str, Any], ...]:
    """Return the variables of the chat template, llama-server's `chat_template_kwargs` among them."""
    given = fields.take("chat_template_kwargs", dict[str, Any], {})
    if not given.keys().isdisjoint(GIVEN):
        raise fields.refusal("chat_template_kwargs", "a template is given its messages with every prompt")
    if not is_shallow(given, DEEPEST):
        raise fields.refusal("chat_template_kwargs", f"at most {DEEPEST} levels")
    return (*request.template_args, *((name, with_tuples(value)) for name, value in given.items()))


def models(listed: Sequence[Listed]) -> Wire:
    """Return the body of /v1/models."""
    return {"object": "list", "data": [model(each) for each in listed]}


def model(listed: Listed) -> Wire:
    """Return a pair as a model, with less of one that was not loaded yet."""
    facts, draft = listed.target, listed.draft
    made = {"id": listed.name, "object": "model", "created": listed.created, "owned_by": "localspec"}
    if facts is None:
        return {**made, "aliases": list(listed.aliases), "meta": {"quant": listed.quant, "bytes": listed.bytes}}
    meta = {name: getattr(facts, name) for name in ("arch", "quant", "n_vocab", "n_params", "bytes")}
    drafts = draft and {"arch": draft.arch, "n_params": draft.n_params}
    return {**made, "aliases": list(listed.aliases), "meta": {"n_ctx": listed.n_ctx, **meta, "draft": drafts}}
