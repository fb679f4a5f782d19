"""Learned heads draft from the target's hidden states.

A head's context is a `Backend` (`localspec/backends/head.py`, `marginals.py`), so each kind drafts as a draft model
does. The classes say what a kind needs, and the paper.
"""

from __future__ import annotations

from typing import ClassVar

from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter


class Eagle3(ModelDrafter):
    """EAGLE-3 (Li et al. arXiv 2503.01840): one block that reads the inputs of three layers of the target."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="eagle3",
        summary="an EAGLE-3 head, one block that reads three layers of the target, drafts",
        needs="an EAGLE-3 head",
        paper="2503.01840",
        is_lossless=True,
        default_k=4,
        draft_kind="eagle3",
    )


class Eagle1(ModelDrafter):
    """EAGLE-1 (Li et al. arXiv 2401.15077): one block that reads the state after the target's last norm."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="eagle1",
        summary="an EAGLE-1 head, one block that reads the target's last hidden state, drafts",
        needs="an EAGLE-1 head",
        paper="2401.15077",
        is_lossless=True,
        default_k=3,
        draft_kind="eagle1",
    )


class Mtp(ModelDrafter):
    """Multi-token prediction (DeepSeek-V3, arXiv 2412.19437): one block that was trained together with the target."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="mtp",
        summary="an MTP head, one block that reads the target's last hidden state, drafts",
        needs="an MTP head",
        paper="2412.19437",
        is_lossless=True,
        default_k=2,
        draft_kind="mtp",
    )


class Medusa(ModelDrafter):
    """Medusa (Cai et al. arXiv 2401.10774): a matrix for each token ahead, and one output matrix for all."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="medusa",
        summary="Medusa heads, each of which guesses one of the next tokens from the target's last hidden state, draft",
        needs="a Medusa head",
        paper="2401.10774",
        is_lossless=True,
        default_k=3,
        draft_kind="medusa",
    )


class DFlash(ModelDrafter):
    """DFlash (arXiv 2602.06036, block diffusion): a few blocks that guess all tokens of a draft at once."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="dflash",
        summary="a DFlash head, which guesses a block of tokens in one pass, drafts",
        needs="a DFlash head",
        paper="2602.06036",
        is_lossless=True,
        default_k=8,
        draft_kind="dflash",
    )
