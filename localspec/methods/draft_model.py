"""A small model drafts for a large one (Leviathan et al. arXiv 2211.17192, Chen et al. arXiv 2302.01318)."""

from __future__ import annotations

from typing import ClassVar

from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter


class DraftModel(ModelDrafter):
    """The classic pair."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="draft-model",
        summary="a second, smaller model drafts",
        needs="a draft model",
        paper="2211.17192",
        is_lossless=True,
        default_k=4,
        draft_kind="model",
    )
