"""The settings of huggingface_hub, which it takes from the environment when it is imported, or fails to."""

from __future__ import annotations

from types import ModuleType

from localspec.errors import UsageError
from localspec.models.gguf.text import shown


def hub_settings() -> ModuleType:
    """Return the library's constants. Raises UsageError where a variable has a value that it cannot read."""
    try:
        from huggingface_hub import constants
    except ValueError as error:
        raise UsageError(
            f"an HF_ variable of the environment has no valid value: {shown(str(error))}",
            hint="check HF_ENDPOINT and HF_HUB_DOWNLOAD_TIMEOUT (env | grep HF_), or unset them",
        ) from error
    return constants
