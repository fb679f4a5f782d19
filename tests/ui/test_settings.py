"""A chat takes options as the command line does: a hint can be typed in both."""

import pytest

from localspec.chat.commands import TABLE
from localspec.errors import UsageError
from localspec.prompt.form import EXAMPLES
from localspec.settings.declaration import Option, declared
from localspec.settings.request import LoadSettings, Request
from localspec.ui.settings import SETTINGS, changed, options_in
from tests.recorded import recorded_expressions


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda each: each.key)
def test_the_example_of_a_setting_can_be_typed(setting: Option) -> None:
    """A switch is on without a value; KEY=VALUE needs names of its own."""
    (command,) = options_in(setting.example)
    command, _, argument = command.partition(" ")
    name, _, value = argument.partition(" ")
    assert (command, name) == ("/set", setting.key)
    if not (setting.is_repeated or value.isupper()):
        assert changed(Request(), name, value) is not None


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_form_can_be_typed(name: str) -> None:
    (command,) = options_in(EXAMPLES[name])
    _, of, value = command.split(" ", 2)
    assert of == name
    assert changed(Request(), name, value) is not None


@pytest.mark.parametrize("setting", declared(LoadSettings), ids=lambda each: each.key)
def test_a_setting_of_the_load_is_one_of_the_next_chat(setting: Option) -> None:
    if setting.key != "ctx":
        with pytest.raises(UsageError) as caught:
            changed(Request(), setting.key, "1")
        assert caught.value.hint.startswith("localspec chat -c --")


test_what_is_recorded = recorded_expressions(__file__, options_in, TABLE=TABLE)
