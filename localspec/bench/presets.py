"""Protocols with a name."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Preset:
    """What a protocol fixes; an option given by hand goes before."""

    methods: str
    temperatures: tuple[float, ...]
    prompt_tokens: int
    max_tokens: int
    draft_temperature: float
    about: str


PRESETS = {
    # DySpec, arXiv 2410.11744: prompts of 128 tokens, 128 generated, draft at 0.6, trees of 64.
    "paper": Preset(
        methods="plain,draft-model:k=4,static:4,2,2,1,1,sequoia:64,dyspec:64",
        temperatures=(0.0, 0.6),
        prompt_tokens=128,
        max_tokens=128,
        draft_temperature=0.6,
        about="128 prompt tokens, 128 generated, draft at 0.6, target at 0 and 0.6, trees of 64",
    ),
}


def preset(name: str) -> Preset:
    """Return a preset by its name."""
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}", hint=f"--preset {next(iter(PRESETS))}")
    return PRESETS[name]
