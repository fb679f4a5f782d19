"""From what click collected to settings.

Values that need no model are checked before a file is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.cli.model_option import model_and_draft
from localspec.models.names import DraftChoice
from localspec.models.store import NotCachedError, PairRef, parse_pair
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
from localspec.ui.inputs import MAX_FILE
from localspec.ui.values import (
    check,
    draft_length,
    key_value,
    layers_on,
    servers,
    text_or_file,
    token_bias,
    unescape,
)
from localspec.worker.client import Worker

Values = Mapping[str, Any]  # what click collected, by parameter name
Promised = tuple[LoadSettings, NotCachedError | None]  # how to load a pair, and what of it has to be pulled first

_NO_DRAFTS = (DraftChoice.NONE, DraftChoice.UNSET)


def load_settings(values: Values, pair: PairRef) -> LoadSettings:
    """Return how to load a pair whose files were found."""
    target, draft = str(pair.target.absolute()), None if pair.draft is None else str(pair.draft.absolute())
    return _load_settings(values, target, draft, pair.name)


def promised_settings(values: Values) -> Promised:
    """Return the settings of the pair that --model and --draft name, and what of it has to be pulled first.

    In that case they are enough to check everything else before a long download, and no more.
    """
    try:
        return load_settings(values, parse_pair(*model_and_draft(values))), None
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
        reproducible=values["reproducible"],
    )


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
    """Return the target's distribution."""
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


def _template(text: str) -> str:
    from localspec.prompt.chat_template import load_template  # brings jinja2, which nothing else here needs

    return load_template(text.removeprefix("@"))
