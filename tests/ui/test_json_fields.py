"""docs/json.md has every field that `run --json` and `run --events` write, as the types say."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, NotRequired, get_origin, get_type_hints

import json_page
import pytest

from localspec.engine.events import ModelFacts
from localspec.ui.json_fields import LINES, ErrorFields, LineFields, ModelFile, ResultFields
from tests.cli.harness import needs_pair, run_engine

PAGE = Path(__file__).parents[2] / "docs" / "json.md"


def missing(kind: Any, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from missing(kind, each, path)
        return
    known = {name: inner for name, inner, _ in json_page.fields(kind)}
    yield from (f"{path}.{name}" for name in value.keys() - known.keys())
    yield from (f"{path}.{name} is not there" for name in required(kind) - value.keys())
    for name, inner in known.items():
        held = json_page.held(inner)
        if name in value and not fits(json_page.spelled(inner), value[name]):
            yield f"{path}.{name} is {value[name]!r}, not {json_page.spelled(inner)}"
        elif held and value.get(name) is not None:
            yield from missing(held[0], value[name], f"{path}.{name}")
        elif name == "params" and value.get(name) is not None:
            yield from wrong_params(value[name], is_decided=path != "start")


def wrong_params(params: dict[str, Any], *, is_decided: bool) -> Iterator[str]:
    """Yield the settings that the page has not, those that never come, and those of another type."""
    told = PARAMS.keys() if is_decided else PARAMS.keys() - {"is_seeded", "is_lossless"}
    yield from (f"params.{name} is on one side alone" for name in params.keys() ^ told)
    for name in params.keys() & told:
        if not fits(PARAMS[name], params[name]):
            yield f"params.{name} is {params[name]!r}, not {PARAMS[name]}"


def fits(words: str, value: Any) -> bool:
    """Whether a value of JSON is what the page says, such as "list of integer" or "text or null"."""
    first, _, rest = words.removeprefix("list of ").partition(" or ")
    if words.startswith("list of ") and isinstance(value, list):
        return all(fits(words.removeprefix("list of "), each) for each in value)
    is_first = first == "any" or (type(value) in TYPES[first] and not words.startswith("list of "))
    return is_first or (bool(rest) and fits(rest, value))


def required(kind: Any) -> set[str]:
    hints = get_type_hints(kind, include_extras=True)
    return {name for name, each in hints.items() if get_origin(each) is not NotRequired}


PARAMS = {name: kind for name, kind, _ in json_page.params()}
TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "list": (list,),
    "null": (NoneType,),
}


def test_the_page_is_what_the_types_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == json_page.page()


def test_every_type_is_on_the_page() -> None:
    """With each of its fields in a row."""
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.M))
    todo, seen = [ResultFields, ErrorFields, LineFields, *LINES.values()], set()
    while todo:
        kind: Any = todo.pop()
        seen.add(kind)
        for name, inner, meaning in json_page.fields(kind):
            assert name in rows
            assert meaning
            todo += [each for each in json_page.held(inner) if each not in seen]
    assert len(seen) > 20


def test_a_model_is_told_whole() -> None:
    assert {each.name for each in fields(ModelFacts)} == set(ModelFile.__annotations__)


@needs_pair
@pytest.mark.parametrize(
    "more", [[], ["--method", "plain"], ["--seed", "1", "--tree", "static:2,1"], ["--logprobs", "2"]]
)
def test_a_real_run_writes_what_the_page_has(more: list[str]) -> None:
    """Neither more nor less, of the types that the page tells, and null only where it says so."""
    done = run_engine("run", "storyteller", "-n", "24", "--json", "--tokens", *more, "Once")
    assert list(missing(ResultFields, json.loads(done.stdout), "result")) == []
    said = run_engine("run", "storyteller", "-n", "24", "--events", "--logit-bias", "7=-inf", *more, "Once").stdout
    common = {name for name, _, _ in json_page.fields(LineFields)}
    kinds = set()
    for line in map(json.loads, said.splitlines()):
        kinds.add(line["type"])
        content = {name: value for name, value in line.items() if name not in common}
        assert common <= line.keys()
        assert list(missing(LINES[line["type"]], content, line["type"])) == []
    assert kinds >= {"start", "load", "prefill", "step", "end"}


@pytest.mark.parametrize("form", ["--json", "--events"])
def test_an_error_is_what_the_page_has(form: str) -> None:
    done = run_engine("run", form, "--temp", "nan", "hi")
    last = json.loads(done.stdout.splitlines()[-1])
    assert list(missing(ErrorFields, last["error"], "error")) == []
