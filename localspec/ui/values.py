"""Values as people type them, read and checked without a model; what is wrong raises UsageError."""

from __future__ import annotations

import re

from localspec.errors import NotFoundError, UsageError
from localspec.settings.method_options import whole
from localspec.settings.request import LoadSettings, Request, Speculation
from localspec.ui.inputs import MAX_FILE, read_regular

_ESCAPE = re.compile(r"\\(?:([ntr0\\\"'])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def check(request: Request, settings: LoadSettings) -> None:
    """Raise UsageError for settings that are out of range or do not go together."""
    request.check()
    if request.speculation == Speculation():  # what nobody asked for cannot be wrong
        return
    from localspec.speculation.reproducible import require_reproducible
    from localspec.speculation.resolve import resolve_axes  # late: with numpy it is a third of a command's start

    if settings.reproducible:
        require_reproducible(request.speculation, request.sampling)

    seed = request.sampling.seed
    resolve_axes(
        request.speculation,
        has_draft=settings.draft is not None,
        is_seeded=seed is not None,
        is_greedy=request.sampling.temperature == 0.0,
    )


def text_or_file(name: str, value: str | None, limit: int = MAX_FILE) -> str | None:
    """Return `value`, or for @FILE what the file holds: at most `limit` bytes."""
    if value is None or not value.startswith("@"):
        return value
    try:
        text = read_regular(value[1:], limit, said=f"{name} {value}").decode("utf-8")
    except UnicodeDecodeError:
        reason = f"cannot read {name} {value}: it is not UTF-8 text"
        raise NotFoundError(reason, hint=f"{name} 'the text itself', or {name} @FILE") from None
    return text.replace("\r\n", "\n")


def draft_length(text: str) -> int | None:
    """Return -k as a number, None for auto."""
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"-k {text!r} is not a number of draft tokens", hint="-k 4, or -k auto") from None


def key_value(text: str) -> tuple[str, str]:
    """Split an option of a method at its '='."""
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise UsageError(f"-o {text!r} is not KEY=VALUE", hint="localspec methods lists each method's options")
    return name, value


def unescape(text: str) -> str:
    r"""Return `text` with \n, \t, \r, \0, \\, \xHH and \uHHHH read; any other backslash stays."""

    def read(match: re.Match[str]) -> str:
        letter, byte, unit = match.groups()
        return _ESCAPED.get(letter, letter) if letter else chr(int(byte or unit, 16))

    return _ESCAPE.sub(read, text)


def token_bias(text: str) -> tuple[int, float]:
    """Split a logit bias at its '='; raises UsageError."""
    token, equals, bias = text.partition("=")
    try:
        if not equals or int(token) < 0:
            raise ValueError
        return int(token), float(bias)
    except ValueError:
        raise UsageError(
            f"--logit-bias {text!r} is not ID=BIAS, a token's number and what to add", hint="--logit-bias 13=-100"
        ) from None


def layers_on(name: str, text: str) -> str:
    """Return --gpu as it is; raises UsageError for what is no choice and no number."""
    if text in ("auto", "off", "all") or (text.isascii() and text.isdigit()):
        return text
    raise UsageError(f"{name} {text!r} is neither auto, off, all nor a number of layers", hint=f"{name} auto")


def servers(text: str | None) -> tuple[str, ...]:
    """Return the servers that --rpc names; raises UsageError for what is not HOST:PORT."""
    found = () if text is None else tuple(part.strip() for part in text.split(","))
    for endpoint in found:
        host, _, port = endpoint.rpartition(":")
        if not (host and 0 < (whole(port) or 0) < 2**16):
            raise UsageError(f"--rpc {endpoint!r} is not HOST:PORT", hint="--rpc 192.168.1.20:50052,192.168.1.21:50052")
    return found
