"""From a request to prompt tokens: the model's chat template for messages, the text as it is for raw prompts.

What a person typed is text: it never becomes a control token, whatever it spells.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from localspec.backends.model import Model
from localspec.chat_template import render
from localspec.config import Request
from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Tokenised:
    """The prompt's tokens, and what a person should know about how they came to be."""

    tokens: list[int]
    warnings: tuple[str, ...] = ()


def special_texts(model: Model) -> frozenset[str]:
    """Return the texts that would become control tokens if they were read as such."""
    parsed = filter(model.is_parsed, range(model.n_vocab))
    return frozenset(text for token in parsed if (text := _special(model, token)))


def tokenise(request: Request, model: Model, specials: Collection[str]) -> Tokenised:
    """Return the prompt of `request` for `model`; raises UsageError when nothing is left to start from."""
    if request.prompt is not None:
        return Tokenised(_started(model, model.tokenize(request.prompt, add_bos=True))[: request.prompt_tokens])
    rendered = render(
        request.messages,
        request.template or model.chat_template,
        bos=_special(model, model.special.bos),
        eos=_special(model, model.special.eos),
        specials=specials,
        is_explicit=request.template is not None,
    )
    tokens = [
        token
        for segment in rendered.segments
        for token in model.tokenize(segment.text, parse_special=segment.is_trusted)
    ]
    if model.special.add_bos and model.special.bos is not None and tokens[:1] != [model.special.bos]:
        tokens.insert(0, model.special.bos)
    return Tokenised(_started(model, tokens)[: request.prompt_tokens], rendered.warnings)


def _started(model: Model, tokens: list[int]) -> list[int]:
    """Return `tokens`, or the token that begins a text when there are none: a pass needs one to start from."""
    start = model.special.bos if model.special.bos is not None else model.special.eos
    if tokens:
        return tokens
    if start is None:
        raise UsageError("the prompt is empty, and this model has no token that begins a text", hint="add a prompt")
    return [start]


def _special(model: Model, token: int | None) -> str:
    return "" if token is None else model.piece(token, special=True).decode("utf-8", "replace")
