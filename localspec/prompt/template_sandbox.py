"""Runs a chat template, which is a program from a stranger, within bounds of time, memory and output.

jinja2's sandbox keeps a template from Python's internals but not from the processor: nested loops and huge strings
are its own (measured: three million iterations took 27 s). Time is watched by a trace function, which works in every
thread and on every system, where an alarm signal does not; sizes are refused where they are asked for, and where the
system can, the address space is capped meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache, wraps
from types import FrameType
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_TEMPLATE = 128 * 1024  # characters; the longest in use have about 30 000
MAX_SECONDS = 2.0
MAX_OUTPUT = 8 * 1024 * 1024  # characters, besides what the messages themselves need
MAX_MEMORY = 256 * 1024 * 1024
MAX_FILL = 10_000  # characters or items that one operation may make out of nothing
# In a format: a width or precision that comes as an argument, or one of five digits.
_WIDE = re.compile(r"%(\([^)]{0,80}\))?[-_^#0 +.\d]{0,80}(\*|\d{5})|:[^{}]{0,9}\d{5}")
_PADDING = ("center", "expandtabs", "ljust", "rjust", "zfill")
_FILLERS = ("batch", "center", "indent", "round", "slice")
# No chat template needs these: slow on long texts (time is not watched inside C code), or different each time.
_REMOVED = ("pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr")


class Refused(Exception):
    """The template cannot be used; the text says why, to follow a colon."""


class RefusedByTemplate(Refused):
    """The template itself called raise_exception, as many do for a system message."""


class _TooMuch(BaseException):
    """A bound was met. Not an Exception: filters that catch those must not go on."""


class Program:
    """A compiled template. Compiling may take MAX_SECONDS, rendering until a deadline.

    Raises Refused when the template is broken, forbidden or beyond a bound. `now` is for templates that state the date.
    """

    def __init__(self, source: str, now: Callable[[], datetime]) -> None:
        if len(source) > MAX_TEMPLATE:
            raise Refused(f"it is longer than {MAX_TEMPLATE} characters")
        with _bounds(time.monotonic() + MAX_SECONDS):
            self._template = _environment(now).from_string(source)

    def render(self, variables: dict[str, Any], n_content: int, deadline: float) -> str:
        """Return the output for `variables`, whose messages have `n_content` characters; `deadline` is monotonic."""
        with _bounds(deadline):
            return _collect(self._template.generate(**variables), n_content)


@lru_cache(maxsize=4)  # a long template takes a quarter of a second, and a chat needs it for every answer
def compiled(source: str, now: Callable[[], datetime]) -> Program:
    """Return the program of a template."""
    return Program(source, now)


@contextlib.contextmanager
def _bounds(deadline: float) -> Iterator[None]:
    """Run within the bounds of time and memory; whatever goes wrong becomes Refused."""
    try:
        with _memory_bound(), _time_bound(deadline):
            yield
    except _TooMuch as reason:
        raise Refused(str(reason)) from None
    except Refused:
        raise
    except MemoryError:
        raise Refused("it takes too much memory") from None
    except RecursionError:
        raise Refused("it is nested too deeply") from None
    except TemplateError as error:
        raise Refused(_one_line(error.message or type(error).__name__)) from None
    except Exception as error:  # whatever a template may provoke in Python
        raise Refused(_one_line(f"{type(error).__name__}: {error}")) from None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200].rstrip(".")


def _collect(pieces: Iterator[str], n_content: int) -> str:
    """Join the output, unless it becomes too long."""
    room = MAX_OUTPUT + 2 * n_content
    parts: list[str] = []
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise _TooMuch("it writes too much")
        parts.append(piece)
    return "".join(parts)


@contextlib.contextmanager
def _time_bound(deadline: float) -> Iterator[None]:
    """Raise _TooMuch in Python code that is still running at `deadline`."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if time.monotonic() > deadline:
            raise _TooMuch(f"it takes longer than {MAX_SECONDS:g} s")
        # Line by line in the template, whose loops may call nothing; elsewhere looking at the calls is enough.
        return trace if frame.f_code.co_filename == "<template>" else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def _memory_bound() -> Iterator[None]:
    """Let the address space grow by MAX_MEMORY at most, on Linux; elsewhere no system keeps such a limit."""
    if sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limit = used + MAX_MEMORY
    is_lower = soft == resource.RLIM_INFINITY or limit < soft
    if is_lower:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        if is_lower:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class _Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's sandbox with bounds on what one operation may make."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (abs(left) <= MAX_FILL and abs(right) <= 64):
            raise _TooMuch("it computes too large a power")
        if operator == "*":
            _check_product(left, right)
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(getattr(obj, "__self__", None), str) and obj.__name__ in _PADDING:
            _check_numbers(args, kwargs)
        return super().call(context, obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Any:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _check_format(value.__self__)
        return wrapped


class _Generation(Extension):
    """`{% generation %}` marks what an assistant said, for training; here it is just its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment(now: Callable[[], datetime]) -> _Sandbox:
    """Return the environment transformers renders chat templates in, less what no chat template needs."""
    # Not optimized: folding constants would compute things while compiling, past the interception.
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    for name in _REMOVED:
        del environment.filters[name]
    for name in _FILLERS:
        environment.filters[name] = _bounded(environment.filters[name])
    environment.filters["format"] = _format
    environment.filters["tojson"] = _to_json
    del environment.globals["lipsum"]
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: now().strftime(_check_format(form))
    return environment


def _raise_exception(message: object) -> None:
    raise RefusedByTemplate(_one_line(str(message)))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Like transformers: without jinja2's escapes for HTML."""
    _check_numbers((indent,), {})
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _format(form: Any, *args: Any, **kwargs: Any) -> str:
    return str(_check_format(str(form)) % (kwargs or args))


def _check_format(form: str) -> str:
    """Return `form` unless it asks for a wide field."""
    if _WIDE.search(form):
        raise _TooMuch("it pads by too much")
    return form


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter `function` refusing large numbers."""

    @wraps(function)  # keeps jinja2's marks that it wants the environment
    def checked(*args: Any, **kwargs: Any) -> Any:
        _check_numbers(args, kwargs)
        return function(*args, **kwargs)

    return checked


def _check_numbers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if any(isinstance(value, int) and value > MAX_FILL for value in (*args, *kwargs.values())):
        raise _TooMuch("it pads by too much")


def _check_product(left: Any, right: Any) -> None:
    for many, times in ((left, right), (right, left)):
        if isinstance(many, str | bytes | list | tuple) and isinstance(times, int) and len(many) * times > MAX_FILL:
            raise _TooMuch("it repeats a text too often")
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_FILL:
        raise _TooMuch("it computes too large a number")
