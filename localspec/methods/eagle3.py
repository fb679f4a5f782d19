"""An EAGLE-3 head drafts from the target's hidden states (Li et al. arXiv 2503.01840)."""

from __future__ import annotations

from typing import ClassVar

from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter


class Eagle3(ModelDrafter):
    """One block that reads the inputs of three layers of the target."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="eagle3",
        summary="an EAGLE-3 head, one block that reads three layers of the target, drafts",
        needs="an EAGLE-3 head",
        paper="2503.01840",
        is_lossless=True,
        default_k=4,
        draft_kind="eagle3",
    )
