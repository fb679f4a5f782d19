"""What may be asked of a model's vocabulary and template beside an answer, as it travels to the worker."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.settings.request import Request


@dataclass(frozen=True, slots=True)
class TextQuestion:
    """The `tokens` of `text`, the `text` of `tokens`, or the `prompt` that `request` gives: `wants` says which."""

    request: Request
    wants: str
    text: str = ""
    tokens: tuple[int, ...] = ()
    adds_special: bool = False  # BOS in front, where the vocabulary wants one
    parses_special: bool = True  # the text of a control token is that token
