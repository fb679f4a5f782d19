"""Settings: typed, frozen, JSON-able, checked in one place. What the command line collects and the session obeys.

`LoadSettings` lives as long as the models; a `Request` holds everything that may differ from one answer to the next.
Every check raises UsageError with the option's name as people type it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Which models, where, and how they are held. Paths are absolute; `draft` None means no draft model."""

    target: str
    draft: str | None = None
    name: str = ""  # the pair reference in its canonical spelling
    ctx: int | None = None
    threads: int | None = None
    gpu: str = "auto"  # auto | off | all | a number of layers
    draft_gpu: str = "auto"
    kv_type: str = "f16"
    flash_attn: str = "auto"
    mmap: bool = True
    mlock: bool = False
    rpc: tuple[str, ...] = ()  # servers, HOST:PORT, whose devices take layers too
    reproducible: bool = False  # the text of plain decoding, bit for bit


@dataclass(frozen=True, slots=True)
class Sampling:
    """The target's distribution, in llama.cpp's order: bias, penalties, top-k, typical-p, top-p, min-p, temperature.

    Defaults are llama.cpp's. `temperature` 0 is the point mass on the most probable token. `draft_temperature` None
    drafts at `temperature`; any value is exact.
    """

    temperature: float = 0.8
    top_k: int = 40  # 0: off
    top_p: float = 0.95  # 1: off
    min_p: float = 0.05  # 0: off
    typical_p: float = 1.0  # 1: off
    repeat_penalty: float = 1.0  # 1: off
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64  # 0: off, -1: the whole text
    logit_bias: tuple[tuple[int, float], ...] = ()
    draft_temperature: float | None = None
    seed: int | None = None

    def check(self) -> None:
        """Raise UsageError for the first value out of its range."""
        _require("--temp", self.temperature, 0.0, math.inf)
        _require("--top-k", self.top_k, 0, 2**31 - 1)
        _require("--top-p", self.top_p, 0.0, 1.0, above=True)
        _require("--min-p", self.min_p, 0.0, 1.0)
        _require("--typical-p", self.typical_p, 0.0, 1.0, above=True)
        _require("--repeat-penalty", self.repeat_penalty, 0.01, 100.0)
        _require("--presence-penalty", self.presence_penalty, -100.0, 100.0)
        _require("--frequency-penalty", self.frequency_penalty, -100.0, 100.0)
        _require("--penalty-last-n", self.penalty_last_n, -1, 2**31 - 1)
        if self.draft_temperature is not None:
            _require("--draft-temp", self.draft_temperature, 0.0, math.inf)
        if self.seed is not None:
            _require("--seed", self.seed, 0, 2**64 - 1)
        for _, bias in self.logit_bias:
            if bias != -math.inf:  # which bans the token
                _require("--logit-bias", bias, -1e6, 1e6)


@dataclass(frozen=True, slots=True)
class Speculation:
    """The four independent axes: who drafts, in which shape, how long, verified by which rule."""

    method: str = "auto"
    tree: str = "chain"
    length: str = "auto"  # the controller's choice where it decides, a fixed one where a method was asked for
    k: int | None = None  # draft tokens per pass; None: the method's own default
    verify: str = "auto"
    options: tuple[tuple[str, str], ...] = ()  # of the method, as typed: -o key=value
    approximate: bool = False  # allow rules that change the output's distribution

    def check(self) -> None:
        """Raise UsageError for a draft length out of range; names are checked where they are looked up."""
        if self.k is not None:
            _require("-k", self.k, 0, 10**6)


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to be generated: either `messages` through the chat template, or a raw `prompt`."""

    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    max_tokens: int | None = None  # None: until the model stops or the context is full
    stop: tuple[str, ...] = ()
    template: str | None = None  # overrides the model's own chat template
    sampling: Sampling = field(default_factory=Sampling)
    speculation: Speculation = field(default_factory=Speculation)
    details: bool = False  # Committed events carry the draft tokens and their probabilities
    cold: bool = False  # as after loading: nothing of earlier answers is in a cache or in a drafter's memory
    prompt_tokens: int | None = None  # cut the prompt to its first so many tokens
    shorten: bool = False  # leave out the oldest turns where the context has no room for all of them

    def check(self) -> None:
        """Raise UsageError for the first setting that cannot be obeyed."""
        self.sampling.check()
        self.speculation.check()
        if self.max_tokens is not None:
            _require("--max-tokens", self.max_tokens, 1, 2**31 - 1)
        if self.prompt_tokens is not None:
            _require("--prompt-tokens", self.prompt_tokens, 1, 2**31 - 1)
        if any(stop == "" for stop in self.stop):
            raise UsageError("--stop '' would stop before the first token", hint="--stop '\\n\\n'")

    def never(self, tokens: Sequence[int]) -> Request:
        """Return the request with `tokens` never sampled, whoever drafts: llama.cpp's chain begins so, too."""
        if not tokens:
            return self
        bias = (*self.sampling.logit_bias, *((token, -math.inf) for token in tokens))
        return replace(self, sampling=replace(self.sampling, logit_bias=bias))


def cache_folder(name: str) -> Path:
    """Return where files called `name` that can be made again are kept: below LOCALSPEC_HOME, or where the system says.

    The folder need not exist.
    """
    return _folder("cache") / name


def config_folder() -> Path:
    """Return where the user's own settings are kept. The folder need not exist."""
    return _folder("config")


def conversations_file() -> Path:
    """Return where the chat keeps what was said. Neither the file nor its folder need exist."""
    return _folder("data") / "conversations.db"


def state_folder(name: str) -> Path:
    """Return where localspec keeps what it did, such as receipts. The folder need not exist."""
    return _folder("state") / name


def typed_path(name: str) -> Path:
    """Return the path that a person typed. "~name" of nobody here is a file's name, as in a shell."""
    return Path(os.path.expanduser(name))


def _folder(kind: str) -> Path:
    home = os.environ.get("LOCALSPEC_HOME")
    if home:
        return typed_path(home).absolute() / kind
    import platformdirs  # minds XDG_CACHE_HOME and its like

    folder: Path = getattr(platformdirs, f"user_{kind}_path")("localspec")
    return folder


def to_wire(settings: LoadSettings | Request) -> dict[str, Any]:
    """Return `settings` as a JSON object."""
    return asdict(settings)


def load_settings_from_wire(wire: dict[str, Any]) -> LoadSettings:
    """Rebuild LoadSettings from `to_wire`'s object."""
    return LoadSettings(**{**wire, "rpc": tuple(wire.get("rpc", ()))})


def request_from_wire(wire: dict[str, Any]) -> Request:
    """Rebuild a Request from `to_wire`'s object, which JSON may have carried: lists become tuples again."""
    sampling = dict(wire["sampling"])
    sampling["logit_bias"] = tuple((int(token), float(bias)) for token, bias in sampling["logit_bias"])
    speculation = dict(wire["speculation"])
    speculation["options"] = tuple((str(name), str(value)) for name, value in speculation["options"])
    return Request(
        messages=tuple(Message(**message) for message in wire["messages"]),
        prompt=wire["prompt"],
        max_tokens=wire["max_tokens"],
        stop=tuple(wire["stop"]),
        template=wire["template"],
        sampling=Sampling(**sampling),
        speculation=Speculation(**speculation),
        details=wire["details"],
        cold=wire["cold"],
        prompt_tokens=wire["prompt_tokens"],
        shorten=wire["shorten"],
    )


def _require(option: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    """Raise UsageError unless low <= value <= high (low < value if `above`); NaN and infinity never pass."""
    in_range = math.isfinite(value) and low <= value <= high and not (above and value == low)
    if not in_range:
        left = "more than" if above else "at least"
        right = "" if high == math.inf or high >= 2**31 - 1 else f" and at most {high:g}"
        raise UsageError(
            f"{option} {value} is out of range: it must be {left} {low:g}{right}", hint="localspec run --help"
        )
