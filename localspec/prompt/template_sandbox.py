"""Renders chat templates in a process of its own: a template is a program from a stranger.

`python -m localspec.prompt.template_sandbox` answers JSON lines on its standard output, one for each on its input.
jinja2's sandbox keeps a template from Python's internals, but not from the processor and the memory: a single call of a
filter can run for minutes. So the system bounds both. A timer of processor time ends the process, whatever it is doing,
and on Linux the address space is capped. `renderer.py` holds the other end and starts a new process after that.
"""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_MEMORY = 256 * 1024 * 1024


class _Refusal(Exception):
    """The template itself called raise_exception."""


def main() -> None:
    """Answer until the end of the input. Each question may use its `seconds` of processor time."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the timer's signal; it ends the process
    for line in sys.stdin.buffer:
        question = json.loads(line)
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, question["seconds"])
        answer = _answer(question)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer["seconds"] = time.process_time() - started
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    now = datetime.fromisoformat(question["now"])
    try:
        with _memory_bound():
            program = _compiled(question["template"])
            pieces = program.generate(strftime_now=now.strftime, **question["variables"])
            return {"text": _joined(pieces, question["room"])}
    except _Refusal as refusal:
        return {"refused": _one_line(str(refusal)), "by_itself": True}
    except MemoryError:
        reason = "it takes too much memory"
    except RecursionError:
        reason = "it is nested too deeply"
    except TemplateError as error:
        reason = _one_line(error.message or type(error).__name__)
    except Exception as error:  # whatever a template may provoke in Python
        reason = _one_line(f"{type(error).__name__}: {error}")
    return {"refused": reason, "by_itself": False}


@lru_cache(maxsize=4)  # a long template takes a quarter of a second, and a chat needs it for every answer
def _compiled(source: str) -> Template:
    # Not optimized: what is kept holds no constants that were computed while compiling, which can be large.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    del environment.filters["random"], environment.globals["lipsum"]  # a prompt must be the same each time
    return environment.from_string(source)


def _joined(pieces: Iterable[str], room: int) -> str:
    parts: list[str] = []
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise TemplateError("it writes too much")
        parts.append(piece)
    return "".join(parts)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200].rstrip(".")


@contextlib.contextmanager
def _memory_bound() -> Iterator[None]:
    """Let the address space grow by MAX_MEMORY at most, on Linux; elsewhere no system keeps such a limit."""
    if sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + MAX_MEMORY
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class _Generation(Extension):
    """`{% generation %}` marks what an assistant said, for training; here it is just its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> None:
    raise _Refusal(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Like transformers: without jinja2's escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


if __name__ == "__main__":
    main()
