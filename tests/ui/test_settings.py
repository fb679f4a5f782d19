"""Hints as a chat takes them: its own commands, with values that they take."""

from __future__ import annotations

import pytest

from localspec.chat.commands import TABLE
from localspec.control.chain import ALL_THE_SAME
from localspec.errors import UsageError
from localspec.prompt.form import EXAMPLES
from localspec.settings.declaration import Option, declared
from localspec.settings.request import LoadSettings, Request
from localspec.ui.settings import SETTINGS, changed, in_chat, remark_in_chat, retyped


@pytest.mark.parametrize(
    ("hint", "typed"),
    [
        ("-d none", "/draft none"),
        ("--draft FILE.gguf", "/draft FILE.gguf"),
        ("--ctx 8192", "/ctx 8192"),
        ("-k 4", "/k 4"),
        ("--method draft-model -k 4", "/set method draft-model, then /k 4"),
        ("--approximate --verify typical", "/set approximate on, then /set verify typical"),
        ("--tree static:4,2,2", "/set tree static:4,2,2"),
        ("leave out --tree", "/set tree chain"),
        ("leave out -k", "/k auto"),
        ("leave out --server", "leave out --server"),
        ("--template chatml", "localspec chat -c --template chatml"),
        ("leave out --threads", "localspec chat -c without --threads"),
        ("--reproducible", "localspec chat -c --reproducible"),
        ("--regex '[a-z]+'", "/set regex [a-z]+"),
        ("--gpu off, a smaller --ctx, or --draft none", "localspec chat -c --gpu off, a smaller /ctx, or /draft none"),
        ("localspec run -m NAME --temp 0", "localspec run -m NAME --temp 0"),
        ("--api-key KEY", "--api-key KEY"),
        ("/set temp 0.8", "/set temp 0.8"),
    ],
)
def test_a_hint_is_a_command_of_the_chat(hint: str, typed: str) -> None:
    assert in_chat(hint) == typed
    assert in_chat(typed) == typed, "what a chat takes stays"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"x loses; -d a.gguf {ALL_THE_SAME}", "x loses; /draft a.gguf, then /set method draft-model drafts"),
        ("nothing was drafted; -d none saves 5 MB", "nothing was drafted; /draft none saves 5 MB"),
        ("no copy pays; --method copy copies all the same", "no copy pays; /set method copy copies all the same"),
        ("cut; a greater -n or --ctx lets it end", "cut; a greater /set max-tokens or /ctx lets it end"),
        ("--top-k has no effect: --temp 0 takes the likeliest token", "top-k has no effect: /temp 0 takes the"),
        ("the draft is not loaded: -k 0 uses none", "the draft is not loaded: /k 0 uses none"),
        ("so --template-arg x, --think and -n do nothing", "so template-arg x, think and max-tokens do nothing"),
        ("--gpu 3 holds all", "--gpu 3 holds all"),
    ],
)
def test_a_remark_names_what_may_be_typed(line: str, told: str) -> None:
    assert remark_in_chat(line).startswith(told)


@pytest.mark.parametrize(
    "setting",
    [each for part in (LoadSettings, Request) for each in declared(part) if each.key not in (*SETTINGS, "ctx")],
    ids=lambda each: each.key,
)
def test_a_setting_that_a_chat_begins_with_is_refused_with_how_to_begin(setting: Option) -> None:
    """As a setting and as a command."""
    for refused in (lambda: changed(Request(), setting.key, "1"), lambda: TABLE.find(f"/{setting.key} 1")):
        with pytest.raises(UsageError, match=f"^{setting.key} is a setting that a chat begins with$") as raised:
            refused()
        flag = "--no-mmap" if setting.key == "mmap" else setting.flag
        assert raised.value.hint.partition(flag)[0] == "localspec chat -c "
        assert (" on" in raised.value.hint) is False, "a switch takes no value in a shell"


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda each: each.key)
def test_the_example_of_each_setting_is_taken_by_the_chat(setting: Option) -> None:
    typed = in_chat(setting.example)
    assert TABLE.is_command(typed), typed
    command, argument = TABLE.find(typed)
    name, value = (command.name, argument) if command.name != "set" else argument.split(" ", 1)
    if not value.isupper():
        assert "'" not in value, "which is text there"
        assert changed(Request(), name, value) is not None


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_form_is_typed_without_the_quotes_of_a_shell(name: str) -> None:
    """A chat takes what is typed: quotes would be part of the form."""
    error = UsageError("it cannot be kept", hint=EXAMPLES[name])
    typed = in_chat(EXAMPLES[name])
    assert typed == retyped(error, "/set ").hint
    assert retyped(error, "localspec config set ").hint == EXAMPLES[name].replace("--", "localspec config set ", 1)
    _, of, value = typed.split(" ", 2)
    assert (of, value[:1] == "'") == (name, False)
    assert changed(Request(), name, value) is not None


@pytest.mark.parametrize("setting", declared(LoadSettings), ids=lambda each: each.key)
def test_a_setting_of_the_load_is_one_of_the_next_chat(setting: Option) -> None:
    assert in_chat(setting.example).startswith(("localspec chat -c --", "/ctx "))
