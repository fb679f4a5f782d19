"""JSON is indented as it comes, wherever it is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.cli.output import PrettyJson

VALUES: list[Any] = [
    {}, [], 1, "a", None, {"a": 1, "b": [1, 2, {"c": []}], "d": {}},
    ["{", "}", ",", ":", 'a "quoted" \\ text', "\\", "é\n"], [[[1]], [{}, [{"x": [True]}]]],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("escaped", [True, False])
def test_it_is_what_json_would_write(value: Any, escaped: bool) -> None:
    for separators in ((",", ":"), (", ", " : ")):
        text = json.dumps(value, separators=separators, ensure_ascii=escaped)
        expected = json.dumps(value, indent=2, ensure_ascii=escaped)
        assert PrettyJson().feed(text) == expected
        one = PrettyJson()
        assert "".join(one.feed(letter) for letter in text) == expected


def test_what_is_no_json_passes() -> None:
    assert PrettyJson().feed("]}") == "\n]\n}"
    assert PrettyJson().feed('{"a": "b') == '{\n  "a": "b'
