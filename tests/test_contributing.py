"""The worked examples of CONTRIBUTING.md: each is complete with the files that it names, and registers itself."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from localspec.speculation import PACKAGES, _classes, _named

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = [("method", "repeat", "tests/methods/test_repeat.py"), ("verify", "first", "tests/exact/test_first.py")]


def block(file: str) -> str:
    """Return the code that follows the mention of a file."""
    found = re.search(rf"^`{re.escape(file)}`.*?```python\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, file
    return found[1]


@pytest.fixture(params=EXAMPLES, ids=lambda example: example[1])
def example(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return axis, name and the names that the example's test defines, with its file in place."""
    axis, name, test = request.param
    package = import_module(PACKAGES[axis])
    file = f"{PACKAGES[axis].replace('.', '/')}/{name}.py"
    (tmp_path / f"{name}.py").write_text(block(file), encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    defined: dict[str, Any] = {"__name__": "example"}
    exec(compile(block(test), test, "exec"), defined)
    return axis, name, defined


def test_it_registers_itself(example: Any) -> None:
    axis, name, _ = example
    assert name in dict(_named(_classes(PACKAGES[axis])))


def test_its_own_test_holds(example: Any) -> None:
    """That of the rule: the contract of a method is run by pytest on the class that is defined."""
    axis, _, defined = example
    if axis == "verify":
        defined["test_first"](seed=0)
        defined["test_a_wrong_rule_is_caught"]()
    else:
        assert issubclass(defined["TestRepeat"], defined["DrafterContract"])
