"""Settings from config.toml and the environment: who wins, what is refused and where that is said, and completion."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import get_completion_class

from localspec.cli.app import COMMANDS, cli, commands
from localspec.cli.complete import VARIABLE
from localspec.cli.entry import outcome
from localspec.cli.option_sources import ONCE, options_of
from localspec.cli.settings_table import described, read_words
from localspec.conversations.store import Store
from localspec.errors import UsageError
from localspec.settings.config_file import config_file, read_configuration
from localspec.settings.folders import conversations_file
from tests.cli.harness import ROOT, assert_one_line, environment, localspec, run

BUNDLED_HEADS = ("eagle1", "eagle3", "mask-tokens", "medusa")
BUNDLED_NAMES = ["plain,storyteller", *(f"plain,storyteller+{head}" for head in BUNDLED_HEADS)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in os.environ:
        if name.startswith("LOCALSPEC_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    return tmp_path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return the program as a function: exit code, stdout, stderr."""

    def run(*args: str) -> tuple[int, str, str]:
        code = outcome(list(args))
        out, err = capsys.readouterr()
        return code, out, err

    return run


def write(text: str) -> None:
    config_file().write_text(text)


def seen(path: tuple[str, ...], name: str) -> tuple[Any, str]:
    """Return an option's value in force, and where it comes from without the folder."""
    setting = next(each for each in described(path) if each.name == name)
    return setting.value, str(setting.origin).removeprefix(str(config_file().parent) + "/")


def test_a_race_is_short_unless_told() -> None:
    """Its help says so, and settings that are made for all commands hold for it too."""
    assert seen(("race",), "max-tokens") == (128, "default")
    assert seen(("run",), "max-tokens") == (None, "default")
    write("max-tokens = 9\n")
    assert seen(("race",), "max-tokens") == (9, "config.toml:1")
    shown = run("race", "--help").stdout.decode()
    assert "Stop after N tokens.  [default: 128]" in shown


def test_who_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(("run",), "temp") == (0.8, "default")
    write("temp = 0.1\n")
    assert seen(("run",), "temp") == (0.1, "config.toml:1")
    write("temp = 0.1\n[run]\ntemp = 0.2\n")
    assert seen(("run",), "temp") == (0.2, "config.toml:3")
    assert seen(("chat",), "temp") == (0.1, "config.toml:1")
    monkeypatch.setenv("LOCALSPEC_TEMP", "0.3")
    assert seen(("run",), "temp") == (0.3, "LOCALSPEC_TEMP")
    monkeypatch.setenv("LOCALSPEC_RUN_TEMP", "0.4")
    assert seen(("run",), "temp") == (0.4, "LOCALSPEC_RUN_TEMP")
    assert seen((), "temp") == (0.3, "LOCALSPEC_TEMP")
    assert seen((), "run.temp") == (0.4, "LOCALSPEC_RUN_TEMP")


def test_a_variable_that_sets_nothing_is_told() -> None:
    """Each command judges the general ones and its own; those of others, and what is no option, are left alone."""

    def warned(*words: str, **env: str) -> str:
        return run(*words, env={"LOCALSPEC_HOME": os.environ["LOCALSPEC_HOME"], **env}).stderr.decode()

    told = "localspec: warning: LOCALSPEC_TMEP sets nothing, perhaps LOCALSPEC_TEMP was meant\n"
    assert warned("run", "-n", "1", "--no-save", "hi", LOCALSPEC_TMEP="1").count(told) == 1
    assert warned("ps", LOCALSPEC_TMEP="1", LOCALSPEC_TEMP="1") == told
    own = warned("ps", LOCALSPEC_PS_JSN="1", LOCALSPEC_RUN_TMEP="1")
    assert own == "localspec: warning: LOCALSPEC_PS_JSN sets nothing, perhaps LOCALSPEC_PS_JSON was meant\n"
    usual = {f"LOCALSPEC_{name}": "1" for name in ("DEBUG", "NO_HISTORY", "VERIFIER_KEY", "SERVE_PORT", "SEED", "YES")}
    assert warned("ps", **usual) == ""
    assert told not in warned("run", "-q", "-n", "1", "--no-save", "hi", LOCALSPEC_TMEP="1")


def test_the_program_obeys_in_the_same_order() -> None:
    write("seed = 1\n[run]\nseed = 2\n")
    own = {"LOCALSPEC_HOME": os.environ["LOCALSPEC_HOME"]}

    def seed(*args: str, **env: str) -> int:
        done = run("run", "--json", "hi", *args, env={**own, **env})
        return int(json.loads(done.stdout)["seed"])

    assert seed() == 2
    assert seed(LOCALSPEC_SEED="3") == 3
    assert seed("--seed", "4", LOCALSPEC_SEED="3") == 4


@pytest.mark.parametrize(
    ("text", "args", "name"),
    [
        ("draft = 'none'", ["-m", "storyteller+storyteller"], "storyteller"),
        ("draft = 'storyteller'", ["-m", "storyteller+none"], "storyteller+none"),
        ("draft = 'none'", ["-m", "storyteller"], "storyteller+none"),
        ("model = 'storyteller+storyteller'", ["-d", "none"], "storyteller+none"),
    ],
)
def test_a_draft_that_is_typed_wins(text: str, args: list[str], name: str) -> None:
    """Also where one of the two names it together with its target."""
    write(f"{text}\n")
    own = {"LOCALSPEC_HOME": os.environ["LOCALSPEC_HOME"]}
    done = run("run", "--json", "hi", *args, env=own)
    assert json.loads(done.stdout)["pair"]["name"] == name
    if args[0] == "-m":  # where the pair is an argument it is as much a word of the command line
        planned = run("plan", args[1], "--vram", "0", "--ram", "8G", "--json", env=own)
        assert json.loads(planned.stdout)["pair"] == name


def test_a_draft_that_is_typed_twice_is_refused() -> None:
    write("model = 'storyteller+none'\ndraft = 'none'\n")
    own = {"LOCALSPEC_HOME": os.environ["LOCALSPEC_HOME"]}
    twice = ("run", "-m", "storyteller+none", "-d", "none", "hi")
    assert_one_line(run(*twice, env=own), 2, "the draft is given twice")
    both = run("run", "hi", env=own)
    assert_one_line(both, 2, "the draft is given twice", "config.toml:2")


@pytest.mark.parametrize(
    ("key", "toml", "value"),
    [
        ("temp", "0", 0),
        ("top-k", "7", 7),
        ("draft-tokens", "4", "4"),
        ("gpu", '"all"', "all"),
        ("mmap", "false", False),
        ("kv", '"q8_0"', "q8_0"),
        ("stop", '["a b", "c"]', ["a b", "c"]),
        ("stop", '"a b"', ["a b"]),
        ("logit-bias", '["13=-100"]', ["13=-100"]),
        ("model", '"storyteller"', "storyteller"),
    ],
)
def test_values_of_every_type(key: str, toml: str, value: object) -> None:
    write(f"{key} = {toml}\n")
    assert seen(("run",), key) == (value, "config.toml:1")


def test_a_variable_holds_several_values_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_STOP", "a b\nc")
    assert seen(("run",), "stop") == (["a b", "c"], "LOCALSPEC_STOP")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("tmep = 1\n", 1, "there is no option 'tmep', perhaps 'temp' was meant"),
        ("top_k = 1\n", 1, "perhaps 'top-k' was meant"),
        ("temp = 'warm'\n", 1, "temp = 'warm' is not a number"),
        ("temp = true\n", 1, "temp = true is not a number"),
        ("top-k = 0.5\n", 1, "top-k = 0.5 is not an integer"),
        ("mmap = 'no'\n", 1, "mmap = 'no' is not true or false"),
        ("model = ['a']\n", 1, "model = ['a'] is not a text or a number"),
        ("stop = [['a']]\n", 1, "is not a text or a list of texts"),
        ("\n[rnu]\ntemp = 1\n", 3, "there is no command 'rnu' to set anything for, perhaps 'run' was meant"),
        ("[run]\nseeed = 1\n", 2, "localspec run has no option 'seeed', perhaps 'seed' was meant"),
        ("yes = true\n", 1, "'yes' is for one command line and no setting"),
        ("[run]\njson = true\n", 2, "try: --json, or LOCALSPEC_RUN_JSON=1"),
        ("[run.deep]\nseed = 1\n", 2, "there is no command 'run deep'"),
        ("prompts = 3\n", 1, "'bench.prompts' and 'verify.prompts'"),
        ("run = 3\n", 1, "there is no option 'run'"),
        ("temp = 1\n" + ".".join("a" * 10_000) + " = 1\n", 2, "a key has more than 32 parts"),
        ("[" + ".".join(["'a b'"] * 5000) + "]\n", 1, "a key has more than 32 parts"),
        ("template-arg = {" + ".".join("a" * 10_000) + " = 1}\n", 1, "a key has more than 32 parts"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_its_line(
    text: str, line: int, words: str, call: Callable[..., tuple[int, str, str]]
) -> None:
    write(text)
    for command in (("run", "hi"), ("config", "show")):
        code, out, err = call(*command)
        assert (code, out) == (2, "")
        assert f"{config_file()}:{line}: " in err
        assert words in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temp = -1\n", ["--temp -1", "config.toml:1"]),
        ("kv = 'f64'\n", ["'f64'", "config.toml:1"]),
        ("\ntree = 'bush'\n", ["'bush'", "config.toml:2"]),
        ("gpu = 'some'\n", ["--gpu 'some'", "config.toml:1"]),
    ],
)
def test_a_value_out_of_range_is_said_with_its_place(
    text: str, words: list[str], call: Callable[..., tuple[int, str, str]]
) -> None:
    write(text)
    code, _, err = call("run", "hi")
    assert code == 2
    assert [word for word in words if word not in err] == []
    code, _, err = call("config", "show")
    assert code == 2
    assert words[-1] in err


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, call: Callable[..., tuple[int, str, str]]) -> None:
    monkeypatch.setenv("LOCALSPEC_TEMP", "warm")
    code, _, err = call("run", "hi")
    assert code == 2
    assert "it is set in LOCALSPEC_TEMP" in err
    assert err.endswith("try: unset LOCALSPEC_TEMP\n")


RUN, PRESET, SHOW = ("run", "hi"), ("run", "-P", "p", "hi"), ("config", "show", "--origin")


@pytest.mark.parametrize(
    ("text", "env", "words", "cure"),
    [
        ("", {"LOCALSPEC_TEMP": "warm"}, RUN, "unset LOCALSPEC_TEMP"),
        ("", {"LOCALSPEC_TEMP": "abc"}, SHOW, "unset LOCALSPEC_TEMP"),
        ("", {"LOCALSPEC_RUN_TEMP": "-1"}, RUN, "unset LOCALSPEC_RUN_TEMP"),
        ("temp = -1\n", {}, RUN, "localspec config unset temp"),
        ("temp = -1\n", {}, SHOW, "localspec config unset temp"),
        ("temp = 'warm'\n", {}, RUN, "localspec config unset temp"),
        ("[run]\ntemp = -1\n", {}, RUN, "localspec config unset run.temp"),
        ("regex = '('\n", {}, RUN, "localspec config unset regex"),
        ("", {"LOCALSPEC_REGEX": "("}, RUN, "unset LOCALSPEC_REGEX"),
        (
            "",
            {"LOCALSPEC_REGEX": "a", "LOCALSPEC_GRAMMAR": "root ::= x"},
            RUN,
            "leave one of them out, or unset LOCALSPEC_REGEX, or unset LOCALSPEC_GRAMMAR",
        ),
        ("[presets.p]\ntemp = -1\n", {}, PRESET, "localspec config unset presets.p.temp"),
        ("[presets.p]\nregex = '('\n", {}, PRESET, "localspec config unset presets.p.regex"),
        ("model = 'nosuch'\n", {}, RUN, "localspec config unset model"),
    ],
)
def test_a_wrong_value_names_what_takes_it_out_of_its_place(
    text: str,
    env: dict[str, str],
    words: tuple[str, ...],
    cure: str,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[..., tuple[int, str, str]],
) -> None:
    write(text)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    code, _, err = call(*words)
    assert code == (3 if "model" in text else 2), err
    assert err.rstrip().rstrip(".").endswith(cure), err


@pytest.mark.parametrize(
    ("text", "words", "missing"),
    [
        ('model = "nosuch"\n', ("run", "hi"), "there is no pair called 'nosuch' (it is set in "),
        ('model = "./nosuch.gguf"\n', ("run", "hi"), "nosuch.gguf does not exist (it is set in "),
        ('schema = "nosuch.json"\n', ("run", "hi"), "--schema: there is no file nosuch.json (it is set in "),
        (
            '[chat]\nsystem = "@nosuch.txt"\n',
            ("chat", "storyteller"),
            "nosuch.txt: No such file or directory (it is set in ",
        ),
    ],
)
def test_what_is_not_found_is_traced_back(
    text: str, words: tuple[str, ...], missing: str, call: Callable[..., tuple[int, str, str]]
) -> None:
    write(text)
    code, _, err = call(*words)
    assert code == 3
    assert f"{missing}{config_file()}:{text.count(chr(10))})" in err
    assert "localspec config unset" in err
    assert ". Check the path. To take it out: localspec config unset model.\n" in err or "Check" not in err


def test_a_model_that_is_not_found_is_told_when_it_is_set(call: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = call("config", "set", "model", "nosuch")
    assert (code, read_configuration().get(("model",)).value) == (0, "nosuch")
    assert "there is no pair called 'nosuch'" in err


def test_a_broken_file_leaves_the_way_out_open(call: Callable[..., tuple[int, str, str]]) -> None:
    write("temp = \n")
    assert call("run", "hi")[0] == 2
    assert call("config", "path")[:2] == (0, f"{config_file()}\n")
    assert call("run", "--help")[0] == 0
    assert call("--version")[0] == 0
    assert call("completions", "bash")[0] == 0
    code, out, _ = call("doctor")
    assert code == 2
    assert f"BROKEN  settings  {config_file()}:1" in out
    assert call("config", "set", "temp", "1")[0] == 2
    assert config_file().read_text() == "temp = \n"
    write("temp = 'warm'\ntmep = 1\n")
    assert call("config", "set", "temp", "1")[0] == 0, "where it is TOML, set and unset mend it"
    assert call("config", "unset", "tmep")[0] == 0
    assert call("config", "show")[0] == 0


@pytest.mark.parametrize(
    ("words", "toml"),
    [
        (["temp", "0.5"], "temp = 0.5\n"),
        (["frequency-penalty", "-0.5"], "frequency-penalty = -0.5\n"),
        (["mmap", "off"], "mmap = false\n"),
        (["draft-tokens", "4"], "draft-tokens = 4\n"),
        (["stop", "a b", "c"], 'stop = ["a b", "c"]\n'),
        (["run.max-tokens", "20"], "[run]\nmax-tokens = 20\n"),
        (["early-exit.tune.skips", "1"], "[early-exit.tune]\nskips = 1\n"),
        (["bench.prompts", "3"], "[bench]\nprompts = 3\n"),
        (["tree", "static:3,2"], 'tree = "static:3,2"\n'),
    ],
)
def test_set_writes_what_it_reads_back(words: list[str], toml: str, call: Callable[..., tuple[int, str, str]]) -> None:
    assert call("config", "set", *words) == (0, "", "")
    assert config_file().read_text() == toml
    code, out, _ = call("config", "get", "--json", words[0])
    told = json.loads(out)
    assert (code, told["origin"]["kind"]) == (0, "config")
    assert call("config", "unset", words[0])[0] == 0
    assert config_file().read_text().strip() == ""


def test_as_json_a_change_says_what_the_file_holds(call: Callable[..., tuple[int, str, str]]) -> None:
    for words, value in ((("set", "--json", "temp", "0.5"), 0.5), (("unset", "--json", "temp"), None)):
        code, out, _ = call("config", *words)
        assert (code, json.loads(out)) == (0, {"file": str(config_file()), "key": "temp", "value": value})


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["temp", "-1"], 2, "--temp -1"),
        (["temp", "warm"], 2, "--temp 'warm' is not a number"),
        (["temp", "1", "2"], 2, "temp takes one value, 2 were given"),
        (["temp"], 2, "VALUE"),
        (["tmep", "1"], 2, "perhaps 'temp' was meant"),
        ([".".join("a" * 10_000), "1"], 2, "a key has more than 32 parts"),
        (["seed", "-1"], 2, "--seed -1"),
        (["max-tokens", "0"], 2, "--max-tokens 0"),
        (["method", "sufix"], 2, "config set method suffix"),
        (["tree", "static:0"], 2, "static:0"),
        (["length", "long"], 2, "'long'"),
        (["verify", "bloc"], 2, "config set verify block"),
        (["draft-tokens", "some"], 2, "-k 'some'"),
        (["gpu", "some"], 2, "--gpu 'some'"),
        (["rpc", "there"], 2, "HOST:PORT"),
        (["logit-bias", "x"], 2, "ID=BIAS"),
        (["option", "colour"], 2, "KEY=VALUE"),
        (["stop", ""], 2, "--stop"),
        (["yes", "true"], 2, "try: --yes, or LOCALSPEC_YES=1"),
        (["bench.json", "x"], 2, "try: --json FILE|-, or LOCALSPEC_BENCH_JSON=FILE|-"),
    ],
)
def test_set_refuses_and_writes_nothing(
    words: list[str], code: int, said: str, call: Callable[..., tuple[int, str, str]]
) -> None:
    found, out, err = call("config", "set", *words)
    assert (found, out) == (code, "")
    assert said in err
    assert not config_file().exists()


def test_unset_names_the_nearest(call: Callable[..., tuple[int, str, str]]) -> None:
    write("temp = 1\ncolour = 2\n")
    code, _, err = call("config", "unset", "tepm")
    assert code == 3
    assert "localspec config unset temp" in err
    write("[chat]\nfoo = 1\n")
    assert "localspec config unset chat.foo" in call("config", "unset", "foo")[2]
    assert call("config", "show")[2].endswith("localspec config unset chat.foo\n")
    assert call("config", "unset", "chat.foo")[0] == 0
    write("[presets.p]\ntemp = 1\n")
    assert "presets.p" not in call("config", "unset", "temp")[2], "a preset keeps what nobody meant"
    assert "localspec config unset presets.p.temp" in call("config", "unset", "presets.p.tmep")[2]
    write("temp = 1\ncolour = 2\n")
    assert call("config", "unset", "colour")[0] == 0, "what nobody knows can be taken out"
    assert config_file().read_text() == "temp = 1\n"


def test_show_as_json_has_every_setting_with_its_origin(call: Callable[..., tuple[int, str, str]]) -> None:
    write("top-k = 3\n")
    told = json.loads(call("config", "show", "--json")[1])
    settings = {each["name"]: each for each in told["settings"]}
    assert settings["top-k"]["value"] == 3
    assert settings["top-k"]["origin"] == {"kind": "config", "where": f"{config_file()}:1"}
    assert settings["top-p"]["origin"] == {"kind": "default", "where": None}
    assert settings["kv"]["choices"] == ["f32", "f16", "q8_0", "q4_0"]
    assert {"model", "method", "tree", "verify", "stop"} <= settings.keys()


def test_edit_opens_the_editor_and_checks_afterwards(tmp_path: Path) -> None:
    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\nprintf "temp = 1\\ntmep = 2\\n" > "$1"\n')
    script.chmod(0o755)
    env = {"LOCALSPEC_HOME": str(tmp_path), "VISUAL": str(script)}
    assert_one_line(localspec("config", "edit", env=env), 2, f"{config_file()}:2", "'tmep'")
    assert config_file().read_text() == "temp = 1\ntmep = 2\n"
    assert_one_line(localspec("config", "edit", env={**env, "VISUAL": "", "EDITOR": ""}), 11, "no terminal")
    assert_one_line(localspec("config", "edit", env={**env, "VISUAL": "/none/there"}), 2, "/none/there")


def test_no_two_variables_are_the_same() -> None:
    """A variable for one command is never the one of another option for all."""
    general, own = set(), set()
    for path, command in commands():
        for option in options_of(command).values():
            names = option.variables(path)
            own.add(names[0])
            general |= set(names[1:])
    assert len(own) > len(general) > 50
    assert not own & general


def test_an_option_means_the_same_in_every_command() -> None:
    """A key at the top of the file is for all commands, so the kinds must agree, but for those that are their own."""
    kinds: dict[str, set[str]] = {}
    for _, command in commands():
        for key, option in options_of(command).items():
            if not option.is_own:
                kinds.setdefault(key, set()).add(option.kind)
    kinds["gpu"].discard("choice")  # early-exit tune takes no number of layers
    assert {key: found for key, found in kinds.items() if len(found) > 1} == {}


def test_commands_have_the_names_of_the_table() -> None:
    assert {path[0] for path, _ in commands()} == COMMANDS.keys()


def complete(*words: str) -> list[str]:
    """Return what a shell would be told of the last word."""
    found = get_completion_class("bash")
    assert found is not None
    asked = found(cli, {}, "localspec", VARIABLE)
    return [f"{item.type},{item.value}" for item in asked.get_completions(list(words[:-1]), words[-1])]


def test_completion_finds_names() -> None:
    write("temp = \n")  # a broken file is no hindrance
    assert complete("r") == ["plain,run", "plain,rm", "plain,rpc-serve", "plain,race", "plain,rank"]
    assert complete("run", "--method", "s") == ["plain,suffix"]
    assert complete("run", "--tree", "dy") == ["plain,dyspec"]
    assert "plain,traversal" in complete("chat", "--verify", "t")
    assert complete("run", "-m", "storyt") == BUNDLED_NAMES
    assert complete("run", "-m", "./x") == ["file,./x"]
    assert complete("race", "storyt") == BUNDLED_NAMES
    assert complete("config", "set", "top-") == ["plain,top-k", "plain,top-p"]
    assert complete("config", "set", "bench.res") == complete("config", "set", "dry-run") == [], "it is not for files"
    with Store.open(conversations_file()) as store:
        kept = [store.create("storyteller").id for _ in range(2)]
    assert sorted(complete("chat", "--session", "")) == sorted(f"plain,{each}" for each in kept)
    assert complete("logs", "show", kept[0]) == [f"plain,{kept[0]}"]
    assert complete("explain", "seq") == ["plain,sequoia"]


def test_completion_needs_no_engine(tmp_path: Path) -> None:
    code = (
        "import sys; from localspec.cli.entry import outcome; outcome([]);"
        "print(sorted({'llama_cpp', 'textual', 'huggingface_hub'} & set(sys.modules)), file=sys.stderr)"
    )
    env = environment({"_LOCALSPEC_COMPLETE": "bash_complete", "COMP_WORDS": "localspec run -m st", "COMP_CWORD": "3"})
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == BUNDLED_NAMES
    assert done.stderr == b"[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_sound(shell: str, call: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, _ = call("completions", shell)
    assert code == 0
    assert "_LOCALSPEC_COMPLETE" in out
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(out)
        assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0


def test_what_is_said_once_is_no_setting() -> None:
    names = {each.name for each in described(("run",))}
    assert not names & ONCE
    with pytest.raises(UsageError, match="no command 'walk'"):
        described(("walk",))


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("temp abc", "temp 0.8"),
        ("top-p 7", "top-p 0.95"),
        ("run.top-p 7", "run.top-p 0.95"),
        ("length foo", "length auto"),
        ("verifier http://x", "verifier ws://192.168.1.2:8080"),
        ("ctx big", "ctx 4096"),
        ("gpu foo", "gpu auto"),
        ("stats maybe", "stats on"),
        ("theme foo", "theme auto"),
        ("count x", "count 20"),
    ],
)
def test_a_wrong_value_is_told_with_one_that_works(words: str, typed: str) -> None:
    line = assert_one_line(run("config", "set", *words.split()), 2)
    assert line.endswith(f" — try: localspec config set {typed}\n")
    assert run("config", "set", *typed.split()).returncode == 0


def test_every_option_has_an_example_that_it_takes() -> None:
    """Or a placeholder in capitals, such as the metavar."""
    for path, command in commands():
        for key, option in options_of(command).items():
            flag, _, value = option.example.partition(" ")
            assert flag in option.opts, (path, key)
            assert value, (path, option.example)
            assert "|" not in value, (path, option.example)
            if not any(letter.isupper() for letter in value.replace("Q8_0", "")):
                read_words(option, [value])


@pytest.mark.parametrize(("short", "long"), [("k", "draft-tokens"), ("n", "max-tokens"), ("m", "model")])
def test_a_short_flag_is_no_key_and_leads_to_one(short: str, long: str) -> None:
    assert_one_line(run("config", "set", short, "4"), 2, f"there is no option '{short}': -{short} is '{long}'")


def test_a_file_that_is_not_there_is_told_when_it_is_set(tmp_path: Path) -> None:
    """It is kept: the file may come later."""
    done = run("config", "set", "chat.system", f"@{tmp_path}/later.txt")
    assert done.returncode == 0
    assert b"warning: cannot read --system @" in done.stderr
    (tmp_path / "later.txt").write_text("Be brief.")
    assert run("config", "set", "chat.system", f"@{tmp_path}/later.txt").stderr == b""
