"""Answers what is asked of a model's vocabulary and template: nothing is evaluated, and no cache changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localspec.backends.model import Model
from localspec.errors import UsageError
from localspec.prompt.prompt import Tokenised
from localspec.settings.jobs import TextQuestion
from localspec.settings.request import Request


def answer(question: TextQuestion, model: Model, prompt_of: Callable[[Request], Tokenised]) -> dict[str, Any]:
    """Return the answer as a JSON object; raises UsageError for tokens that the model does not have."""
    if question.wants == "tokens":
        tokens = model.tokenize(question.text, question.parses_special, question.adds_special)
        return {"tokens": tokens, "pieces": [list(model.piece(token, special=True)) for token in tokens]}
    tokens = list(question.tokens)
    if question.wants == "prompt":
        tokens = prompt_of(question.request).tokens
    unknown = next((token for token in tokens if not 0 <= token < model.n_vocab), None)
    if unknown is not None:
        raise UsageError(f"this model has no token {unknown}", hint=f"tokens from 0 to {model.n_vocab - 1}")
    text = b"".join(model.piece(token, special=True) for token in tokens).decode("utf-8", "replace")
    return {"text": text, "n": len(tokens)}
