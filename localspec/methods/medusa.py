"""Medusa heads guess the next tokens at once, from the target's last hidden state (Cai et al. arXiv 2401.10774)."""

from __future__ import annotations

from typing import ClassVar

from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter


class Medusa(ModelDrafter):
    """A matrix for each token ahead, and one output matrix for all, of a reduced vocabulary."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="medusa",
        summary="Medusa heads, each of which guesses one of the next tokens from the target's last hidden state, draft",
        needs="a Medusa head",
        paper="2401.10774",
        is_lossless=True,
        default_k=3,
        draft_kind="medusa",
    )
