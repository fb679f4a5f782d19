"""llama-server's own paths: /completion, /infill and /props.

Pure: JSON in, a request and the form of its answer out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from localspec.engine.events import Committed, Event, Finished
from localspec.server import openai
from localspec.server.fields import ONE, ClientRequest, Fields, Searched, ServedPair
from localspec.server.refusal import Wire
from localspec.server.reply import Reply, is_cut, released, speculation, timings, told_logprobs
from localspec.settings.jobs import TextQuestion
from localspec.settings.request import Request
from localspec.ui.stats import Stats

HARMLESS = ("cache_prompt", "id_slot", "t_max_prompt_ms")
ORDER = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
NO_TIME = "an answer has no limit of time here"
REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "n": (ONE, (1,)),
    "n_cmpl": (ONE, (1,)),
    "timings_per_token": ("timings come at the end", (False,)),
    "return_progress": ("progress is not told", (False,)),
    "return_tokens": ("tokens are not told", (False,)),
    "response_fields": ("an answer has all its fields", ([],)),
    "t_max_predict_ms": (NO_TIME, (0, -1)),
    "ignore_eos": ("a token is banned by logit_bias", (False,)),
    "mirostat": ("this sampler is not here", (0,)),
    "top_n_sigma": ("this sampler is not here", (-1, 0)),
    "dynatemp_range": ("this sampler is not here", (0,)),
    "n_keep": ("a full context ends the answer", (0, -1)),
    "n_indent": ("indentation has no limit here", (0,)),
    "n_discard": ("a full context ends the answer", (0,)),
    "samplers": ("the samplers have llama.cpp's order", (ORDER, [])),
}
SNIPPET = "\n\n--- snippet ---\n\n"  # as llama-server puts it before text of other files, for most models


def completion(body: object, served: ServedPair) -> ClientRequest:
    """Read the body of /completion; raises Refusal."""
    fields = Fields(body)
    prompt = fields.take("prompt", str)
    if prompt is None:
        raise fields.refusal("prompt", "one text is needed")
    return _asked(fields, replace(served.request, prompt=prompt), served)


def infill(body: object, served: ServedPair) -> ClientRequest:
    """Read the body of /infill: the text before and after a gap, and `input_extra`, text of other files."""
    fields = Fields(body)
    before, after = fields.take("input_prefix", str, ""), fields.take("input_suffix", str, "")
    extra = fields.take("input_extra", list[dict[str, Any]], [])
    said = []
    for i, each in enumerate(extra):
        chunk = Fields(each, f"input_extra[{i}].")
        said.append(SNIPPET + chunk.take("text", str, ""))
        chunk.finish(("filename", "time"))
    head = "".join(said) + SNIPPET if said else ""
    prompt = head + before + fields.take("prompt", str, "")
    return _asked(fields, replace(served.request, prompt=prompt, suffix=after), served)


def tokenize(body: object, served: ServedPair) -> Searched:
    fields = Fields(body)
    text = fields.take("content", str, "")
    adds, parses = fields.take("add_special", bool, False), fields.take("parse_special", bool, True)
    has_pieces = fields.take("with_pieces", bool, False)
    fields.finish(("model",))

    def told(found: Wire) -> Wire:
        pairs = zip(found["tokens"], map(_piece, found["pieces"]), strict=True)
        return {"tokens": [{"id": token, "piece": piece} for token, piece in pairs] if has_pieces else found["tokens"]}

    return Searched(TextQuestion(served.request, "tokens", text, (), adds, parses), told)


def _piece(raw: list[int]) -> str | list[int]:
    """Return a token's text, or its bytes where they are no text, as llama-server does."""
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        return raw


def detokenize(body: object, served: ServedPair) -> Searched:
    fields = Fields(body)
    tokens = fields.take("tokens", list[int], [])
    fields.finish(("model",))
    question = TextQuestion(served.request, "text", tokens=tuple(tokens))
    return Searched(question, lambda found: {"content": found["text"]})


def apply_template(body: object, served: ServedPair) -> Searched:
    """Read the body of /apply-template, which is that of a chat: its prompt is told, and nothing answered."""
    request = openai.chat(body, served).request
    return Searched(TextQuestion(request, "prompt"), lambda found: {"prompt": found["text"]})


def _asked(fields: Fields, request: Request, served: ServedPair) -> ClientRequest:
    """Read the fields that both share, and refuse what is left."""
    served.require(fields.take("model", str) or served.name)
    request = fields.form(fields.drawn(request, "n_predict", "max_tokens"), "json_schema", "grammar")
    request = fields.logprobs(request, "n_probs", fields.take("n_probs", int, 0) or None)
    is_streamed = fields.take("stream", bool, False)
    fields.refuse(REFUSED)
    fields.finish(HARMLESS)
    return ClientRequest(request, LlamaServer(served.name, request), is_streamed)


class LlamaServer(Reply):
    """An answer of /completion or /infill."""

    end = b""

    def __init__(self, model: str, request: Request) -> None:
        self._model = model
        self._prompt = request.prompt or ""
        self._is_after = request.is_after_sampler

    def pieces(self, event: Event) -> list[Wire]:
        """Return a chunk for what an event released."""
        if not isinstance(event, Committed | Finished):
            return []
        text, logprobs = released(event)
        if not (text or logprobs):
            return []
        return [{"index": 0, "content": text, "stop": False, "id_slot": 0, **self._probabilities(logprobs)}]

    def closing(self, *answers: Stats) -> list[Wire]:
        """Return the chunk with the figures."""
        return [self._last(answers[0], "")]

    def whole(self, *answers: Stats) -> Wire:
        return self._last(answers[0], answers[0].text)

    def _last(self, stats: Stats, text: str) -> Wire:
        told, word = timings(stats), stats.finished.stopping_word if stats.finished else ""
        return {
            "index": 0,
            "content": text,
            "stop": True,
            "id_slot": 0,
            "model": self._model,
            "prompt": self._prompt,
            "tokens_predicted": told["predicted_n"],
            "tokens_evaluated": told["cache_n"] + told["prompt_n"],
            "tokens_cached": told["cache_n"],
            "truncated": False,
            "stop_type": "limit" if is_cut(stats) else "word" if word else "eos",
            "stopping_word": word,
            "timings": told,
            "speculation": speculation(stats),
            **(self._probabilities(told_logprobs(stats.logprobs)) if text else {}),
        }

    def _probabilities(self, logprobs: list[Wire]) -> Wire:
        """Return `completion_probabilities`: after the sampler they are probabilities, not logarithms, as there."""
        if self._is_after:
            logprobs = [{**_exponential(each), "top_probs": list(map(_exponential, each["top_logprobs"]))}
                        for each in logprobs]  # fmt: skip
        return {"completion_probabilities": logprobs} if logprobs else {}


def _exponential(likely: Wire) -> Wire:
    told = {name: likely[name] for name in ("id", "token", "bytes")}
    return {**told, "prob": math.exp(likely["logprob"])}


def props(served: ServedPair) -> Wire:
    sampling = served.request.sampling
    names = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty")
    params = {name: getattr(sampling, name) for name in names}
    settings = {"n_ctx": served.n_ctx, "params": {**params, "n_predict": served.request.max_tokens or -1}}
    return {"default_generation_settings": settings, "total_slots": 1, "model_alias": served.name}
