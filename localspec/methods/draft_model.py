"""A second model drafts, or a head that reads the target's hidden states. One drafter serves all (`_model`)."""

from typing import ClassVar

from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter


def _info(kind: str, needs: str, summary: str, paper: str, k: int, name: str = "") -> MethodInfo:
    """Return what a file of this `kind` is as a method; `k` tokens are drafted unless -k says otherwise."""
    return MethodInfo(name or kind, summary, needs, paper, is_lossless=True, default_k=k, draft_kind=kind)


class DraftModel(ModelDrafter):
    """The classic pair (Leviathan et al. arXiv 2211.17192, Chen et al. arXiv 2302.01318)."""

    info: ClassVar = _info("model", "a draft model", "a second, smaller model drafts", "2211.17192", 4, "draft-model")


def _head(kind: str, needs: str, summary: str, paper: str, k: int) -> type[ModelDrafter]:
    info = _info(kind, needs, summary, paper, k)
    return type(kind, (ModelDrafter,), {"__doc__": f"{summary} (arXiv {paper}).", "__module__": __name__, "info": info})


_LAST = "one block that reads the target's last hidden state, drafts"
_MEDUSA = "Medusa heads, each of which guesses one of the next tokens from the target's last hidden state, draft"

Eagle3 = _head(
    "eagle3",
    "an EAGLE-3 head",
    "an EAGLE-3 head, one block that reads three layers of the target, drafts",
    "2503.01840",
    4,
)
Eagle1 = _head("eagle1", "an EAGLE-1 head", f"an EAGLE-1 head, {_LAST}", "2401.15077", 3)
Mtp = _head("mtp", "an MTP head", f"an MTP head, {_LAST}", "2412.19437", 2)
Medusa = _head("medusa", "a Medusa head", _MEDUSA, "2401.10774", 3)
DFlash = _head(
    "dflash", "a DFlash head", "a DFlash head, which guesses a block of tokens in one pass, drafts", "2602.06036", 8
)
