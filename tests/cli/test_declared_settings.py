"""A setting is declared once: every declared field is walked through option, config.toml, /set, form and wire."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
import pytest

from localspec.cli.app import cli, commands
from localspec.cli.option_sources import WITHOUT_FILE, Configurable, options_of, origin
from localspec.cli.options import collected, declared_options
from localspec.cli.params import Command, stacked
from localspec.cli.run import run
from localspec.cli.settings_table import described, read_words
from localspec.errors import UsageError
from localspec.settings.config_file import assign, config_file
from localspec.settings.declaration import Option, declared, setting
from localspec.settings.jobs import Generate, Load
from localspec.settings.request import (
    SAMPLING,
    LoadSettings,
    Request,
    Sampling,
    Speculation,
)
from localspec.tui.settings_form import FIRST, Form
from localspec.ui.settings import changed, shown
from tests.tui.chats import ScriptedEngine, engine_of
from tests.worker.wire import crossed

HOLDERS: tuple[type[Any], ...] = (LoadSettings, Sampling, Speculation, Request)
EVERY = [(holder, each) for holder in HOLDERS for each in declared(holder)]
NAMES = [f"{holder.__name__}.{each.name}" for holder, each in EVERY]
SAMPLES = {  # texts of settings that are neither numbers nor switches nor choices
    "gpu": ("20", "20"),
    "draft_gpu": ("3", "3"),
    "cache_disk": ("1.5G", "1.5G"),
    "cache_ram": ("512MB", "512MB"),
    "rpc": ("a:1, b:2", ("a:1", "b:2")),
    "verifier": ("wss://Tower:9000/", "wss://tower:9000"),
    "verifier_key_file": ("/a/key", "/a/key"),
    "verifier_ca": ("/a/ca.pem", "/a/ca.pem"),
    "logit_bias": ("13=-1.5", ((13, -1.5),)),
    "method": ("suffix", "suffix"),
    "tree": ("static:3,2", "static:3,2"),
    "k": ("3", 3),
    "length": ("fixed", "fixed"),
    "verify": ("coupled", "coupled"),
    "corpus": ("/", ("/",)),
    "options": ("colour=red", (("colour", "red"),)),
    "stop": (r"\nUser:", ("\nUser:",)),
    "dry_base": ("2.5", 2.5),
    "lora": ("/a:b/c.gguf:0.5", (("/a:b/c.gguf", 0.5),)),
    "dry_sequence_breaker": (r"\n", ("\n",)),
    "template": ("chatml", "chatml"),
    "schema": ('{"type": "string"}', '{"type": "string"}'),
    "regex": ("a+b", "a+b"),
    "grammar": ('root ::= "a"', 'root ::= "a"'),
    "choices": ("a,b", "a\nb\n"),
    "template_args": ('tools=["a b",{"n":1}]', (("tools", ("a b", {"n": 1})),)),
}
NO_SETTINGS = {  # fields that no option sets: what the program itself fills in
    "target", "draft", "name", "expected", "messages",
    "prompt", "sampling", "speculation", "details", "cold", "logprobs", "is_after_sampler", "prompt_tokens",
    "keeps", "reads_ahead", "tools", "must_call", "scores_prompt", "opens_turn", "resumes", "prompt_ids",
    "shorten", "left_out", "continues", "template_file", "suffix", "prediction",
}  # fmt: skip
every = pytest.mark.parametrize(("holder", "each"), EVERY, ids=NAMES)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in os.environ:
        if name.startswith("LOCALSPEC_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def sample(each: Option) -> tuple[str, Any]:
    """Return a text that a person may type, and the field's value for it, which is not the default."""
    if each.name in SAMPLES:
        return SAMPLES[each.name]
    if each.kind == "switch":
        return ("off", False) if each.default else ("on", True)
    if each.choices:
        return next((text, text) for text in each.choices if text != each.default)
    return ("1", 1) if each.kind == "integer" else ("0.25", 0.25)


def option_of(each: Option) -> Configurable:
    """Return the option of `localspec run` for a setting."""
    return options_of(run)[each.key]


def given(*words: str) -> dict[str, Any]:
    """Return what click collects for `localspec run` with these words."""
    with run.make_context("run", list(words), parent=click.Context(click.Group("localspec"))) as ctx:
        return ctx.params


def collected_from(holder: type[Any], *words: str) -> Any:
    """Return the settings that `localspec run` makes of these words."""
    parts = {"target": "t"} if holder is LoadSettings else {}
    return collected(holder, given(*words), **parts)


def words(each: Option) -> Iterator[list[str]]:
    """Yield the command line that sets the sample, once for each spelling of the option."""
    for flag in (*each.flags, *each.aliases):
        text = sample(each)[0]
        yield [f"--no-{each.key}" if text == "off" else flag] if each.kind == "switch" else [flag, text]


def test_every_field_is_declared_or_filled_in_by_the_program() -> None:
    for holder in HOLDERS:
        assert {each.name for each in fields(holder)} - {each.name for each in declared(holder)} <= NO_SETTINGS
    assert len({each.key for _, each in EVERY}) == len(EVERY)


@every
def test_the_option_has_its_help_and_its_default(holder: type[Any], each: Option) -> None:
    option = option_of(each)
    assert option.help == each.full_help
    assert getattr(option, "section", "") == each.group.title
    assert getattr(collected_from(holder), each.name) == each.default


@every
def test_the_command_line_and_the_file_set_it(holder: type[Any], each: Option) -> None:
    text, value = sample(each)
    for line in words(each):
        assert getattr(collected_from(holder, *line), each.name) == value
    assign((each.key,), read_words(option_of(each), [text]))
    made = collected_from(holder)
    assert getattr(made, each.name) == value
    made.check()


# What the option of one command has of its own beside its section and its default, and why.
OF_ITS_OWN: dict[tuple[str, str], set[str]] = {
    ("bench", "max-tokens"): {"low"},  # the speed of decoding needs a token after the first
    ("early-exit tune", "max-tokens"): {"low"},  # fewer tokens say nothing about the speed of a layer
    ("heads eval", "max-tokens"): {"low"},  # a pass that drafts comes after the first token
    ("plan", "kv"): {"choices", "help"},  # auto chooses for the plan; a pair is loaded with one type
    ("plan", "threads"): {"help"},  # of the machine that is described
}
# Other options of that name, each set for its command alone: one prints the template, one is of a training.
OTHERS = {("show", "template"), ("heads train", "seed")}


def test_every_command_takes_a_setting_from_its_declaration() -> None:
    """So that config.toml, the environment, the help and the check are the same everywhere."""
    by_key = {each.key: each for _, each in EVERY}
    differences = {}
    for path, command in commands():
        for key, option in options_of(command).items():
            where = (" ".join(path), key)
            if key not in by_key or where in OTHERS:
                continue
            assert option.declaration is not None, f"{where} is declared by hand"
            assert not option.is_own, where
            found = {
                part.name
                for part in fields(Option)
                if getattr(option.declaration, part.name) != getattr(by_key[key], part.name)
            }
            differences[where] = found - {"group", "default", "default_help"}
    assert {where: found for where, found in differences.items() if found} == OF_ITS_OWN


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A config.toml that sets every field."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(tmp_path_factory.mktemp("home")))
        for _, each in EVERY:
            assign((each.key,), read_words(option_of(each), [sample(each)[0]] if each.kind != "integer" else ["9"]))
        return config_file().read_bytes()


@pytest.mark.parametrize("path", [path for path, _ in commands() if path[:1] not in WITHOUT_FILE], ids=" ".join)
def test_every_command_takes_each_value_of_the_file(path: tuple[str, ...], whole_file: bytes) -> None:
    """A value that one command takes stops no other one: settings at the top of config.toml are for all."""
    command = dict(commands())[path]
    config_file().parent.mkdir(parents=True)
    config_file().write_bytes(whole_file)
    described(path)
    required = ["x" for one in command.params if isinstance(one, click.Argument) and one.required]
    parent = None
    for name in path[:-1]:
        parent = click.Context(click.Group(name), parent or click.Context(click.Group("localspec")))
    parent = parent or click.Context(click.Group("localspec"))
    with command.make_context(path[-1], required, parent=parent) as ctx:
        for option in options_of(command).values():
            if option.declaration is not None:
                assert origin(ctx, option).kind == "config"


@every
def test_it_survives_the_wire(holder: type[Any], each: Option) -> None:
    part = holder(**({"target": "t"} if holder is LoadSettings else {}), **{each.name: sample(each)[1]})
    if holder is LoadSettings:
        assert crossed(Load(part)).settings == part
        return
    request = part if holder is Request else Request(**{holder.__name__.lower(): part})
    assert crossed(Generate(request)).request == request


@pytest.mark.parametrize("each", [each for holder, each in EVERY if holder is not LoadSettings and each.in_chat])
def test_a_chat_sets_it_by_each_of_its_names(each: Option) -> None:
    text, value = sample(each)
    for name in (each.key, each.name, *each.flags, *each.aliases):
        request = changed(Request(), name, text)
        holder = next(part for part in (request.sampling, request.speculation, request) if hasattr(part, each.name))
        assert getattr(holder, each.name) == value
        if not each.is_line:
            assert changed(Request(), name, shown(request, name)) == request


def test_the_form_has_every_setting_of_a_chat() -> None:
    state = engine_of(ScriptedEngine()).state
    form = Form.of(state, described(("chat",)), state.request)
    names = form.names()
    for holder, each in EVERY:
        if holder is not LoadSettings and each.in_form:
            assert each.key in names["The next answers" if each.key in FIRST else each.group.form]
            form.check(each.key, sample(each)[0])
        else:
            assert not any(each.key in group for group in names.values())


@pytest.mark.parametrize("each", [each for _, each in EVERY if each.low > -1e9], ids=lambda each: each.name)
def test_a_number_below_its_range_is_refused_by_name(each: Option) -> None:
    with pytest.raises(UsageError, match=f"^{each.flag} .* is out of range"):
        each.check(each.low - 1)
    if each.high < 1e6:
        assert f"{each.high:g}]" in each.full_help, "a range that helps is in the help"


@dataclass(frozen=True, slots=True)
class Wider(Sampling):
    """The target's distribution with one more setting, as CONTRIBUTING.md shows it."""

    top_h: float = setting(0.5, "--top-h", group=SAMPLING, low=0, high=1, help="Keep this share of the entropy.")


def test_a_new_setting_needs_its_declaration_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found: list[Wider] = []

    @click.command(cls=Command)
    @stacked(declared_options(Wider, SAMPLING))
    def command(**values: Any) -> None:
        found.append(collected(Wider, {**values, "draft_temperature": None}))

    command(["--top-h", "0.75", "--temp", "0.5"], standalone_mode=False)
    assert (found[0].top_h, found[0].temperature) == (0.75, 0.5)
    command(["--help"], standalone_mode=False)
    shown_help = " ".join(capsys.readouterr().out.split())
    assert "--top-h F Keep this share of the entropy. [default: 0.5; from 0 to 1]" in shown_help
    with pytest.raises(UsageError, match=r"--top-h 2 is out of range: it must be at least 0 and at most 1"):
        Wider(top_h=2.0).check()


def test_a_number_that_the_help_tells_is_the_options_default() -> None:
    """The benchmark alone finds two of its numbers later, by its suite."""
    later, n_told = {("bench", "prompts"), ("bench", "max_tokens")}, 0
    for path, command in commands():
        for option in command.params:
            told = re.search(r"\[default: (\d+(\.\d+)?)\]", getattr(option, "help", None) or "")
            if told is not None and (*path, option.name) not in later:
                assert float(option.default) == float(told[1]), (path, option.name)
                n_told += 1
    assert n_told > 30


OWN = """\
show: template
serve: alias api-key api-key-file cors host models port queue ssl-certfile ssl-keyfile
bench: json preset prompts
verify: prompts
heads eval: prompts raw
heads train: device kind minutes output prompts raw seed tokens
drafts make: bits force prompts raw skip tokens
early-exit tune: prompts
"""


def test_options_that_mean_something_else_in_other_commands_are_no_common_settings() -> None:
    def rows(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
        ctx = click.Context(command)
        own = sorted(name for name, option in options_of(command).items() if option.is_own)
        if own:
            yield f"{' '.join(path)}: {' '.join(own)}\n"
        for name in command.list_commands(ctx) if isinstance(command, click.Group) else ():
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from rows(inner, (*path, name))

    assert "".join(rows(cli, ())) == OWN
