"""From what click collected to settings.

Values that need no model are checked here or by the settings' own `check`, before a file is opened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.cli.inputs import MAX_FILE, read_regular
from localspec.config import LoadSettings, Message, Request, Sampling, Speculation
from localspec.errors import NotFoundError, UsageError
from localspec.models.names import DraftChoice
from localspec.models.store import NotCachedError, PairRef, parse_pair
from localspec.worker import Worker

Values = Mapping[str, Any]  # what click collected, by parameter name

_NO_DRAFTS = (DraftChoice.NONE, DraftChoice.UNSET)
_ESCAPE = re.compile(r"\\(?:([ntr0\\\"'])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def load_settings(values: Values, pair: PairRef) -> LoadSettings:
    """Return how to load a pair whose files were found."""
    target, draft = str(pair.target.absolute()), None if pair.draft is None else str(pair.draft.absolute())
    return _load_settings(values, target, draft, pair.name)


def promised_settings(values: Values) -> tuple[LoadSettings, NotCachedError | None]:
    """Return the settings of the pair that -m and --draft name, and what of it has to be pulled first.

    In that case they are enough to check everything else before a long download, and no more.
    """
    try:
        return load_settings(values, parse_pair(values["model"], values["draft"])), None
    except NotCachedError as missing:
        draft = missing.pair.draft
        name = None if draft in _NO_DRAFTS else str(draft)
        return _load_settings(values, str(missing.pair.target), name, str(missing.pair)), missing


def _load_settings(values: Values, target: str, draft: str | None, name: str) -> LoadSettings:
    return LoadSettings(
        target=target,
        draft=draft,
        name=name,
        ctx=values["ctx"],
        threads=values["threads"],
        gpu=layers_on("--gpu", values["gpu"]),
        draft_gpu=layers_on("--draft-gpu", values["draft_gpu"]),
        kv_type=values["kv"],
        flash_attn=values["flash_attn"],
        mmap=values["mmap"],
        mlock=values["mlock"],
        rpc=servers(values["rpc"]),
    )


def servers(text: str | None) -> tuple[str, ...]:
    """Return the servers that --rpc names; raises UsageError for what is not HOST:PORT."""
    found = () if text is None else tuple(part.strip() for part in text.split(","))
    for endpoint in found:
        host, _, port = endpoint.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
            raise UsageError(f"--rpc {endpoint!r} is not HOST:PORT", hint="--rpc 192.168.1.20:50052,192.168.1.21:50052")
    return found


def request_settings(values: Values, settings: LoadSettings) -> Request:
    """Return a request without its prompt, checked as far as that goes without a model."""
    template = None if values["template"] is None else _template(values["template"])
    request = Request(
        max_tokens=values["max_tokens"],
        stop=tuple(unescape(text) for text in values["stop"]),
        template=template,
        sampling=sampling(values),
        speculation=speculation(values),
    )
    check(request, settings)
    return request


def check(request: Request, settings: LoadSettings) -> None:
    """Raise UsageError for settings that are out of range or do not go together."""
    request.check()
    if request.speculation == Speculation():  # what nobody asked for cannot be wrong
        return
    from localspec.axes import resolve_axes  # late: with numpy it is a third of a command's start

    seed = request.sampling.seed
    resolve_axes(
        request.speculation,
        has_draft=settings.draft is not None,
        is_seeded=seed is not None,
        is_greedy=request.sampling.temperature == 0.0,
    )


def system_message(values: Values) -> tuple[Message, ...]:
    """Return the system message, () without one."""
    text = text_or_file("--system", values["system"], stdin_limit(values))
    return () if not text else (Message("system", text),)


def stdin_limit(values: Values) -> int:
    """Return --max-stdin in bytes; chat has no such option."""
    return int(values["max_stdin"] * 2**20) if "max_stdin" in values else MAX_FILE


def open_worker(values: Values) -> Worker:
    """Return a worker that logs where --log-file says; it starts when it is first asked for something."""
    return Worker(log_file=None if values["log_file"] is None else Path(values["log_file"]))


def sampling(values: Values) -> Sampling:
    """Return the target's law."""
    return Sampling(
        temperature=values["temp"],
        top_k=values["top_k"],
        top_p=values["top_p"],
        min_p=values["min_p"],
        typical_p=values["typical_p"],
        repeat_penalty=values["repeat_penalty"],
        presence_penalty=values["presence_penalty"],
        frequency_penalty=values["frequency_penalty"],
        penalty_last_n=values["penalty_last_n"],
        logit_bias=tuple(token_bias(text) for text in values["logit_bias"]),
        draft_temperature=values["draft_temp"],
        seed=values["seed"],
    )


def speculation(values: Values) -> Speculation:
    """Return the four axes."""
    return Speculation(
        method=values["method"],
        tree=values["tree"],
        length=values["length"],
        k=draft_length(values["draft_tokens"]),
        verify=values["verify"],
        options=tuple(key_value(text) for text in values["option"]),
        approximate=values["approximate"],
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


def _template(text: str) -> str:
    from localspec.chat_template import load_template  # brings jinja2, which nothing else here needs

    return load_template(text.removeprefix("@"))


def layers_on(name: str, text: str) -> str:
    """Return --gpu as it is; raises UsageError for what is no choice and no number."""
    if text in ("auto", "off", "all") or (text.isascii() and text.isdigit()):
        return text
    raise UsageError(f"{name} {text!r} is neither auto, off, all nor a number of layers", hint=f"{name} auto")


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
