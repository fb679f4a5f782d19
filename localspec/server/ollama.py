"""Ollama's API: /api/chat, /api/generate and what lists models.

Pure: JSON in, a request and the form of its answer out. Times are nanoseconds, as there.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from localspec import __version__
from localspec.engine.events import Committed, Event, Finished
from localspec.prompt.call_forms import NO_TOOLS, Tools
from localspec.server.fields import (
    NO_IMAGES,
    NO_SAMPLER,
    SAMPLED,
    ClientRequest,
    Fields,
    OfferedPair,
    Reasons,
    ServedPair,
)
from localspec.server.messages import messages_of, offered, resumed
from localspec.server.model_facts import capabilities, file_of, longest_context, template_of
from localspec.server.openai import with_effort
from localspec.server.refusal import Wire
from localspec.server.reply import JsonLines, is_cut, released, speculation, timings, told_logprobs
from localspec.server.tool_calls import Call, CallReader, ReadAnswer
from localspec.settings.request import Message, Request, Sampling
from localspec.ui.stats import Stats

# How a model is loaded: that was decided when the server started.
HARMLESS_OPTIONS = ("num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock", "numa",
                    "low_vram", "f16_kv", "mirostat_tau", "mirostat_eta")  # fmt: skip
VERSION = "0.13.0"  # of Ollama's API; programs compare its three numbers with the least that they want
THOUGHTS = {"true": True, "false": False, **dict.fromkeys(("low", "medium", "high", "max"), True)}
REFUSED: Reasons = {
    "images": (NO_IMAGES, ([],)),
    "template": ("the server's own template is used; localspec serve --template", ("",)),
    "context": ("send the messages to /api/chat", ([],)),
}
REFUSED_OPTIONS: Reasons = {
    "mirostat": (NO_SAMPLER, (0,)),
    "tfs_z": (NO_SAMPLER, (1,)),
    "penalize_newline": (NO_SAMPLER, (False,)),
}


def chat(body: object, served: ServedPair) -> ClientRequest | Wire:
    """Read the body of /api/chat; one without messages asks only that the model is loaded, and is answered here."""
    fields = Fields(body)
    if not fields.has_content("messages"):
        return _loaded(fields, served, {"message": _message("")})
    request = resumed(fields, served.asked(messages_of(fields)))
    return _asked(fields, request, served, is_chat=True)


def generate(body: object, served: ServedPair) -> ClientRequest | Wire:
    """Read the body of /api/generate: a prompt through the chat template, or a raw one, or a text with a gap."""
    fields = Fields(body)
    prompt, suffix = fields.take("prompt", str, ""), fields.take("suffix", str, "")
    system, is_raw = fields.take("system", str, ""), fields.take("raw", bool, False)
    if not (prompt or suffix):
        return _loaded(fields, served, {"response": ""})
    if is_raw or suffix:
        if system:
            raise fields.refusal("system", "a raw prompt has no system message")
        request = replace(served.request, prompt=prompt, suffix=suffix or None)
    else:
        head = (Message("system", system),) if system else ()
        request = served.asked((*head, Message("user", prompt)))
    return _asked(fields, request, served, is_chat=False)


def _asked(fields: Fields, request: Request, served: ServedPair, *, is_chat: bool) -> ClientRequest:
    served.require(fields.take("model", str) or served.name)
    is_streamed = fields.take("stream", bool, True)
    request = fields.form(_optioned(fields.within("options"), request, served), "format")
    request = replace(
        _thinking(fields, request),
        speculation=fields.speculation(request.speculation),
        shorten=fields.take("truncate", bool, is_chat),
        schema_compact=fields.is_compact(request),
    )
    request, tools = fields.chat_logprobs(request), NO_TOOLS
    if is_chat:
        request, tools = offered(fields, request)
    fields.finish(refused=REFUSED)
    reply = Ollama(served.name, is_chat=is_chat, tools=tools)
    return ClientRequest(request, reply, is_streamed, notes=fields.notes)


def _thinking(fields: Fields, request: Request) -> Request:
    think = fields.take("think", bool | str)
    if think is None:
        return request
    if isinstance(think, str):
        if think not in THOUGHTS:
            raise fields.refusal("think", f"true, false, {', '.join(list(THOUGHTS)[2:])}")
        if think not in ("true", "false"):
            request = with_effort(request, think)
        think = THOUGHTS[think]
    return replace(request, think="on" if think else "off")


def _optioned(options: Fields, request: Request, served: ServedPair) -> Request:
    n_ctx = options.take("num_ctx", int, 0)
    longest = longest_context(served)
    if 0 < longest < n_ctx:
        chosen = f"; localspec serve --ctx {n_ctx} has more" if served.settings.ctx is not None else ""
        options.note("num_ctx", f"the context holds {longest} tokens at most{chosen}")
    most = options.take("num_predict", int)
    if most is not None and most >= 0:
        options.check_setting("num_predict", Request, "max_tokens", most)
    changed = replace(
        request,
        sampling=options.sampling(request.sampling),
        stop=options.stop() or request.stop,
        max_tokens=request.max_tokens if most is None else most if most >= 0 else None,
    )
    options.finish(*HARMLESS_OPTIONS, refused=REFUSED_OPTIONS)
    return changed


def _loaded(fields: Fields, served: ServedPair, said: Wire) -> Wire:
    served.require(fields.take("model", str) or served.name)
    return {"model": served.name, "created_at": _now(), **said, "done": True, "done_reason": "load"}


class Ollama(JsonLines):
    """An answer of /api/chat or /api/generate."""

    def __init__(self, model: str, *, is_chat: bool, tools: Tools | None = None) -> None:
        self._model = model
        self._is_chat = is_chat
        self._calls = CallReader(tools)

    def waiting(self) -> bytes:
        return self.frame(self._line("", ""))

    def pieces(self, event: Event) -> list[Wire]:
        if not isinstance(event, Committed | Finished):
            return []
        text, logprobs = released(event)
        read = ReadAnswer(tuple(self._calls.feed(text)))
        is_news = read.parts or event.reasoning or logprobs
        return [self._line(read.text, event.reasoning, logprobs, read.calls)] if is_news else []

    def closing(self, *answers: Stats) -> list[Wire]:
        read = self._calls.finish()
        return [{**self._line(read.text, "", calls=read.calls), **_figures(answers[0], *self.notes, read.warning)}]

    def whole(self, *answers: Stats) -> Wire:
        (stats,) = answers
        read = self._calls.read(stats.text)
        line = self._line(read.text, stats.reasoning, told_logprobs(stats.logprobs), read.calls)
        return {**line, **_figures(stats, *self.notes, read.warning)}

    def _line(self, text: str, reasoning: str, logprobs: Sequence[Wire] = (), calls: Sequence[Call] = ()) -> Wire:
        beside: Wire = {"thinking": reasoning} if reasoning else {}
        if calls:
            beside["tool_calls"] = [call.to_ollama() for call in calls]
        said: Wire = {"message": {**_message(text), **beside}} if self._is_chat else {"response": text, **beside}
        if logprobs:
            said["logprobs"] = logprobs
        return {"model": self._model, "created_at": _now(), **said, "done": False}


def _message(text: str, role: str = "assistant") -> Wire:
    return {"role": role, "content": text}


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _figures(stats: Stats, *warnings: str) -> Wire:
    figures = timings(stats)
    return {
        "done": True,
        "done_reason": "length" if is_cut(stats) else "stop",
        "total_duration": _ns(stats.finished.wall_ms if stats.finished else 0.0),
        "load_duration": 0,
        "prompt_eval_count": figures["cache_n"] + figures["prompt_n"],
        "prompt_eval_duration": _ns(figures["prompt_ms"]),
        "eval_count": figures["predicted_n"],
        "eval_duration": _ns(figures["predicted_ms"]),
        "timings": figures,
        "speculation": speculation(stats, *warnings),
    }


def _ns(ms: float | None) -> int:
    return round(1e6 * (ms or 0.0))


def _details(listed: OfferedPair) -> Wire:
    """Return the facts of a target; few of a pair that no request has named yet: a list opens no file for it."""
    file = file_of(listed)
    families, n = ([], 0) if file is None else ([file.architecture], file.n_params)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": "".join(families),
        "families": families,
        "parameter_size": f"{n / 1e9:.1f}B" if n >= 1e9 else f"{n / 1e6:.1f}M" if n else "",
        "quantization_level": listed.quant if file is None else file.quant,
    }


def _entry(listed: OfferedPair) -> Wire:
    made = datetime.fromtimestamp(listed.created, UTC).isoformat().replace("+00:00", "Z")
    digest = listed.target.fingerprint if listed.target is not None else ""
    names = {"name": listed.name, "model": listed.name}
    return {**names, "modified_at": made, "size": listed.bytes, "digest": digest, "details": _details(listed)}


def tags(listed: Sequence[OfferedPair]) -> Wire:
    return {"models": [_entry(each) for each in listed]}


def ps(loaded: Sequence[ServedPair]) -> Wire:
    """Return the body of /api/ps: a pair stays loaded until another one takes its place, or the server ends."""
    held = {"expires_at": "9999-12-31T23:59:59Z", "size_vram": 0}
    return {"models": [{**_entry(each), **held, "context_length": longest_context(each)} for each in loaded]}


def show(body: object, served: ServedPair) -> Wire:
    fields = Fields(body)
    served.require(fields.take("model", str) or fields.take("name", str) or served.name)
    file = file_of(served)
    info = {} if file is None else {
        "general.architecture": file.architecture,
        "general.basename": served.name,
        "general.parameter_count": file.n_params,
        f"{file.architecture}.context_length": file.n_ctx_train,
        f"{file.architecture}.block_count": file.n_layer,
    }  # fmt: skip
    given, template, model = _parameters(served.request), template_of(served), served.ollama
    system, messages = ("", ()) if model is None else (model.system, model.messages)
    texts = (("TEMPLATE", template), ("SYSTEM", system))
    lines = [f"FROM {served.name}", *(f'{name} """{text}"""' for name, text in texts if text)]
    lines += [f"PARAMETER {name} {value}" for name, value in given]
    lines += [f'MESSAGE {each.role} """{each.content}"""' for each in messages]
    made: Wire = {"modelfile": "\n".join(lines), "template": template, "capabilities": capabilities(served)}
    made["parameters"] = "\n".join(f"{name:<30} {value}" for name, value in given)
    made |= {"system": system, "messages": [_message(each.content, each.role) for each in messages]}
    return {**made, "details": _details(served), "model_info": info}


def _parameters(request: Request) -> list[tuple[str, str]]:
    """Return the settings that a request begins with and that are not the usual ones, as a Modelfile has them."""
    values = {name: (getattr(request.sampling, each), getattr(Sampling(), each)) for name, each in SAMPLED.items()}
    values |= {"seed": (request.sampling.seed, None), "num_predict": (request.max_tokens, None)}
    rows = [(name, json.dumps(value)) for name, (value, usual) in values.items() if value != usual]
    return [*rows, *(("stop", json.dumps(text)) for text in request.stop)]


def version() -> Wire:
    return {"version": VERSION, "localspec": __version__}
