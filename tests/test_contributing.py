"""The worked examples of CONTRIBUTING.md: each is complete with the files that it names, and registers itself."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from localspec.chat.command import TABLE
from localspec.cli.options import declared_option
from localspec.cli.params import Command
from localspec.errors import UsageError
from localspec.settings.declaration import declared, setting
from localspec.settings.request import SAMPLING, Sampling
from localspec.speculation import PACKAGES, _classes, _named, registered
from localspec.ui.explain import pages
from tests.cli.harness import run
from tests.ui.test_explain import test_a_page_is_complete as assert_complete

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = [("method", "repeat", "tests/methods/test_repeat.py"), ("verify", "first", "tests/exact/test_first.py")]


def block(file: str) -> str:
    found = re.search(rf"^`{re.escape(file)}`.*?```\w+\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, file
    return found[1]


def lines(beginning: str) -> str:
    found = re.search(rf"```python\n({re.escape(beginning)}.*?)```", TEXT, re.DOTALL)
    assert found is not None, beginning
    return found[1]


@pytest.fixture(params=EXAMPLES, ids=lambda example: example[1])
def example(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    axis, name, test = request.param
    package = import_module(PACKAGES[axis])
    file = f"{PACKAGES[axis].replace('.', '/')}/{name}.py"
    (tmp_path / f"{name}.py").write_text(block(file), encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    defined: dict[str, Any] = {"__name__": "example"}
    exec(compile(block(test), test, "exec"), defined)
    page = f"localspec/ui/pages/{axis}/{name}.md"
    (tmp_path / axis).mkdir()
    (tmp_path / axis / f"{name}.md").write_text(block(page), encoding="utf-8")
    monkeypatch.setattr("localspec.ui.explain.PAGES", tmp_path)
    registered.cache_clear()
    yield axis, name, defined
    registered.cache_clear()


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


def test_its_page_is_complete(example: Any) -> None:
    axis, name, _ = example
    (page,) = (page for page in pages(axis) if page.name == name)
    assert_complete(page)


def test_the_setting_is_an_option_with_a_check() -> None:
    defined: dict[str, Any] = {"Sampling": Sampling, "setting": setting, "SAMPLING": SAMPLING, "__name__": __name__}
    exec(f"class Wider(Sampling):\n    {lines('top_h: float')}", defined)
    wider = dataclass(frozen=True)(defined["Wider"])
    assert "top-h" in {each.key for each in declared(wider)}
    taken = []

    @click.command(cls=Command)
    @declared_option(wider, "top_h")
    def command(**values: Any) -> None:
        taken.append(values["top_h"])

    for words, variables in (([], {}), (["--top-h", "0.25"], {}), ([], {"LOCALSPEC_TOP_H": "1"})):
        assert CliRunner().invoke(command, words, env=variables).exit_code == 0
    assert taken == [0.5, 0.25, 1.0]
    assert isinstance(CliRunner().invoke(command, ["--top-h", "2"]).exception, SystemExit | UsageError)


def test_the_chat_command_answers_by_both_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("localspec.chat.commands")  # before the table is copied: it fills the table
    monkeypatch.setattr(TABLE, "commands", [*TABLE.commands])
    monkeypatch.setattr(TABLE, "_named", {**TABLE._named})
    exec(lines('@command("/count"'), {**vars(module)})
    told = run("chat", "storyteller", "--plain", "--no-save", stdin=b"/count\nHi\n/count\n/n\n/help\n")
    assert told.stdout.count(b"2 messages") == 2
    assert b"/count" in told.stdout
    assert b"there is nothing to count yet" in told.stderr + told.stdout
