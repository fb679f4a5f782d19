"""What a client is told when it gets no answer: a status, a sentence, and the field that is wrong."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError
from localspec.sanitize import shown
from localspec.settings.request import LoadSettings

Wire = dict[str, Any]
# Of the engine's errors those that are the request's fault; the rest are the server's.
_ASKED = {"usage": 400, "prompt_too_long": 400, "not_found": 400, "incompatible": 400, "internal": 500}
_CODES = {"prompt_too_long": "context_length_exceeded", "worker_died": "engine_died", "terminated": "engine_died"}
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
AGAIN = 1  # seconds after which a client may ask again where the engine has to be loaded anew


# The folders of an absolute path, of one in a home, or of one that was cut to be shown.
_FOLDERS = re.compile(r"""(?:(?<![\w:/.~-])~?|…[^/\s'"]*)/(?:[^/\s'"]+/)+(?=[^/\s'"])""")


@dataclass(eq=False)
class Refusal(Exception):
    """`param` is the name of the field at fault, `code` a word for programs, and `headers` go into the response."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_openai(self) -> Wire:
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def to_anthropic(self) -> Wire:
        kind = "api_error" if self.status >= 500 else _TYPES.get(self.status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": self.message}}

    def to_ollama(self) -> Wire:
        return {"error": self.message}


def refused(error: LocalspecError, settings: LoadSettings | None = None, *, is_ours: bool = False) -> Refusal:
    """Return what an error of the engine with the pair of `settings` means to a client.

    `is_ours`: whatever it is, the request is not at fault. Where a file is, and what to look at there, is not told.
    """
    status = 503 if is_ours else _ASKED.get(error.kind, 503)
    again = {"Retry-After": str(AGAIN)} if status == 503 else {}
    message = error.message if is_ours and error.kind == "not_found" else f"{error.message}{error.advice}"
    return Refusal(status, without_folders(message, settings), code=_CODES.get(error.kind), headers=again)


def without_folders(text: str, settings: LoadSettings | None = None) -> str:
    """Return a text for clients: files of this machine without their folders, and a pair's target by its name."""
    if settings is not None and settings.target:
        target = Path(settings.target)
        text = text.replace(shown(target), called(settings)).replace(str(target), called(settings))
    return _FOLDERS.sub("", text)


def called(settings: LoadSettings) -> str:
    """Return how a pair is called: as its model where it has no draft, and as its file where it has no name."""
    return settings.name.removesuffix("+none") or Path(settings.target).stem
