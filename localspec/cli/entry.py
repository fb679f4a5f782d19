"""From a command line to an exit code: everything that can go wrong becomes one line and a documented code.

`localspec/errors.py` has the codes.
"""

import contextlib
import errno
import os
import shlex
import signal
import sys
import traceback
from importlib import import_module

import click

from localspec.cli.console import Console, OnError, prepare_streams
from localspec.cli.signals import Terminated, TimedOut, terminating
from localspec.errors import (
    BROKEN_PIPE,
    INTERRUPTED,
    TIMED_OUT,
    InternalError,
    LocalspecError,
    ResourceError,
    UsageError,
)

MODELS = ("pair", "model", "target")  # arguments that name a model, which other commands take as -m
STOPPED = {INTERRUPTED: "stopped", TIMED_OUT: "stopped by --timeout"}


def outcome(args: list[str], *, is_heard: bool = False) -> int:
    """Run `args`; tell what went wrong, if anything, and return the exit code. `is_heard` makes Ctrl-C an exception."""
    prepare_streams()
    console = Console(on_error=_promised(args))
    try:
        if is_heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        from localspec.cli.app import call

        with terminating():
            code = call(args, console)
        if code in STOPPED:
            console.stopped(STOPPED[code])
        return code
    except click.exceptions.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        return BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return _interrupted(console)
    except TimedOut as end:
        console.say(f"localspec: {end}")
        return _stopped(console, "timeout", TIMED_OUT)
    except Terminated as end:
        return _stopped(console, "terminated", end.exit_code)
    except click.ClickException as error:
        return _failed(console, _usage(error))
    except LocalspecError as error:
        return _failed(console, error)
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python wraps it where a class is being made
            return _interrupted(console)
        return _failed(console, _unexpected(error))


def _interrupted(console: Console) -> int:
    console.stopped(STOPPED[INTERRUPTED])
    return _stopped(console, "interrupted", INTERRUPTED)


def _promised(args: list[str]) -> OnError | None:
    flags = args[: args.index("--")] if "--" in args else args
    is_chat = flags[:1] in ([], ["chat"])  # which has neither option
    own = "" if is_chat else f"LOCALSPEC_{flags[0].upper().replace('-', '_')}_"
    if "--json" in flags or ("--events" not in flags and own and (_is_on("LOCALSPEC_JSON") or _is_on(f"{own}JSON"))):
        return lambda error: import_module("localspec.cli.output").lone_error(error)  # late: few commands end so
    is_run = flags[:1] in (["run"], ["generate"])
    if "--events" in flags or (is_run and (_is_on("LOCALSPEC_EVENTS") or _is_on("LOCALSPEC_RUN_EVENTS"))):
        return lambda error: import_module("localspec.cli.stream").lone_error_event(error)
    return None


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true", "t", "yes", "y", "on")


def _failed(console: Console, error: LocalspecError) -> int:
    trace = "".join(traceback.format_exception(error)).rstrip()
    if os.environ.get("LOCALSPEC_DEBUG") == "1":
        console.say(trace)
    if console.log_file is not None and isinstance(error, InternalError):
        with contextlib.suppress(OSError), open(console.log_file, "a", encoding="utf-8", errors="replace") as log:
            log.write(trace + "\n")
    code = _report(console, error.to_wire())
    if code is not None:
        return code
    console.fail(error)
    return error.exit_code


def _stopped(console: Console, kind: str, code: int) -> int:
    _report(console, {"code": code, "kind": kind, "message": kind, "hint": "", "detail": {}})
    return code


def _report(console: Console, error: dict[str, object]) -> int | None:
    """Write the error where a program waits for it; return an exit code if stdout itself is what failed."""
    if console.on_error is not None:
        try:
            console.on_error(error)
        except BrokenPipeError:
            return BROKEN_PIPE
        except LocalspecError:
            pass  # stdout is full or closed: stderr still says what happened first
    return None


def _usage(error: click.ClickException) -> LocalspecError:
    from localspec.cli.option_sources import complaint  # late: little goes wrong
    from localspec.cli.params import TYPED

    message = complaint(error)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "localspec"
    hint = getattr(getattr(error, "param", None), "example", f"{command} --help")
    if isinstance(error, click.NoSuchOption) and context is not None:
        arguments = {each.name: each for each in context.command.params if isinstance(each, click.Argument)}
        first = next(iter(arguments), "")
        if first in MODELS and error.option_name in ("-m", "--model"):
            hint = f"{command} {arguments[first].human_readable_name}, without {error.option_name}"
        elif 0 < len(owners := _owners(error.option_name)) <= 2:
            hint = f"localspec {' or '.join(owners)}, which has {error.option_name}"
        elif arguments:
            hint += f", or -- before a {'prompt' if 'prompt' in arguments else 'word'} that begins with '-'"
    elif context is not None and "unexpected extra argument" in message:
        typed = context.meta.get(TYPED, [])
        if context.info_name == "chat":
            hint = "localspec run PROMPT, for an answer; what is said in a chat is typed there"
        elif typed and any("-o" in each.opts for each in context.command.params):
            hint = f"{command} {shlex.join([*typed[:-1], '-o', typed[-1]])}"
    return UsageError(message, hint=hint)


def _owners(flag: str) -> list[str]:
    from localspec.cli.app import commands  # late: it imports them all

    known = commands() if flag.startswith("--") else ()
    return [" ".join(path) for path, each in known if any(flag in param.opts for param in each.params)]


def _unexpected(error: Exception) -> LocalspecError:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        full = ResourceError(f"no space left: {error}", hint="free some space")
        full.__cause__ = error
        return full
    bug = InternalError(
        f"unexpected {type(error).__name__}: {error}", hint="LOCALSPEC_DEBUG=1 shows where; please report it"
    )
    bug.__cause__ = error
    return bug


def flush() -> None:
    """Empty the streams; one that is gone is replaced, or Python would complain of it on the way out."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
