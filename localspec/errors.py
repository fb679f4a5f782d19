"""The error tree: everything a person can get wrong, with what to do next.

Each error carries one sentence saying what is wrong and why, a *hint* that names the next command or option to
type, and the exit code of its kind. The command line prints `message` and `hint` as one line and exits with
`exit_code`; nothing below it prints or exits. `to_wire` and `from_wire` carry an error across the worker's pipe.
"""

from __future__ import annotations

from typing import Any, ClassVar

# What llama.cpp, ggml and the drivers of devices write where memory does not suffice, in lower case.
_OUT_OF_MEMORY = (
    "unable to allocate",
    "failed to allocate",
    "cannot allocate",
    "out of memory",
    "insufficient memory",  # Metal
    "outofdevicememory",  # Vulkan
    "bad_alloc",
)


class LocalspecError(Exception):
    """Base of every error that localspec raises on purpose.

    `message` says what and why, `hint` names the next command, `detail` holds JSON-able facts for `--json`.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "internal"

    def __init__(self, message: str, *, hint: str = "", detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail or {}

    @property
    def advice(self) -> str:
        """The hint as it follows the message: a sentence of its own, or a command or option to type."""
        is_sentence = self.hint[:1].isupper() and self.hint.endswith((".", "?"))
        return f". {self.hint}" if is_sentence else f" — try: {self.hint}" if self.hint else ""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object of `--json` failures: code, kind, message, hint, detail."""
        return {
            "code": self.exit_code,
            "kind": self.kind,
            "message": self.message,
            "hint": self.hint,
            "detail": self.detail,
        }


class InternalError(LocalspecError):
    """A state that should not exist: a bug in localspec, or a return code that llama.cpp does not document."""


class BadLogitsError(InternalError):
    """A model's logits are not numbers: its file is damaged, or a kernel is wrong."""


class UsageError(LocalspecError):
    """An option or argument is wrong, or two of them do not go together."""

    exit_code = 2
    kind = "usage"


class NotFoundError(LocalspecError):
    """A file, model or pair does not exist or cannot be read."""

    exit_code = 3
    kind = "not_found"


class NetworkError(LocalspecError):
    """Another machine cannot be reached, or does not give what was asked of it: the hub, an RPC server."""

    exit_code = 4
    kind = "network"


class IntegrityError(LocalspecError):
    """A file is not what it claims to be: not GGUF, truncated, malformed."""

    exit_code = 5
    kind = "integrity"


class IncompatibleError(LocalspecError):
    """The file is sound but cannot be used here: another tokenizer, an unsupported architecture."""

    exit_code = 6
    kind = "incompatible"


class ResourceError(LocalspecError):
    """Memory, VRAM or disk does not suffice, or an output device is full."""

    exit_code = 7
    kind = "resources"


class PromptTooLongError(LocalspecError):
    """The prompt leaves no room in the context."""

    exit_code = 8
    kind = "prompt_too_long"


class WorkerDiedError(LocalspecError):
    """The process that runs llama.cpp ended without a word: a native abort, a signal, the OOM killer."""

    exit_code = 9
    kind = "worker_died"


class DeclinedError(LocalspecError):
    """A question was answered with no, or no person can be asked."""

    exit_code = 11
    kind = "declined"


KINDS: dict[str, type[LocalspecError]] = {
    cls.kind: cls
    for cls in (
        InternalError,
        UsageError,
        NotFoundError,
        NetworkError,
        IntegrityError,
        IncompatibleError,
        ResourceError,
        PromptTooLongError,
        WorkerDiedError,
        DeclinedError,
    )
}


def from_wire(wire: dict[str, Any]) -> LocalspecError:
    """Rebuild the error that `to_wire` described; an unknown kind becomes an InternalError."""
    cls = KINDS.get(str(wire.get("kind")), InternalError)
    return cls(str(wire.get("message", "unknown error")), hint=str(wire.get("hint", "")), detail=wire.get("detail"))


def tells_out_of_memory(log: str) -> bool:
    """Whether these lines of llama.cpp's log say that memory was missing."""
    said = log.lower()
    return any(sign in said for sign in _OUT_OF_MEMORY)
