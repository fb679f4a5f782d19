"""The one untyped surface: llama.cpp's C functions as ctypes declares them.

Only the low-level API is used: the high-level `Llama` copies logits and keeps buffers that a draft would corrupt.
llama.cpp's log is here too, kept off the terminal: its last lines are held for error messages. It is one per process,
so the ring is a module object.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from localspec.backends.structures import misfit
from localspec.errors import (
    IncompatibleError,
    InternalError,
    LocalspecError,
    PromptTooLongError,
    ResourceError,
    tells_out_of_memory,
)

FOREIGN = "unset LLAMA_CPP_LIB_PATH, or name a build of the llama.cpp that llama-cpp-python was made for"
try:
    import llama_cpp
    from llama_cpp import _ggml
    from llama_cpp import llama_cpp as _api
except AttributeError as error:  # a function that the binding declares
    raise IncompatibleError(f"llama.cpp is of another version than llama-cpp-python: {error}", hint=FOREIGN) from error

api: Any = _api
if other := misfit(api):
    raise IncompatibleError(
        f"llama.cpp is of another version than llama-cpp-python: it lays {other} out otherwise", hint=FOREIGN
    )
# libllama's own ggml, with ggml-base: a wheel holds libggml twice (.so, .so.0), the binding opens the one that libllama
# is not linked to, and that one has a list of devices of its own. Windows looks symbols up in one library only.
ggml: Any = api._lib if hasattr(api._lib, "ggml_backend_dev_count") else _ggml.libggml
BINDING_VERSION: str = llama_cpp.__version__

api.llama_backend_init()  # once per process, before anything else is called


def function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Return a C function with a prototype of our own, leaving the one that llama-cpp-python declared alone."""
    foreign = library[name]  # indexing makes a new function object, attribute access shares one
    foreign.restype, foreign.argtypes = result, arguments
    return foreign


# As an address, which numpy turns into a view faster than a ctypes pointer object.
logits_address = function(api._lib, "llama_get_logits_ith", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)

BF16 = 30  # GGML_TYPE_BF16, which llama-cpp-python does not name
KV_TYPES: dict[str, int] = {name: getattr(api, f"GGML_TYPE_{name.upper()}") for name in ("f32", "f16", "q8_0", "q4_0")}

N_LINES = 400  # a failed load says what went wrong in its last dozen lines
DEBUG, CONTINUED = 1, 5  # ggml_log_level; a continued line has the level of the one before

ECHOES = ("failed to load model", "failed to initialize batch", "failed to decode")  # say that, never why
_WHERE = re.compile(r"^(?:[\w:~]+: )+(?:error loading model: )?(?:[\w:~]+: )*")  # the functions that passed it on


class LogRing:
    """The last lines llama.cpp logged; `is_echoing` also writes them to this process's stderr."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=N_LINES)
        self.is_echoing = False
        self.is_deaf = False  # a person has stopped the pass under way
        self._partial = ""
        self._level = 0
        self._listener: Callable[[str], None] | None = None
        # ctypes frees a callback with its Python object, and llama.cpp calls this one until the process ends.
        self._callback: Any = api.llama_log_callback(self._receive)

    def install(self) -> None:
        """Take over llama.cpp's log; llama_cpp's own handler prints to the terminal."""
        api.llama_log_set(self._callback, None)

    def echo(self) -> None:
        self.is_echoing = True

    def tail(self, n: int = 12) -> str:
        """Return the last `n` lines that say something."""
        said = [line for line in self.lines if line.strip(" .")]
        return "\n".join(said[-n:])

    def reason(self) -> str:
        """Return the last line that names a cause, without the C++ functions it went through."""
        for line in reversed(self.tail().splitlines()):
            if not any(echo in line for echo in ECHOES):
                return _WHERE.sub("", line).strip() or line.strip()
        return "it gave no reason"

    def clear(self) -> None:
        self.lines.clear()

    @contextlib.contextmanager
    def forwarding(self, listener: Callable[[str], None]) -> Iterator[None]:
        """Tell the `listener` each line that is logged within this. It is called from C, so it must not raise."""
        self._listener = listener
        try:
            yield
        finally:
            self._listener = None

    def _receive(self, level: int, text: bytes, _data: object) -> None:
        self._level = self._level if level == CONTINUED else level
        if self._level == DEBUG or self.is_deaf:  # DEBUG: hundreds of lines for every context
            return
        self._partial += text.decode("utf-8", "replace")
        *whole, self._partial = self._partial.split("\n")
        self._partial = self._partial[-4096:]  # progress dots never end their line
        self.lines.extend(whole)
        if self._listener is not None:
            for line in whole:
                self._listener(line)
        if self.is_echoing:
            sys.stderr.write("".join(f"{line}\n" for line in whole))


LOG = LogRing()
LOG.install()
_NO_CALLBACK = api.ggml_abort_callback()


@contextlib.contextmanager
def stoppable(context: Any, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Let passes of a llama.cpp context end once `is_stopped`; what llama.cpp then says of a failure is no news."""

    def ask(_data: object) -> bool:
        if is_stopped():
            LOG.is_deaf = True
        return LOG.is_deaf

    callback = api.ggml_abort_callback(ask)
    api.llama_set_abort_callback(context, callback, None)
    try:
        yield
    finally:  # the callback does not outlive the passes
        api.llama_set_abort_callback(context, _NO_CALLBACK, None)
        LOG.is_deaf = False


def context_full(length: int, n_ctx: int, needed: int) -> ResourceError:
    """Return the error of a context in which `length` of `n_ctx` positions are taken and `needed` more are wanted."""
    return ResourceError(
        f"the context is full: {length} of {n_ctx} positions are taken and {needed} more are needed",
        hint="raise --ctx, or generate less",
        detail={"length": length, "n_ctx": n_ctx, "needed": needed},
    )


def decode_error(code: int, rows: int, length: int) -> LocalspecError:
    """Return the error of a decode of `rows` tokens after `length` others, to which llama.cpp gave `code`."""
    detail = {"code": code, "rows": rows, "length": length, "log": LOG.tail()}
    if tells_out_of_memory(LOG.tail()):
        return ResourceError(
            f"there is not enough memory to evaluate {rows} tokens: {LOG.reason()}",
            hint="--gpu N with fewer layers, a smaller --ctx or a smaller model",
            detail=detail,
        )
    return InternalError(f"llama.cpp failed to evaluate {rows} tokens (code {code}): {LOG.reason()}", detail=detail)


def too_long(n: int, n_ctx: int) -> PromptTooLongError:
    return PromptTooLongError(
        f"the prompt has {n} tokens and the context holds {n_ctx}",
        hint="shorten the prompt, or raise --ctx",
        detail={"n_tokens": n, "n_ctx": n_ctx},
    )
