"""Reads the tools that a request offers, and the calls and results that its messages hold."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from localspec.server.fields import Fields
from localspec.settings.request import FORMS, Request

MOST_TOOLS = 128
DEEPEST = 40  # levels of a tool's parameters
ANYTHING = {"type": "object", "properties": {}}
CHOICES = "none, auto, required, or a function by its name"


def offered(
    fields: Fields, request: Request, given: list[dict[str, Any]] | None = None
) -> tuple[Request, frozenset[str]]:
    """Return the request with the tools that it offers, and their names; none where `tool_choice` is none.

    A choice that requires a call gives the answer the form of one. `given` are tools that were taken already.
    """
    if given is None:
        given = fields.take("tools", list[dict[str, Any]], [])
    if len(given) > MOST_TOOLS:
        raise fields.refusal("tools", f"at most {MOST_TOOLS}")
    tools = [_tool(fields, each, i) for i, each in enumerate(given)]
    choice = fields.take("tool_choice", str | dict[str, Any], "auto")
    by_name = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    wanted = _chosen(fields, choice, list(by_name))
    if choice == "none" or not tools:
        return request, frozenset()
    request = replace(request, tools=json.dumps(tools))
    if wanted:
        if any(getattr(request, name) is not None for name in FORMS):
            raise fields.refusal("tool_choice", "the answer has another form already")
        calls = [_call_schema(name, by_name[name]) for name in wanted]
        request = fields.formed(request, "tool_choice", calls[0] if len(calls) == 1 else {"anyOf": calls})
    return request, frozenset(by_name)


def _tool(fields: Fields, given: dict[str, Any], i: int) -> dict[str, Any]:
    """Return a tool with no more than templates expect."""
    own = Fields(given, f"tools[{i}].")
    if own.take("type", str, "function") != "function":
        raise own.refusal("type", "function is the only kind")
    function = own.within("function")
    own.finish(())
    name = function.take("name", str, "")
    if not re.fullmatch(r"[\w.-]{1,64}", name):
        raise function.refusal("name", "1 to 64 letters, digits, dots, dashes and underscores")
    parameters = function.take("parameters", dict[str, Any]) or ANYTHING
    if not is_shallow(parameters, DEEPEST):
        raise function.refusal("parameters", f"at most {DEEPEST} levels")
    told = {"name": name, "description": function.take("description", str, ""), "parameters": parameters}
    function.finish(("strict",))
    return {"type": "function", "function": told}


def _chosen(fields: Fields, choice: str | dict[str, Any], names: list[str]) -> list[str]:
    """Return the names of the functions one of which must be called, none where that is left to the model."""
    if choice in ("none", "auto"):
        return []
    if choice == "required":
        if not names:
            raise fields.refusal("tool_choice", "there are no tools to choose from")
        return names
    if not isinstance(choice, dict):
        raise fields.refusal("tool_choice", CHOICES)
    own = Fields(choice, "tool_choice.")
    kind, function = own.take("type", str, "function"), own.within("function")
    name = function.take("name", str, "") or own.take("name", str, "")
    function.finish(())
    own.finish(())
    if kind != "function" or name not in names:
        raise fields.refusal("tool_choice", CHOICES)
    return [name]


def _call_schema(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a call. Arguments that are not declared are left out: small models would invent them."""
    arguments = {"additionalProperties": False, **parameters} if "properties" in parameters else parameters
    properties = {"name": {"const": name}, "arguments": arguments}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def is_shallow(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested in each other no deeper than this."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(is_shallow(each, levels - 1) for each in inner)
