"""The model drafts for itself with a part of its own layers.

LayerSkip (arXiv 2404.16710) leaves after the first E layers, Draft & Verify (arXiv 2309.08168) skips any of them; both
apply the model's own final norm and head. The draft is a file of its own with these layers, which llama.cpp runs like
any other draft model, with a small cache of its own: exactness is that of every draft model.

The other form, a second context on the loaded model whose pass a callback stops after layer E, was measured and is
slower. On a model of 1B shape (Q4_0, 16 layers, one core) the stop itself costs nothing that can be measured (a call
into Python for each of 294 to 582 graph nodes, 0.1 us each), but llama.cpp offers no head alone: in numpy, with a copy
of its matrix in F32 (262 MB, more than the 211 MB of a file with four layers), it takes 8.1 ms where a draft token
takes 7.8 ms in all from the file, 14.5 ms against 7.8. On storyteller it is 0.15 ms against 0.09.
"""

from collections.abc import Mapping
from typing import ClassVar

from localspec.errors import UsageError
from localspec.methods import MethodInfo
from localspec.methods._model import ModelDrafter
from localspec.settings.declaration import Option, Value
from localspec.settings.sizes import counted, whole

LAYERS_PER_EXIT_LAYER = 4  # by default the draft has one of this many layers


def exit_layer(text: str) -> str:
    """Return a layer to leave after, or auto; raises ValueError."""
    if text != "auto" and not 1 <= (whole(text) or 0) < 10**6:
        raise ValueError(text)
    return text


def skipped_layers(text: str) -> str:
    """Return a set of layers, or none; raises ValueError."""
    if text != "none" and any(whole(part) is None for part in text.split(",")):
        raise ValueError(text)
    return text


class EarlyExit(ModelDrafter):
    """A draft model made of the target's own layers."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="early-exit",
        summary="some of the model's own layers draft",
        needs="nothing",
        paper="2404.16710",
        is_lossless=True,
        default_k=4,
        options=(
            Option(
                "exit",
                "auto",
                "Layers after which the draft leaves; auto: as tuned, else a quarter.",
                parse=exit_layer,
                metavar="auto, or a number from 1 to the model's layers less one",
            ),
            Option(
                "skip",
                "none",
                "Layers that the draft leaves out.",
                parse=skipped_layers,
                metavar="none, or layers counted from 0 with commas between",
            ),
        ),
        has_derived_draft=True,
    )

    @staticmethod
    def layers(options: Mapping[str, Value], n_layers: int, tuned: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the layers of the draft, ascending; `tuned` are those found best, used unless options say more.

        Raises UsageError for layers that the model does not have, or a choice that leaves all or none.
        """
        leave, skip = str(options["exit"]), str(options["skip"])
        if (leave, skip) == ("auto", "none"):
            return tuned or tuple(range(max(1, round(n_layers / LAYERS_PER_EXIT_LAYER))))
        end = n_layers if leave == "auto" else int(leave)
        skipped = set() if skip == "none" else {whole(part) or 0 for part in skip.split(",")}
        if end >= n_layers and leave != "auto":
            raise UsageError(
                f"-o exit={leave} is not an early exit: the model has {counted(n_layers, 'layer')}",
                hint=f"-o exit={max(1, round(n_layers / LAYERS_PER_EXIT_LAYER))}",
            )
        if skipped and max(skipped) >= n_layers:
            raise UsageError(
                f"-o skip={skip}: the model's layers are 0 to {n_layers - 1}", hint=f"-o skip={n_layers // 2}"
            )
        remaining = tuple(layer for layer in range(end) if layer not in skipped)
        if not remaining:
            raise UsageError(f"-o skip={skip} leaves no layer to draft with", hint="-o exit=1")
        return remaining
