"""A LoRA adapter's file, checked before llama.cpp sees it: whether it is one, and of the target's architecture.

Whether its tensors fit the target's is left to llama.cpp, which refuses them with a reason.
"""

from __future__ import annotations

from pathlib import Path

from localspec.errors import IncompatibleError
from localspec.models.gguf.header import Header, read_header
from localspec.sanitize import shown

_ALPHA = "adapter.lora.alpha"
_INVOKED = "adapter.alora.invocation_tokens"


def check_adapter(path: Path, target: Header) -> None:
    """Raise IncompatibleError for a file that is no LoRA of the target's architecture, or what reading it raises."""
    header = read_header(path)
    kinds = [_text(header, key) for key in ("general.type", "adapter.type")]
    if kinds != ["adapter", "lora"] or header.types.get(_ALPHA, "f32") != "f32":
        raise IncompatibleError(
            f"{header.name} is not a LoRA adapter", hint="--lora FILE, made by llama.cpp's convert_lora_to_gguf.py"
        )
    arch, wanted = _text(header, "general.architecture"), _text(target, "general.architecture")
    if arch != wanted:
        raise IncompatibleError(
            f"the LoRA {header.name} is for {shown(arch) or 'no architecture'}, and the target is {shown(wanted)}",
            hint="--lora FILE of a LoRA that was trained on this target",
        )
    if _INVOKED in header.metadata:
        raise IncompatibleError(
            f"the LoRA {header.name} is one that acts from certain tokens on, which is not supported",
            hint="--lora FILE of a LoRA that always acts",
        )


def _text(header: Header, key: str) -> str:
    value = header.metadata.get(key)
    return value if isinstance(value, str) else ""
