"""Commands of other packages: found by their entry point, listed, and refused in one line where they do not load."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import click
import pytest
from click.testing import CliRunner

from localspec.cli import app
from localspec.errors import IncompatibleError


@click.command()
def hello() -> None:
    click.echo("hello from elsewhere")


@pytest.fixture
def plugged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entry = EntryPoint("hello", request.param, "localspec.commands")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == entry.group else [])
    app._plugins.cache_clear()
    yield
    app._plugins.cache_clear()


def group() -> click.Group:
    return app.LazyGroup("localspec")


@pytest.mark.parametrize("plugged", [f"{__name__}:hello"], indirect=True)
@pytest.mark.usefixtures("plugged")
def test_a_command_of_another_package_runs_and_is_listed() -> None:
    assert CliRunner().invoke(group(), ["hello"]).output == "hello from elsewhere\n"
    told = CliRunner().invoke(group(), ["--help"]).output
    assert "Commands of other packages:\n  hello" in told
    command = group().get_command(click.Context(group()), "run")
    assert command is not None
    assert command.name == "run", "ours go before"


@pytest.mark.parametrize("plugged", ["nothing_of_this_name:hello"], indirect=True)
@pytest.mark.usefixtures("plugged")
def test_one_that_does_not_load_is_named() -> None:
    with pytest.raises(IncompatibleError, match="the command 'hello' of the package nothing_of_this_name:hello cannot"):
        group().get_command(click.Context(group()), "hello")
