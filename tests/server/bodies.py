"""Bodies of requests with what each API reads of them: text files, compared as a whole.

    # A line that says what the bodies below it show.
    > openai.chat {"temperature": 0.5}       a reader and a body; the least that the reader needs (LEAST) comes to it
    >> openai.chat {"messages": []}          a body without that
    request.sampling.temperature: 0.5        what is read otherwise than of the least body
    note: temprature: ...                    what was not obeyed
    ! 400 messages: ...                      a refusal: status, code if there is one, field, sentence

tests/recorded.py tells how answers are written anew.
"""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from localspec.errors import UsageError
from localspec.server import anthropic, llama_server, ollama, openai, responses
from localspec.server.fields import ClientRequest, Searched
from localspec.server.refusal import Refusal
from localspec.settings.request import Message, Request
from tests.server.test_fields import HELLO, SERVED

APIS = {"openai": openai, "ollama": ollama, "llama": llama_server, "responses": responses, "anthropic": anthropic}
LEAST: dict[str, dict[str, Any]] = {
    "openai.chat": {"messages": HELLO},
    "openai.completion": {"prompt": "x"},
    "ollama.chat": {"messages": HELLO},
    "ollama.generate": {"prompt": "x"},
    "llama.completion": {"prompt": "x"},
    "llama.infill": {"input_prefix": "x"},
    "llama.tokenize": {},
    "llama.detokenize": {},
    "llama.apply_template": {"messages": HELLO},
    "responses.responses": {"input": "x"},
    "anthropic.messages": {"messages": HELLO},
    "anthropic.count_tokens": {"messages": HELLO},
}
OF_NOW = ("id", "created", "created_at", "completed_at", "system_fingerprint")


def read(reader: str, body: Any) -> Any:
    """Return what a reader makes of a body."""
    api, _, name = reader.partition(".")
    return getattr(APIS[api], name)(body, SERVED)


def facts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the fields of a value, each with its text."""
    if isinstance(value, ClientRequest):
        yield from facts("request", value.request)
        yield from ((f"other prompt {i}", repr(each.prompt or each.prompt_ids)) for i, each in enumerate(value.others))
        yield from ((each, repr(getattr(value, each))) for each in ("is_streamed", "n"))
        reply = vars(value.reply)
        kept = {each: reply[each] for each in sorted(reply) if each not in ("notes", "request") and each[0] != "_"}
        kept |= {f"head {each}": text for each, text in reply.get("_head", {}).items() if each not in OF_NOW}
        yield from ((f"reply {each}", repr(text)) for each, text in kept.items())
    elif isinstance(value, Searched):
        yield "question", type(value.question).__name__
        for each in value.question.__struct_fields__:
            yield from facts(each, getattr(value.question, each))
    elif isinstance(value, Message):
        names = (each.name for each in fields(value) if each.name not in ("role", "content"))
        beside = {each: getattr(value, each) for each in names}
        more = "".join(f" | {key} {text!r}" for key, text in beside.items() if text)
        yield name, f"{value.role}: {value.content!r}{more}"
    elif is_dataclass(value):
        for field in fields(value):
            yield from facts(f"{name}.{field.name}", getattr(value, field.name))
    elif isinstance(value, tuple) and value and isinstance(value[0], Message):
        for i, message in enumerate(value):
            yield from facts(f"{name}[{i}]", message)
    elif isinstance(value, dict):
        yield from ((each, json.dumps(text)) for each, text in value.items() if each not in OF_NOW)
    else:
        yield name, repr(value)


def answered(typed: str) -> Iterator[str]:
    """Yield what is read of a line of a file."""
    prompt, reader, text = typed.split(" ", 2)
    given, least = json.loads(text), LEAST[reader]
    try:
        asked = read(reader, given if prompt == ">>" else {**least, **given})
        usual = {} if not given and prompt == ">" else dict(facts("", read(reader, least)))
    except Refusal as refusal:
        yield f"! {refusal.status} {f'{refusal.code} ' if refusal.code else ''}{refusal.param}: {refusal.message}"
        return
    except UsageError as error:
        yield f"! {error.message}{error.advice}"
        return
    found = dict(facts("", asked))
    first = dict(facts("request", Request()))
    yield from (f"{name}: {value}" for name, value in found.items() if (usual or first).get(name) != value)
    if not isinstance(asked, dict):
        yield from (f"{name} is missing" for name in usual if name not in found)
    yield from (f"note: {note}" for note in (asked.notes if isinstance(asked, ClientRequest) else ()))
