"""Reads the JSON object of a request, field by field.

A field that is not known is passed over with a note. A value that a known field cannot have is refused by the field's
name. A null counts as absent, as in every API here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Annotated, Any, TypeVar

import msgspec

from localspec.engine.events import Loaded, ModelFacts
from localspec.errors import UsageError
from localspec.models.ollama import OllamaModel, is_named
from localspec.server.refusal import Refusal, Wire
from localspec.server.reply import Reply
from localspec.settings.declaration import Option, declared
from localspec.settings.jobs import ForkQuestion, TextQuestion
from localspec.settings.request import COUNT, MOST_LOGPROBS, LoadSettings, Message, Request, Sampling, Speculation
from localspec.settings.structure import json_schema, require_short
from localspec.ui.settings import check_form

T = TypeVar("T")
Reasons = Mapping[str, tuple[str, Collection[Any]]]
NONE: Reasons = {}
TYPES: dict[str, type[Any]] = {"integer": int, "number": float, "switch": bool, "text": str}
NO_IMAGES = "this server reads text only"
NO_SAMPLER = "this sampler is not here"
UNKNOWN = "this server knows no such field, and passed it over"
ONE = "one answer a request; ask again for another"
MOST_ANSWERS = 4  # to one request
LONGEST_STOPS = 8192  # bytes of all of a request
MOST_PROMPTS = 64  # of one request
MOST_BIASES = 10_000
MOST_NOTES = 20
# Fields that say who asks, or how to serve; no text depends on them.
HARMLESS = {
    "user", "store", "metadata", "parallel_tool_calls", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "client_metadata", "cache_prompt", "cache_control", "id", "id_slot", "t_max_prompt_ms",
    "keep_alive", "shift", "include_obfuscation", "name", "refusal", "annotations", "status", "phase", "index",
    "strict", "model",
}  # fmt: skip
STAND_INS = ("claude-", "gpt-")  # names of models that mean the pair which is held, where no pair is called so
ANY_OBJECT = '{"type": "object"}'
# Settings of sampling by the names that llama-server gives them; OpenAI's are among them.
SAMPLED = {"repeat_last_n": "penalty_last_n"} | {
    name: name
    for name in (
        "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty",
        "frequency_penalty", "xtc_probability", "xtc_threshold", "dry_multiplier", "dry_base", "dry_allowed_length",
        "dry_penalty_last_n",
    )
}  # fmt: skip
_HOLDERS: tuple[type[Any], ...] = (Sampling, Speculation, Request)
_DECLARED = {(holder, each.name): each for holder in _HOLDERS for each in declared(holder)}
SPECULATED = {name: name for name in ("tree", "k", "length", "verify")}


@dataclass(frozen=True, slots=True)
class OfferedPair:
    """A pair that a request can name. `created` is when the server offered it (Unix time), `bytes` its target's size.

    `loaded` tells of the pair as it was loaded last, None before that.
    """

    name: str
    aliases: tuple[str, ...]
    created: int
    bytes: int
    quant: str
    loaded: Loaded | None

    @property
    def n_ctx(self) -> int:
        return 0 if self.loaded is None else self.loaded.n_ctx

    @property
    def target(self) -> ModelFacts | None:
        return None if self.loaded is None else self.loaded.target

    @property
    def draft(self) -> ModelFacts | None:
        return None if self.loaded is None else self.loaded.draft

    def is_called(self, model: str) -> bool:
        return is_named(model, (self.name, *self.aliases))


@dataclass(frozen=True, slots=True)
class ServedPair(OfferedPair):
    """A pair that answers: how it is loaded, and what a request of it begins with. `others` can be named too."""

    settings: LoadSettings
    request: Request
    ollama: OllamaModel | None = None  # which has messages that go before those of a chat
    others: int = 0

    def asked(self, messages: Sequence[Message]) -> Request:
        return replace(self.request, messages=self.begun(messages), continues=True)

    def begun(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return a chat behind Ollama's messages. A system message of its own takes the place of Ollama's."""
        n = len(list(takewhile(lambda message: message.role == "system", messages)))
        head, model = messages[:n], self.ollama
        if model is not None:
            own = (Message("system", model.system),) if model.system else ()
            head = (*(head or own), *model.messages)
        return (*head, *messages[n:])

    def require(self, model: str) -> None:
        if not self.is_called(model):
            more = f" and {self.others} more, which /v1/models lists" if self.others else ""
            if model.startswith(STAND_INS):
                return  # programs that know these names alone
            message = f"there is no model {model[:80]!r} here; this server has {self.name!r}{more}"
            raise Refusal(404, message, param="model", code="model_not_found")


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """What a client asked for: the engine's request, and the form of the answer."""

    request: Request
    reply: Reply
    is_streamed: bool
    n: int = 1  # answers
    notes: list[str] = field(default_factory=list)  # what of the body was not obeyed
    others: tuple[Request, ...] = ()  # with other prompts, each of which has `n` answers too

    def __post_init__(self) -> None:
        self.reply.notes = self.notes


@dataclass(frozen=True, slots=True)
class Searched:
    """What a client wants to know of a text or of two answers: the question, and what its answer looks like."""

    question: TextQuestion | ForkQuestion
    wire: Callable[[Wire], Wire]


Ids = Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=COUNT)]], msgspec.Meta(min_length=1)]


def with_prompts(request: Request, prompts: Sequence[str | tuple[int, ...]]) -> list[Request]:
    return [
        replace(request, prompt=prompt) if isinstance(prompt, str) else replace(request, prompt="", prompt_ids=prompt)
        for prompt in prompts
    ]


class Fields:
    """The fields of a JSON object that were not taken yet. `place` goes before their names in what is told.

    `notes` say what was not obeyed, here and in the objects within.
    """

    def __init__(self, body: object, place: str = "", notes: list[str] | None = None) -> None:
        self.notes = [] if notes is None else notes
        if not isinstance(body, dict):
            message = f"{place.rstrip('.') or 'the body'} is not a JSON object"
            raise Refusal(400, message, param=place.rstrip(".") or None)
        self._left = {name: value for name, value in body.items() if value is not None}
        self._place = place

    def take(self, name: str, kind: Any, default: Any = None) -> Any:
        """Return a field as this type, which msgspec checks; `default` where it is absent."""
        if name not in self._left:
            return default
        try:
            return msgspec.convert(self._left.pop(name), kind)
        except msgspec.ValidationError as error:
            raise self.refusal(name, str(error)[:1].lower() + str(error)[1:]) from None

    def within(self, name: str) -> Fields:
        return self.object(self._left.pop(name, {}), name)

    def object(self, value: object, name: str) -> Fields:
        return Fields(value, f"{self._place}{name}.", self.notes)

    def settings(self, holder: T, names: Mapping[str, str]) -> T:
        """Return the dataclass of declared settings with those that are given; `names` are its fields by ours."""
        changes = {}
        for name, setting in names.items():
            each = _DECLARED[type(holder), setting]
            value = self.take(name, TYPES[each.kind] if each.parse is None else int)
            if value is not None:
                self.check(name, each, value)
                changes[setting] = value
        changed: T = replace(holder, **changes)  # type: ignore[type-var]  # a dataclass
        return changed

    def check(self, name: str, each: Option, value: Any) -> None:
        try:
            each.check(value, f"'{self._place}{name}'")
        except UsageError as error:
            message = error.message if each.judge is None else f"'{self._place}{name}': {error.message}"
            raise Refusal(400, message, param=self._place + name) from None

    def check_setting(self, name: str, holder: type[Any], field: str, value: Any) -> None:
        self.check(name, _DECLARED[holder, field], value)

    def has_content(self, name: str) -> bool:
        return bool(self._left.get(name))

    def note(self, name: str, reason: str) -> None:
        """Note that a field is not obeyed, once for all items of a list."""
        place = re.sub(r"\[\d+\]", "[]", self._place)
        note = f"{place}{name[:80]}: {reason}"
        if note not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(note)

    def finish(self, *harmless: str, refused: Reasons = NONE, left: Reasons = NONE) -> None:
        """Note each field that nobody took, except for those that change nothing.

        What cannot be obeyed is `refused`, or `left` and noted, each with its reason and with the values that ask for
        nothing. Raises Refusal.
        """
        for name, (reason, idle) in {**refused, **left}.items():
            if name in self._left and self._left.pop(name) not in idle:
                if name in refused:
                    raise self.refusal(name, reason)
                self.note(name, reason)
        for name in self._left:
            if name not in HARMLESS and name not in harmless:
                self.note(name, UNKNOWN)

    def refusal(self, name: str, reason: str) -> Refusal:
        return Refusal(400, f"{self._place}{name[:80]}: {reason}", param=self._place + name[:80])

    # What the APIs have in common.

    def sampling(self, base: Sampling) -> Sampling:
        """Return how to sample, with the seed: -1 is a drawn one, as in llama.cpp."""
        sampling = self.settings(base, SAMPLED)
        seed = self.take("seed", int)
        if seed is not None:
            sampling = replace(sampling, seed=None if seed == -1 else seed % 2**64)
        return sampling

    def biased(self, sampling: Sampling) -> Sampling:
        """Return how to sample with `logit_bias`: an object of numbers by token, or llama-server's pairs of both.

        In a pair `false` forbids the token.
        """
        pairs = self.take("logit_bias", dict[str, float] | list[tuple[int, float | bool]])
        if pairs is None:
            return sampling
        if isinstance(pairs, list):
            given = {str(token): -math.inf if bias is False else float(bias) for token, bias in pairs}
        else:
            given = pairs
        if len(given) > MOST_BIASES:
            raise self.refusal("logit_bias", f"at most {MOST_BIASES} tokens")
        if not all(token.isascii() and token.isdigit() and len(token) < 10 for token in given):
            raise self.refusal("logit_bias", "its keys are numbers of tokens")
        biases = tuple((int(token), bias) for token, bias in given.items())
        self.check("logit_bias", _DECLARED[Sampling, "logit_bias"], biases)
        return replace(sampling, logit_bias=biases)

    def speculation(self, base: Speculation) -> Speculation:
        """Return how to draft: localspec's own object `speculation`. With a method nothing else is the server's."""
        own = self.within("speculation")
        method = own.take("method", str)
        if method is not None:
            base = Speculation(method=method, approximate=base.approximate)
        chosen = own.settings(base, SPECULATED)
        own.finish()
        return chosen

    def stop(self, name: str = "stop") -> tuple[str, ...]:
        texts = self.take(name, str | list[str], [])
        stops = tuple(filter(None, [texts] if isinstance(texts, str) else texts))
        if sum(len(stop.encode("utf-8", "replace")) for stop in stops) > LONGEST_STOPS:
            raise self.refusal(name, f"at most {LONGEST_STOPS} bytes together")
        return stops

    def prompts(self) -> list[str | tuple[int, ...]]:
        value: Any = self.take("prompt", str | list[int | str | list[int]])
        is_one = not isinstance(value, list) or any(isinstance(each, int) for each in value)
        try:
            prompts = msgspec.convert([value] if is_one else value, list[str | Ids])
        except msgspec.ValidationError:
            prompts = []
        if not 1 <= len(prompts) <= MOST_PROMPTS:
            raise self.refusal("prompt", f"1 to {MOST_PROMPTS} texts, or lists of tokens")
        return [prompt if isinstance(prompt, str) else tuple(prompt) for prompt in prompts]

    def reads_only(self, *limits: str) -> bool:
        """Whether no token is wanted, only that the prompt is read: a limit of 0, which is taken as 1."""
        name = next((name for name in limits if self._left.get(name) == 0), None)
        if name is not None:
            self._left[name] = 1
        return name is not None

    def max_tokens(self, base: int | None, *names: str) -> int | None:
        """Return the limit of tokens, which has several names; -1 is none."""
        for name in names:
            limit = self.take(name, int)
            if limit is not None:
                if limit == -1:
                    return None
                self.check(name, _DECLARED[Request, "max_tokens"], limit)
                base = limit
        return base

    def drawn(self, request: Request, *limits: str) -> Request:
        return replace(
            request,
            sampling=self.biased(self.sampling(request.sampling)),
            speculation=self.speculation(request.speculation),
            stop=self.stop() or request.stop,
            max_tokens=self.max_tokens(request.max_tokens, *limits),
            schema_compact=self.is_compact(request),
        )

    def is_compact(self, request: Request) -> bool:
        is_compact: bool = self.take("schema_compact", bool, request.schema_compact)
        return is_compact

    def logprobs(self, request: Request, name: str, n: int | None) -> Request:
        """Return the request with log-probabilities of the `n` likeliest tokens, as field `name` has it; None: none.

        `post_sampling_probs` asks for those after the sampler.
        """
        is_after = self.take("post_sampling_probs", bool, False)
        if n is not None and not 0 <= n <= MOST_LOGPROBS:
            raise self.refusal(name, f"0 to {MOST_LOGPROBS} of each token")
        return replace(request, logprobs=n, is_after_sampler=is_after)

    def chat_logprobs(self, request: Request) -> Request:
        is_told, n = self.take("logprobs", bool, False), self.take("top_logprobs", int)
        if n and not is_told:
            raise self.refusal("top_logprobs", "it needs logprobs true")
        return self.logprobs(request, "top_logprobs", (n or 0) if is_told else None)

    def content(self) -> str:
        given: str | list[dict[str, Any]] = self.take("content", str | list[dict[str, Any]], "")
        if isinstance(given, str):
            return given
        return "".join(_part(self.object(part, f"content[{i}]")) for i, part in enumerate(given))

    def form(self, request: Request, schema: str, grammar: str = "") -> Request:
        wanted = self.take(schema, str | bool | dict[str, Any])
        rules = self.take(grammar, str) or None
        if wanted in ("", {}):
            wanted = None
        if wanted is not None and rules:
            raise self.refusal(grammar, f"{schema} gives the answer a form already")
        return self.formed(request, grammar if rules else schema, wanted, rules)

    def formed(
        self, request: Request, name: str, schema: str | bool | dict[str, Any] | None, grammar: str | None = None
    ) -> Request:
        """Return the request with a form of its answer, which the field `name` gave; "json" is any object.

        Nothing here is taken for the name of a file.
        """
        if schema is None and grammar is None:
            return request
        wanted = ANY_OBJECT if schema == "json" else schema if isinstance(schema, str | None) else json.dumps(schema)
        try:
            require_short("schema", wanted or "")
            require_short("grammar", grammar or "")
            request = replace(request, schema=wanted and json_schema(wanted), grammar=grammar)
            check_form(request)
        except UsageError as error:
            raise self.refusal(name, error.message) from None
        return request


def _part(fields: Fields) -> str:
    kind = fields.take("type", str, "")
    if kind not in ("text", "refusal"):  # the words in which an assistant refused are its text
        raise fields.refusal("type", NO_IMAGES)
    text: str = fields.take(kind, str, "")
    fields.finish()
    return text
