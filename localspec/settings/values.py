"""Texts that people type, read as values of settings: readers raise ValueError, checks raise UsageError."""

import json
import math
import os
import re
from collections.abc import Callable
from typing import Any

from localspec.errors import NotFoundError, UsageError
from localspec.settings.folders import answers_folder
from localspec.settings.sizes import read_size, whole
from localspec.settings.text_files import did_you_mean

# What a template is given by the program itself, so that no argument can take its place.
GIVEN = ("messages", "bos_token", "eos_token", "add_generation_prompt")
MOST_SCALED = 1e3  # a LoRA beyond that leaves nothing of the model
_ESCAPE = re.compile(r"\\(?:([ntr0\\\"'])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))")
_BIAS = re.compile(r"(\d{1,18})(?:=|(?=[+-]))(.+)")  # 13=-1.5, or llama.cpp's 13-1.5
ANSWERS = "answers"  # in place of a file to copy from: the person's own earlier answers
SERVED_AT = 8080  # the port of `localspec serve` where none is said
_ADDRESS = re.compile(r"(?:(wss?)://)?([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?/?")
SAMPLES = {  # a value that an option takes, by its placeholder
    "SIZE": "24G", "SEC": "60", "ID=BIAS": "42=-1", "KEY=TEXT": "reasoning_effort=low", "FILE[:SCALE]": "FILE.gguf:0.5",
    "KEY=VALUE": "min_match=2", "HOST:PORT,...": "192.168.1.2:50052",
    "ws://HOST:PORT": "ws://192.168.1.2:8080", "REGEX": "'[a-z]+'", "GB/S": "cpu=60",
}  # fmt: skip
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def sample(metavar: str) -> str:
    form = metavar.partition("|")[0]
    return SAMPLES.get(form, form)


def draft_length(text: str) -> int | None:
    return None if text == "auto" else int(text)


def memory_size(text: str) -> str:
    try:
        read_size("", text)
    except UsageError:
        raise ValueError from None
    return text


def key_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise ValueError
    return name, value


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and its like are no JSON


def template_argument(text: str) -> tuple[str, Any]:
    name, value = key_value(text)
    if name in GIVEN:
        hint = "--template-arg reasoning_effort=low"
        raise UsageError(f"--template-arg {name} cannot be set: a template is given it with every prompt", hint=hint)
    try:
        return name, with_tuples(json.loads(value, parse_constant=_no_constant))
    except (ValueError, RecursionError):
        return name, value


def spelled_argument(argument: tuple[str, Any]) -> str:
    return f"{argument[0]}={json.dumps(argument[1], ensure_ascii=False, separators=(',', ':'))}"


def token_bias(text: str) -> tuple[int, float]:
    match = _BIAS.fullmatch(text)
    if match is None:
        raise ValueError
    return int(match[1]), float(match[2])


def absolute(text: str) -> str:
    if not text:
        raise ValueError
    return os.path.abspath(os.path.expanduser(text))


def corpus_source(text: str) -> str:
    return str(answers_folder()) if text == ANSWERS else absolute(text)


def spelled_source(path: str) -> str:
    return ANSWERS if path == str(answers_folder()) else path


def check_paths(option: str, paths: tuple[str, ...]) -> None:
    for path in paths:
        if not os.path.exists(path) and path != str(answers_folder()):
            hint = did_you_mean(path, f"{option} FOLDER")
            raise NotFoundError(f"{option}: there is no file or folder {path}", hint=hint)


def adapter(text: str) -> tuple[str, float]:
    path, colon, scale = text.rpartition(":")
    try:
        scaled = (path, float(scale)) if colon else (text, 1.0)
    except ValueError:
        scaled = (text, 1.0)  # a colon in the name
    if not scaled[0]:
        raise ValueError
    if not abs(scaled[1]) <= MOST_SCALED:
        message = f"--lora {text} is out of range: its scale must be from -{MOST_SCALED:g} to {MOST_SCALED:g}"
        raise UsageError(message, hint=f"--lora {path}:0.5")
    return os.path.abspath(os.path.expanduser(scaled[0])), scaled[1]


def spelled_adapter(lora: tuple[str, float]) -> str:
    return f"{lora[0]}:{lora[1]:g}"


def layers(text: str) -> str:
    if text not in ("auto", "off", "all") and not (text.isascii() and text.isdigit()):
        raise ValueError
    return text


def servers(text: str) -> tuple[str, ...]:
    endpoints = tuple(part.strip() for part in text.split(","))
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        if not (host and 0 < (whole(port) or 0) < 2**16):
            raise ValueError
    return endpoints


def verifier_of(pair: str) -> str | None:
    """Return the verifier's address that an edge's pair begins with, None of a pair whose target was here."""
    return pair.partition("+")[0] if pair.startswith(("ws://", "wss://")) else None


def verifier_address(text: str) -> str:
    """Return the address of a verifier, ws://HOST:PORT or wss://HOST:PORT; raises ValueError for any other."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError
    scheme, host, port = match[1] or "ws", match[2], match[3]
    if port is not None and not 0 < int(port) < 2**16:
        raise ValueError
    return f"{scheme}://{host.lower()}:{int(port or SERVED_AT)}"


def unescape(text: str) -> str:
    def read(match: re.Match[str]) -> str:
        letter, byte, unit = match.groups()
        return _ESCAPED.get(letter, letter) if letter else chr(int(byte or unit, 16))

    return _ESCAPE.sub(read, text)


def check_biases(biases: tuple[tuple[int, float], ...]) -> None:
    for _, bias in biases:
        if bias != -math.inf and not abs(bias) <= 1e6:  # minus infinity bans the token
            reason = f"--logit-bias {bias:.15g} is out of range: it must be from -1000000 to 1000000, or -inf"
            raise UsageError(reason, hint="--logit-bias 42=-5")


def check_texts(flag: str) -> Callable[[tuple[str, ...]], None]:
    def check(texts: tuple[str, ...]) -> None:
        if "" in texts:
            raise UsageError(f"{flag} '' is found everywhere: it needs a character", hint=f"{flag} '\\n\\n'")

    return check


def with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: with_tuples(each) for name, each in value.items()}
    return tuple(map(with_tuples, value)) if isinstance(value, list | tuple) else value
