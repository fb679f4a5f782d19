"""Which pair is meant where more than one place names it: what is typed, a conversation, what is set for good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from localspec.errors import UsageError
from localspec.models.names import DraftChoice, parse


def is_typed(name: str) -> bool:
    """Whether the command line itself gives an option, and not the environment or config.toml."""
    return _source(name) is ParameterSource.COMMANDLINE


def with_pair(values: Mapping[str, Any], pair: str | None) -> dict[str, Any]:
    """Return the values with the argument PAIR, where it was given, as what --model says."""
    if pair is None:
        return dict(values)
    if is_typed("model"):
        raise UsageError("the pair is named twice, as PAIR and in --model", hint="leave one of the two out")
    click.get_current_context().set_parameter_source("model", ParameterSource.COMMANDLINE)
    return {**values, "model": pair}


def with_pair_of_conversation(values: Mapping[str, Any], pair: str) -> dict[str, Any]:
    """Return the values with the pair of a conversation: it goes before what is set for good, what is typed before it.

    A draft that is typed alone drafts for the conversation's target.
    """
    if is_typed("model"):
        return dict(values)
    return {**values, "model": pair, "draft": values["draft"] if is_typed("draft") else None}


def model_and_draft(values: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return --model and --draft such that one of them names the draft: the one that counts more.

    Two that are said in the same place are left as they are, for `parse_pair` to refuse.
    """
    model, draft = values["model"], values["draft"]
    if model is None or draft is None:
        return model, draft
    pair = parse(model)
    if pair.draft is DraftChoice.UNSET or _source("model") is _source("draft"):
        return model, draft
    return (model, None) if _source("model") < _source("draft") else (str(pair.target), draft)


def _source(name: str) -> ParameterSource:
    return click.get_current_context().get_parameter_source(name) or ParameterSource.DEFAULT
