"""An EAGLE-1 head drafts from the target's last hidden state (Li et al. arXiv 2401.15077)."""

from __future__ import annotations

from typing import ClassVar

from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter


class Eagle1(ModelDrafter):
    """One block that reads the state after the target's last norm, and guesses tokens of a reduced vocabulary."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="eagle1",
        summary="an EAGLE-1 head, one block that reads the target's last hidden state, drafts",
        needs="an EAGLE-1 head",
        paper="2401.15077",
        is_lossless=True,
        default_k=3,
        draft_kind="eagle1",
    )
