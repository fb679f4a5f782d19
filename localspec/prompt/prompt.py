"""From a request to prompt tokens: the model's chat template for messages, the text as it is for raw prompts.

The messages of a chat are text: they never become control tokens, whatever they spell. A raw prompt is written by hand
as a template would, so there the text of a control token is that token. BOS is put in front where the vocabulary asks
for it and the prompt has none.

It also answers what is asked of a model's vocabulary and template: nothing is evaluated, and no cache changes.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from localspec.backends.model import Model
from localspec.engine.text import Marks
from localspec.errors import UsageError
from localspec.prompt.call_forms import SHOWN
from localspec.prompt.chat_template import chosen, render
from localspec.prompt.markers import Prompt, Segment
from localspec.prompt.message_forms import tools_of
from localspec.settings.jobs import TextQuestion
from localspec.settings.request import Request

REPEATED = 10  # characters besides blanks of the suffix by which an answer is known to repeat it
CONTINUED = "the model has no chat template, so it continues your text, as with --raw"


@dataclass(frozen=True, slots=True)
class Tokenised:
    """The prompt's tokens, and what a person should know about how they came to be. `stops` are texts that end the
    answer, and `marks` those around the model's reasoning. `left_out` are the turns of the conversation, from 0 on,
    that found no room. `shown` are the control tokens that are text of the answer."""

    tokens: list[int]
    warnings: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    marks: Marks | None = None
    left_out: tuple[int, ...] = ()
    shown: tuple[str, ...] = ()


def special_texts(model: Model) -> frozenset[str]:
    parsed = filter(model.is_parsed, range(model.n_vocab))
    return frozenset(text for token in parsed if (text := _special(model, token)))


def template_text(request: Request, model: Model) -> str | None:
    return chosen(request.template, model.template, model.template_names)


def tokenise(request: Request, model: Model, specials: Collection[str]) -> Tokenised:
    if request.prompt_ids:
        return Tokenised(_known(model, list(request.prompt_ids))[: request.prompt_tokens])
    if request.suffix is not None:
        before, after = request.prompt or "", request.suffix
        return _finished(request, model, _filling(model, before, after), stops=repetition(before, after))
    if request.prompt is not None:
        return _finished(request, model, model.tokenize(request.prompt, parse_special=True))
    template = template_text(request, model)
    if request.continues and len(request.messages) == 1 and not (template or request.tools):
        return _finished(request, model, _as_text(model, request.messages[0].content), (CONTINUED,))
    resumed = request.messages[-1] if request.resumes and request.messages else None
    rendered = render(
        request.messages[:-1] if resumed else request.messages,
        template,
        bos=_special(model, model.special.bos),
        eos=_special(model, model.special.eos),
        specials=specials,
        is_explicit=request.template is not None,
        file=request.template_file,
        tools=tools_of(request.tools),
        arguments=dict(request.template_args),
        thinks=None if request.think == "auto" else request.think == "on",
        add_generation_prompt=request.opens_turn or resumed is not None,
    )
    tokens, marks = _tokens(rendered.segments, model, specials), rendered.marks
    if resumed is not None:
        text = resumed.content
        if marks is not None and marks.is_open:
            text = f"{resumed.reasoning}{marks.end}\n\n{text}" if text else resumed.reasoning
            marks = replace(marks, is_open=not resumed.content)
        tokens += _as_text(model, text)
    tokenised = _finished(request, model, tokens, rendered.warnings, rendered.stops, marks)
    return replace(tokenised, shown=SHOWN) if request.tools else tokenised


def _tokens(prompt: Prompt, model: Model, specials: Collection[str]) -> list[int]:
    """Return the tokens of a prompt: of an answer those that it was written with, where they are its text still."""
    tokens: list[int] = []
    trusted, marks = "", tuple(specials)  # text that is to be read in one piece
    for segment, follower in zip(prompt, (*prompt[1:], None), strict=True):
        ends = follower is not None and follower.is_trusted and follower.text.startswith(marks)
        written = _written(segment, model) if ends else []
        if segment.is_trusted and not written:
            trusted += segment.text
            continue
        tokens += model.tokenize(trusted, parse_special=True) if trusted else []
        tokens += written or _as_text(model, segment.text)
        trusted = ""
    return tokens + (model.tokenize(trusted, parse_special=True) if trusted else [])


def _written(segment: Segment, model: Model) -> list[int]:
    if not all(0 <= token < model.n_vocab for token in segment.ids):
        return []
    ids = list(segment.ids)
    while ids and model.is_parsed(ids[-1]):  # the end of the answer, which the template writes itself
        ids.pop()
    is_text = not any(map(model.is_parsed, ids)) and b"".join(map(model.piece, ids)) == segment.text.encode()
    return ids if is_text else []


def predicted(request: Request, model: Model) -> tuple[int, ...]:
    """Return the tokens of the answer that the request predicts, with one that ends a text behind them."""
    if not request.prediction:
        return ()
    end = model.special.eot if model.special.eot is not None else model.special.eos
    return (*_as_text(model, request.prediction), *(() if end is None else (end,)))


def _finished(
    request: Request,
    model: Model,
    tokens: list[int],
    warnings: tuple[str, ...] = (),
    stops: tuple[str, ...] = (),
    marks: Marks | None = None,
) -> Tokenised:
    if model.special.add_bos and model.special.bos is not None and tokens[:1] != [model.special.bos]:
        tokens.insert(0, model.special.bos)
    return Tokenised(_started(model, tokens)[: request.prompt_tokens], warnings, stops, marks)


def _filling(model: Model, before: str, after: str) -> list[int]:
    if model.infill is None:
        hint = "leave out --suffix, or take a model of code, such as qwen2.5-coder"
        raise UsageError("this model has no tokens for filling in the middle", hint=hint)
    prefix, suffix, middle = model.infill
    return [prefix, *_as_text(model, before), suffix, *_as_text(model, after), middle]


def repetition(before: str, after: str) -> tuple[str, ...]:
    """Return the text that ends what is filled in between `before` and `after`: there it begins to repeat `after`. It
    is whole lines of `after`, with `REPEATED` characters besides blanks at least, and stands in the two texts once. A
    lone `}` or a line that the file repeats anyway may belong to the answer: without more there is no such text."""
    text, n = "", 0
    for line in after.splitlines(keepends=True):
        text, n = text + line, n + len("".join(line.split()))
        if n >= REPEATED and (before + after).count(text) == 1:
            return (text,)
    return ()


def _as_text(model: Model, text: str) -> list[int]:
    """Return the tokens of a text from outside, none of which stands for structure. llama.cpp finds user-defined tokens
    in any text, so where it found one that is a mark, its text is cut in two."""
    tokens = model.tokenize(text)
    marks = {mark for token in set(tokens) if model.is_parsed(token) and len(mark := _special(model, token)) > 1}
    parts = re.split("|".join(f"(?<={re.escape(m[0])})(?={re.escape(m[1:])})" for m in sorted(marks)), text)
    if not marks or len(parts) == 1:
        return tokens
    return [token for part in parts for token in _as_text(model, part)]


def _started(model: Model, tokens: list[int]) -> list[int]:
    start = model.special.bos if model.special.bos is not None else model.special.eos
    if tokens:
        return tokens
    if start is None:
        raise UsageError("the prompt is empty, and this model has no token that begins a text", hint="add a prompt")
    return [start]


def _special(model: Model, token: int | None) -> str:
    return "" if token is None else model.piece(token, special=True).decode("utf-8", "replace")


def _known(model: Model, tokens: list[int]) -> list[int]:
    unknown = next((token for token in tokens if not 0 <= token < model.n_vocab), None)
    if unknown is not None:
        raise UsageError(f"this model has no token {unknown}", hint=f"tokens from 0 to {model.n_vocab - 1}")
    return tokens


def answer(question: TextQuestion, model: Model, prompt_of: Callable[[Request], Tokenised]) -> dict[str, Any]:
    if question.wants == "tokens":
        tokens = model.tokenize(question.text, question.parses_special, question.adds_special)
        return {"tokens": tokens, "pieces": [list(model.piece(token, special=True)) for token in tokens]}
    tokens = list(question.tokens)
    if question.wants == "prompt":
        tokens = prompt_of(question.request).tokens
    text = b"".join(model.piece(token, special=True) for token in _known(model, tokens)).decode("utf-8", "replace")
    return {"text": text, "n": len(tokens)}
