"""From a request to prompt tokens: the model's chat template for messages, the text as it is for raw prompts.

What a person typed is text: it never becomes a control token, whatever it spells.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec import chat_template
from localspec.backends.llama_cpp import Model
from localspec.config import Request


@dataclass(frozen=True, slots=True)
class Tokenised:
    """The prompt's tokens, and what a person should know about how they came to be."""

    tokens: list[int]
    warnings: tuple[str, ...] = ()


def tokenise(request: Request, model: Model) -> Tokenised:
    """Return the prompt of `request` for `model`; never empty, since the beginning-of-text token starts an empty one."""
    if request.prompt is not None:
        tokens = model.tokenize(request.prompt, parse_special=False, add_bos=model.add_bos)
        return Tokenised(tokens or [model.start_token])
    rendered = chat_template.render(
        request.messages,
        request.template or model.chat_template,
        bos=model.special_text(model.bos),
        eos=model.special_text(model.eos),
        specials=model.special_texts,
    )
    tokens = [
        token
        for segment in rendered.segments
        for token in model.tokenize(segment.text, parse_special=segment.is_trusted, add_bos=False)
    ]
    if model.add_bos and tokens[:1] != [model.bos]:
        tokens.insert(0, model.bos)
    return Tokenised(tokens or [model.start_token], rendered.warnings)
