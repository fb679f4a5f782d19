"""The error tree: everything a person can get wrong, with what to do next.

Each error carries one sentence saying what is wrong and why, a *hint* that names the next command or option to
type, and the exit code of its kind. The command line prints `message` and `hint` as one line and exits with
`exit_code`; nothing below it prints or exits. `to_wire` and `from_wire` carry an error across the worker's pipe.
"""

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar, Self

# Exit codes of ends that are no error.
DIFFERS = 10
UNFINISHED = 12
TIMED_OUT = 124
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143
ENDS = {  # with the kind that --json has for it
    0: ("", "All went well."),
    DIFFERS: ("", "`verify` found that the output changes."),
    UNFINISHED: ("", "The answer was cut before it had the form that was asked for."),
    TIMED_OUT: ("timeout", "`--timeout` was over. What there was of the answer is written."),
    129: ("terminated", "The terminal went away (SIGHUP)."),
    INTERRUPTED: ("interrupted", "Ctrl-C. What there was of the answer is written."),
    BROKEN_PIPE: ("", "The program that read standard output has gone."),
}

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


def near_name(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the one of the `known` names that `word` probably stands for, "" where none is near: difflib's ratio."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), "")


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
    def is_sentence(self) -> bool:
        """Whether the hint is a sentence, and nothing to type."""
        return self.hint[:1].isupper() and self.hint.endswith((".", "?"))

    @property
    def advice(self) -> str:
        """The hint as it follows the message: a sentence of its own, or a command or option to type."""
        return f". {self.hint}" if self.is_sentence else f" — try: {self.hint}" if self.hint else ""

    def hinted(self, hint: str) -> Self:
        """Return the error with another hint."""
        self.hint = hint
        return self

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
    """A bug in localspec, or a return code that llama.cpp does not document."""


class BadLogitsError(InternalError):
    """A model's logits are not numbers: its file is damaged, or a kernel is wrong."""


class UsageError(LocalspecError):
    """An option, an argument, a setting or the content of a text file is wrong, or two of them exclude each other."""

    exit_code = 2
    kind = "usage"


class NotFoundError(LocalspecError):
    """A file, model, conversation or preset does not exist, or a file cannot be read."""

    exit_code = 3
    kind = "not_found"


class NetworkError(LocalspecError):
    """Another machine cannot be reached, or refuses: the hub, a server, a verifier.

    A missing or wrong key is that too.
    """

    exit_code = 4
    kind = "network"


class IntegrityError(LocalspecError):
    """A model's file is damaged: not GGUF, truncated, malformed."""

    exit_code = 5
    kind = "integrity"


class IncompatibleError(LocalspecError):
    """A sound file cannot be used here: another vocabulary, an unknown architecture, a part that this build lacks."""

    exit_code = 6
    kind = "incompatible"


class ResourceError(LocalspecError):
    """Memory or disk does not suffice, a file cannot be written, or a port is taken."""

    exit_code = 7
    kind = "resources"


class PromptTooLongError(LocalspecError):
    """The prompt is too long: it leaves no room in the context."""

    exit_code = 8
    kind = "prompt_too_long"


class WorkerDiedError(LocalspecError):
    """The process that runs llama.cpp ended without a word: a native abort, a signal, the OOM killer."""

    exit_code = 9
    kind = "worker_died"


class EngineStoppedError(WorkerDiedError):
    """The program, or the engine that it used, was told to end: SIGTERM, `localspec stop`."""

    exit_code = TERMINATED
    kind = "terminated"


class DeclinedError(LocalspecError):
    """Not without asking: the answer was no, nobody can be asked, or the thing belongs to another program."""

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
        EngineStoppedError,
        DeclinedError,
    )
}


# What a server refuses with a status is the same error as here: docs/server.md has the table.
_REFUSED: dict[int, type[LocalspecError]] = {404: NotFoundError, 429: ResourceError} | dict.fromkeys(
    (400, 413, 422), UsageError
)


def refused_with(status: int) -> type[LocalspecError]:
    """Return the error that a server's refusal with an HTTP status is to its client; of any other it just refuses."""
    return _REFUSED.get(status, NetworkError)


def exit_codes() -> dict[int, tuple[str, str]]:
    """Return the kind and the meaning of each exit code, in order of the codes; some have no kind."""
    errors = {cls.exit_code: (kind, " ".join((cls.__doc__ or "").split())) for kind, cls in KINDS.items()}
    return dict(sorted((ENDS | errors).items()))


def from_wire(wire: dict[str, Any]) -> LocalspecError:
    """Rebuild the error that `to_wire` described; an unknown kind becomes an InternalError."""
    cls = KINDS.get(str(wire.get("kind")), InternalError)
    return cls(str(wire.get("message", "unknown error")), hint=str(wire.get("hint", "")), detail=wire.get("detail"))


def tells_out_of_memory(log: str) -> bool:
    """Whether these lines of llama.cpp's log say that memory was missing."""
    said = log.lower()
    return any(sign in said for sign in _OUT_OF_MEMORY)
