"""A block that predicts further tokens drafts from the target's last hidden state (DeepSeek-V3, arXiv 2412.19437)."""

from __future__ import annotations

from typing import ClassVar

from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter


class Mtp(ModelDrafter):
    """One block that reads the state after the target's last norm."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="mtp",
        summary="an MTP head, one block that reads the target's last hidden state, drafts",
        needs="an MTP head",
        paper="2412.19437",
        is_lossless=True,
        default_k=2,
        draft_kind="mtp",
    )
