"""The settings of huggingface_hub, which it takes from the environment when it is imported, or fails to."""

from __future__ import annotations

import os
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


def offline_variables() -> str:
    """Return the variables that forbid the network, with blanks between; the library takes either of two."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    is_true = hub_settings().ENV_VARS_TRUE_VALUES
    return " ".join(name for name in names if os.environ.get(name, "").upper() in is_true) or names[0]
