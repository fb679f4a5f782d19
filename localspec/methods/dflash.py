"""A DFlash head guesses a block of tokens in one pass (block diffusion, arXiv 2602.06036)."""

from __future__ import annotations

from typing import ClassVar

from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter


class DFlash(ModelDrafter):
    """A few blocks that read layers of the target, and guess all tokens of a draft at once."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="dflash",
        summary="a DFlash head, which guesses a block of tokens in one pass, drafts",
        needs="a DFlash head",
        paper="2602.06036",
        is_lossless=True,
        default_k=8,
        draft_kind="dflash",
    )
