"""llama-server's own paths: /completion, /infill and /props.

Pure: JSON in, a request and the form of its answer out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from localspec.engine.events import Committed, Event, Finished
from localspec.server import openai
from localspec.server.fields import NO_SAMPLER, ONE, ClientRequest, Fields, Reasons, Searched, ServedPair, with_prompts
from localspec.server.model_facts import longest_context, template_of
from localspec.server.refusal import Wire
from localspec.server.reply import Progress, Reply, is_cut, released, speculation, timings, told_logprobs
from localspec.settings.jobs import TextQuestion
from localspec.settings.request import Request, Sampling
from localspec.ui.stats import Stats

# The samplers in llama.cpp's order, with their letters and what switches each off.
SAMPLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "penalties": ("e", {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}),
    "dry": ("d", {"dry_multiplier": 0.0}),
    "top_n_sigma": ("s", {}),
    "top_k": ("k", {"top_k": 0}),
    "typ_p": ("y", {"typical_p": 1.0}),
    "top_p": ("p", {"top_p": 1.0}),
    "min_p": ("m", {"min_p": 0.0}),
    "xtc": ("x", {"xtc_probability": 0.0}),
    "temperature": ("t", {"temperature": 1.0}),
}
REFUSED: Reasons = {
    "n": (ONE, (1,)),
    "n_cmpl": (ONE, (1,)),
    "ignore_eos": ("a token is banned by logit_bias", (False,)),
    "mirostat": (NO_SAMPLER, (0,)),
    "top_n_sigma": (NO_SAMPLER, (-1, 0)),
    "dynatemp_range": (NO_SAMPLER, (0,)),
}
LEFT: Reasons = {
    "timings_per_token": ("timings come at the end", (False,)),
    "return_tokens": ("the numbers of tokens are not returned", (False,)),
    "t_max_predict_ms": ("an answer has no limit of time here", (0, -1)),
    "n_keep": ("a full context ends the answer", (0, -1)),
    "n_indent": ("indentation has no limit here", (0,)),
    "n_discard": ("a full context ends the answer", (0,)),
}
SNIPPET = "\n\n--- snippet ---\n\n"  # as llama-server puts it before text of other files, for most models


def completion(body: object, served: ServedPair) -> ClientRequest:
    fields = Fields(body)
    return _asked(fields, with_prompts(served.request, fields.prompts()), served)


def infill(body: object, served: ServedPair) -> ClientRequest:
    """Read the body of /infill: the text before and after a gap, and `input_extra`, text of other files."""
    fields = Fields(body)
    before, after = fields.take("input_prefix", str, ""), fields.take("input_suffix", str, "")
    extra = fields.take("input_extra", list[dict[str, Any]], [])
    said = []
    for i, each in enumerate(extra):
        chunk = fields.object(each, f"input_extra[{i}]")
        said.append(SNIPPET + chunk.take("text", str, ""))
        chunk.finish("filename", "time")
    head = "".join(said) + SNIPPET if said else ""
    prompt = head + before + fields.take("prompt", str, "")
    return _asked(fields, [replace(served.request, prompt=prompt, suffix=after)], served)


def tokenize(body: object, served: ServedPair) -> Searched:
    fields = Fields(body)
    text = fields.take("content", str, "")
    adds, parses = fields.take("add_special", bool, False), fields.take("parse_special", bool, True)
    has_pieces = fields.take("with_pieces", bool, False)
    fields.finish()

    def wire(facts: Wire) -> Wire:
        pairs = zip(facts["tokens"], map(_piece, facts["pieces"]), strict=True)
        return {"tokens": [{"id": token, "piece": piece} for token, piece in pairs] if has_pieces else facts["tokens"]}

    return Searched(TextQuestion(served.request, "tokens", text, (), adds, parses), wire)


def _piece(raw: list[int]) -> str | list[int]:
    """Return a token's text, or its bytes where they are no text, as llama-server does."""
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        return raw


def detokenize(body: object, served: ServedPair) -> Searched:
    fields = Fields(body)
    tokens = fields.take("tokens", list[int], [])
    fields.finish()
    question = TextQuestion(served.request, "text", tokens=tuple(tokens))
    return Searched(question, lambda facts: {"content": facts["text"]})


def apply_template(body: object, served: ServedPair) -> Searched:
    request = openai.chat(body, served).request
    return Searched(TextQuestion(request, "prompt"), lambda facts: {"prompt": facts["text"]})


def _asked(fields: Fields, requests: list[Request], served: ServedPair) -> ClientRequest:
    is_silent, request = fields.reads_only("n_predict", "max_tokens"), requests[0]
    served.require(fields.take("model", str) or served.name)
    request = fields.form(fields.drawn(request, "n_predict", "max_tokens"), "json_schema", "grammar")
    request = fields.logprobs(request, "n_probs", fields.take("n_probs", int, 0) or None)
    request = replace(request, sampling=_chained(fields, request.sampling))
    shown = tuple(fields.take("response_fields", list[str], []))
    is_streamed = fields.take("stream", bool, False)
    has_progress = fields.take("return_progress", bool, False)
    others = tuple(replace(request, prompt=each.prompt, prompt_ids=each.prompt_ids) for each in requests[1:])
    prompts = [each.prompt or list(each.prompt_ids) for each in (request, *others)]
    reply = LlamaServer(served.name, request, shown, prompts=prompts, has_progress=has_progress, is_silent=is_silent)
    fields.finish(refused=REFUSED, left=LEFT)
    return ClientRequest(request, reply, is_streamed, notes=fields.notes, others=others)


def _chained(fields: Fields, sampling: Sampling) -> Sampling:
    """Return how to sample with `samplers`, names or letters: one that is not among them is switched off."""
    wanted = fields.take("samplers", str | list[str])
    if wanted is None:
        return sampling
    spellings = {spelling for name, (letter, _) in SAMPLERS.items() for spelling in (name, letter)}
    for name in sorted(set(wanted) - spellings):
        fields.note("samplers", f"{name[:20]!r} is not here")
    known = [name for name, (letter, _) in SAMPLERS.items() if name in wanted or letter in wanted]
    off = [setting for name, (_, setting) in SAMPLERS.items() if name not in known]
    listed = [name for each in wanted for name in known if each in (name, SAMPLERS[name][0])]
    if listed != known:
        fields.note("samplers", "they keep llama.cpp's order")
    return replace(sampling, **{name: value for setting in off for name, value in setting.items()})


@dataclass(eq=False)
class LlamaServer(Reply):
    """An answer of /completion or /infill, to each of `prompts`.

    `shown` are `response_fields`, those that the end has, all where there are none. `is_silent`: the prompt is read,
    and no token of the answer is wanted.
    """

    end: ClassVar[bytes] = b""
    model: str
    request: Request
    shown: Sequence[str] = ()
    prompts: Sequence[str | list[int]] = ()
    has_progress: bool = False
    is_silent: bool = False

    def __post_init__(self) -> None:
        self._progress = Progress(self.has_progress)
        self._prompts = self.prompts or [self.request.prompt or ""]
        self._index = 0

    def pieces(self, event: Event) -> list[Wire]:
        if not isinstance(event, Committed | Finished):
            progress = self._progress.read(event)
            return [{"index": self._index, "content": "", "stop": False, "id_slot": 0, **progress}] if progress else []
        text, logprobs = ("", []) if self.is_silent else released(event)
        if not (text or logprobs):
            return []
        return [{"index": self._index, "content": text, "stop": False, "id_slot": 0, **self._probabilities(logprobs)}]

    def following(self, stats: Stats) -> list[Wire]:
        if self._index + 1 == len(self._prompts):
            return []
        last = self._last(stats, "")
        self._index += 1
        return [last]

    def closing(self, *answers: Stats) -> list[Wire]:
        return [self._last(answers[-1], "")]

    def whole(self, *answers: Stats) -> Wire | list[Wire]:
        wholes = []
        for self._index, stats in enumerate(answers):
            wholes.append(self._last(stats, "" if self.is_silent else stats.text))
        return wholes if len(wholes) > 1 else wholes[0]

    def _last(self, stats: Stats, text: str) -> Wire:
        figures, word = timings(stats), stats.finished.stopping_word if stats.finished else ""
        made: Wire = {
            "index": self._index,
            "content": text,
            "stop": True,
            "id_slot": 0,
            "model": self.model,
            "prompt": self._prompts[self._index],
            "tokens_predicted": 0 if self.is_silent else figures["predicted_n"],
            "tokens_evaluated": figures["cache_n"] + figures["prompt_n"],
            "tokens_cached": figures["cache_n"],
            "truncated": False,
            "stop_type": "limit" if is_cut(stats) else "word" if word else "eos",
            "stopping_word": word,
            "timings": figures,
            "speculation": speculation(stats, *self.notes),
            **(self._probabilities(told_logprobs(stats.logprobs)) if text else {}),
        }
        return made if not self.shown else _selected(made, self.shown)

    def _probabilities(self, logprobs: list[Wire]) -> Wire:
        """Return `completion_probabilities`: after the sampler they are probabilities, not logarithms, as there."""
        if self.request.is_after_sampler:
            logprobs = [{**_exponential(each), "top_probs": list(map(_exponential, each["top_logprobs"]))}
                        for each in logprobs]  # fmt: skip
        return {"completion_probabilities": logprobs} if logprobs else {}


def _selected(wire: Wire, paths: Sequence[str]) -> Wire:
    """Return the fields at some paths, such as `timings/prompt_n`, each by its last name."""
    selected: Wire = {}
    for path in paths:
        value: Any = wire
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            selected[path.rpartition("/")[2]] = value
    return selected


def _exponential(likely: Wire) -> Wire:
    facts = {name: likely[name] for name in ("id", "token", "bytes")}
    return {**facts, "prob": math.exp(likely["logprob"])}


def props(served: ServedPair) -> Wire:
    sampling = served.request.sampling
    names = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty")
    params = {name: getattr(sampling, name) for name in names}
    limit = {"n_predict": served.request.max_tokens or -1}
    settings = {"n_ctx": longest_context(served), "params": {**params, **limit}}
    slots = 1 if served.loaded is None else served.loaded.parallel
    made = {"default_generation_settings": settings, "total_slots": slots, "model_alias": served.name}
    return {**made, "chat_template": template_of(served)}
