"""Presets: kept, listed, used and removed; who wins; what other programs' users type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.settings.config_file import config_file, read_configuration
from localspec.settings.presets import presets
from tests.cli.harness import assert_one_line, run
from tests.cli.talking import Talk


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def save(*words: str, name: str = "coder", cwd: Path | None = None) -> None:
    done = run("config", "preset", "save", name, *words, cwd=cwd)
    assert done.returncode == 0, done.stderr


def params(*words: str, env: dict[str, str] | None = None) -> dict[str, object]:
    here = {"LOCALSPEC_HOME": str(config_file().parents[1]), **(env or {})}
    done = run("run", "--json", "--no-save", *words, "hi", env=here)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)["params"]
    return found


def home_env() -> dict[str, str]:
    return {"LOCALSPEC_HOME": str(config_file().parents[1])}


def test_a_typed_option_wins_over_the_preset_and_that_over_all_else() -> None:
    save("--temp", "0.3", "--top-k", "7", "-n", "5", "--stop", "END", "--stop", "x")
    config_file().write_text("temp = 0.9\nmin-p = 0.2\n" + config_file().read_text())
    found = params("-P", "coder", "--top-k", "9", env={"LOCALSPEC_TEMP": "0.8"})
    assert (found["temperature"], found["top_k"], found["max_tokens"], found["min_p"]) == (0.3, 9, 5, 0.2)
    assert found["stop"] == ["END", "x"]
    assert params()["temperature"] == 0.9
    assert params(env={"LOCALSPEC_PRESET": "coder"})["temperature"] == 0.3


def test_a_preset_with_a_model_does_without_the_draft_of_another() -> None:
    save("-m", "storyteller")
    config_file().write_text('draft = "missing.gguf"\n' + config_file().read_text())
    assert params("-P", "coder")


def test_paths_are_kept_whole(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    save("-m", "m.gguf", "-s", "@role.txt", cwd=tmp_path)
    entries = presets(read_configuration())["coder"]
    assert entries["model"].value == str(tmp_path / "m.gguf")
    assert entries["system"].value == f"@{tmp_path}/role.txt"


def test_listed_shown_and_removed_with_the_way_back() -> None:
    save("--temp", "0.3", "-s", "Be brief.")
    assert run("config", "preset", "list").stdout.decode() == "coder  --system 'Be brief.' --temp 0.3\n"
    assert b"temp    line 3  0.3" in run("config", "preset", "show", "coder").stdout
    removed = run("config", "preset", "rm", "coder").stdout.decode()
    assert "localspec config preset save coder --system 'Be brief.' --temp 0.3" in removed
    assert presets() == {}


def test_saving_says_what_was_saved_and_what_is_missing(tmp_path: Path) -> None:
    done = run("config", "preset", "save", "a", "-m", "storyteller", "--temp", "0.3")
    assert done.stdout.decode() == "saved a: --model storyteller --temp 0.3\n"
    assert done.stderr == b""
    done = run("config", "preset", "save", "b", "-m", f"{tmp_path}/gone.gguf")
    assert (done.returncode, done.stdout.decode()) == (0, f"saved b: --model {tmp_path}/gone.gguf\n")
    assert f"warning: {tmp_path}/gone.gguf does not exist" in done.stderr.decode()
    done = run("config", "preset", "save", "c", "-m", "hf:org/repo:Q4_K_M", "--json")
    assert json.loads(done.stdout)["settings"] == {"model": "hf:org/repo:Q4_K_M"}
    assert "is not on this machine — try: localspec pull hf:org/repo:Q4_K_M" in done.stderr.decode()


@pytest.mark.parametrize("words", [(), ("list",)])
def test_no_presets_are_said(words: tuple[str, ...]) -> None:
    told = "no presets yet: localspec config preset save NAME -m PAIR --temp 0.2\n"
    assert run("config", "preset", *words).stdout.decode() == told


def test_origin_names_the_line_of_the_preset() -> None:
    save("--temp", "0.3")
    shown = run("config", "show", "--origin", env={"LOCALSPEC_PRESET": "coder", **home_env()}).stdout.decode()
    (line,) = [each for each in shown.splitlines() if each.startswith("  temp ")]
    assert line.split()[1:] == ["0.3", f"{config_file()}:2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "-P", "codr", "hi"), "no preset 'codr'. Did you mean 'coder'?"),
        (("config", "preset", "save", "coder", "--temp", "1"), "--replace"),
        (("config", "preset", "save", "a b", "--temp", "1"), "is no name for a preset"),
        (("config", "preset", "save", "other"), "at least one setting"),
        (("config", "set", "presets.coder.tmp", "1"), "perhaps 'temp'"),
    ],
)
def test_what_cannot_be_meant_is_told(words: tuple[str, ...], said: str) -> None:
    save("--temp", "0.3")
    before = config_file().read_text()
    done = run(*words, env=home_env())
    assert done.returncode in (2, 3)
    assert_one_line(done, done.returncode, said)
    assert config_file().read_text() == before


@pytest.mark.parametrize("words", [("run", "hi"), ("run", "-P", "paper", "hi")])
def test_a_preset_of_bench_is_told_apart(words: tuple[str, ...]) -> None:
    """At the top of config.toml it was one of bench once."""
    if "-P" not in words:
        config_file().parent.mkdir(parents=True, exist_ok=True)
        config_file().write_text('preset = "paper"\n')
    line = assert_one_line(run(*words), 3, "there is no preset 'paper': one of bench has that name")
    assert "localspec config set bench.preset paper" in line


def test_a_chat_takes_a_preset_and_changes_nothing_if_one_setting_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    save("--temp", "0.3", "-k", "2", "-s", "Be brief.", "--stop", "END", "--template", "chatml")
    save("--temp", "0.1", "--ctx", "512", name="other")
    talk = Talk(capsys)
    shown = talk.say("/preset", "/preset coder")
    state = talk.chat.state
    assert "coder" in shown
    assert "other" in shown
    assert (state.request.sampling.temperature, state.request.speculation.k, state.request.stop) == (0.3, 2, ("END",))
    assert state.messages.system == "Be brief."
    assert "im_start" in (state.request.template or "")
    config_file().write_text("[presets.coder]\ntemp = 0.9\ntop-p = 7\n")
    talk.say("/preset coder")
    assert state.request.sampling.temperature == 0.3
    talk.say("/preset codr")
    assert "coder" in talk.errors


@pytest.mark.parametrize("words", [("config", "set", "system"), ("config", "preset", "save", "coder", "-s")])
def test_bytes_that_are_no_utf8_are_refused_and_nothing_is_written(words: tuple[str, ...]) -> None:
    assert_one_line(run(*words, "\udcff"), 2, "is not a text of UTF-8")
    assert not config_file().exists()


def test_setting_a_preset_that_is_not_there_is_told() -> None:
    """It may come later; those of bench are others."""
    save("--temp", "0.3")
    done = run("config", "set", "preset", "codr")
    assert (done.returncode, done.stderr) == (
        0,
        b"localspec: warning: there is no preset 'codr'. Did you mean 'coder'?\n",
    )
    assert run("config", "set", "run.preset", "coder").stderr == b""
    assert run("config", "set", "bench.preset", "paper").stderr == b""


def test_a_new_preset_is_told_with_the_nearest() -> None:
    """A misspelt name makes one, too."""
    save("--temp", "0.1")
    told = run("config", "set", "presets.coder.temp", "0.2").stderr.decode()
    assert "new preset" not in told
    told = run("config", "set", "presets.codr.temp", "0.2").stderr.decode()
    assert "'codr' is a new preset; did you mean 'coder'?" in told
    assert "localspec config preset rm codr" in told
    assert "'x' is a new preset (" in run("config", "set", "presets.x.temp", "0.2").stderr.decode()
    done = run("config", "set", "presets.coder.foo", "1")
    assert_one_line(done, 2, "a preset has no setting 'foo'", "try: localspec config preset save --help")
    listed = run("config", "preset", "save", "--help").stdout.decode()
    assert "--temp" in listed
    assert "--draft" in listed


def test_a_key_that_a_command_lacks_is_told_with_the_help_of_that_command() -> None:
    assert_one_line(run("config", "set", "run.tmp", "1"), 2, "'temp' was meant — try: localspec run --help\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--temp", "inf"), ("--temperature", "-1"), ("--top-p", "1.5"), ("-n", "0"), ("--ctx", "0")),
        *(("--seed", "-1"), ("--logit-bias", "1=1e9"), ("--gpu", "some")),
        *(("--template-arg", "x"), ("-k", "some"), ("--stop", "")),
    ],
)
def test_a_preset_takes_what_config_set_takes(option: str, value: str) -> None:
    done = run("config", "preset", "save", "coder", option, value)
    assert_one_line(done, 2, {"-n": "--max-tokens", "--temperature": "--temp"}.get(option, option))
    key = {"-n": "max-tokens", "-k": "draft-tokens", "--temperature": "temp"}.get(option, option.lstrip("-"))
    assert_one_line(run("config", "set", f"presets.coder.{key}", value), 2)
    assert not presets(read_configuration())
