"""A second model drafts, or a head that reads the target's hidden states. One drafter serves all (`_model`)."""

from typing import ClassVar

from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter


def _info(kind: str, summary: str, *, needs: str, paper: str, k: int, name: str = "") -> MethodInfo:
    """Return what a file of this `kind` is as a method; `k` tokens are drafted unless -k says otherwise."""
    return MethodInfo(name or kind, summary, needs, paper, is_lossless=True, default_k=k, draft_kind=kind)


class DraftModel(ModelDrafter):
    """The classic pair (Leviathan et al. arXiv 2211.17192, Chen et al. arXiv 2302.01318)."""

    info: ClassVar[MethodInfo] = _info(
        "model", "a second, smaller model drafts", needs="a draft model", paper="2211.17192", k=4, name="draft-model"
    )


class Eagle3(ModelDrafter):
    """Li et al. arXiv 2503.01840."""

    info: ClassVar[MethodInfo] = _info(
        "eagle3",
        "an EAGLE-3 head, one block that reads three layers of the target, drafts",
        needs="an EAGLE-3 head",
        paper="2503.01840",
        k=4,
    )


class Eagle1(ModelDrafter):
    """Li et al. arXiv 2401.15077. It guesses tokens of a reduced vocabulary."""

    info: ClassVar[MethodInfo] = _info(
        "eagle1",
        "an EAGLE-1 head, one block that reads the target's last hidden state, drafts",
        needs="an EAGLE-1 head",
        paper="2401.15077",
        k=3,
    )


class Mtp(ModelDrafter):
    """The block that predicts further tokens (DeepSeek-V3, arXiv 2412.19437)."""

    info: ClassVar[MethodInfo] = _info(
        "mtp",
        "an MTP head, one block that reads the target's last hidden state, drafts",
        needs="an MTP head",
        paper="2412.19437",
        k=2,
    )


class Medusa(ModelDrafter):
    """A matrix for each token ahead, one output matrix for all (Cai et al. arXiv 2401.10774)."""

    info: ClassVar[MethodInfo] = _info(
        "medusa",
        "Medusa heads, each of which guesses one of the next tokens from the target's last hidden state, draft",
        needs="a Medusa head",
        paper="2401.10774",
        k=3,
    )


class DFlash(ModelDrafter):
    """Block diffusion (arXiv 2602.06036): it reads layers of the target and guesses all tokens at once."""

    info: ClassVar[MethodInfo] = _info(
        "dflash",
        "a DFlash head, which guesses a block of tokens in one pass, drafts",
        needs="a DFlash head",
        paper="2602.06036",
        k=8,
    )
