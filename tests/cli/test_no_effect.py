"""What has no effect is told in one line: settings beside others, and a draft that no method will use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.settings import folders
from tests.cli.harness import PAIR, REAL, localspec, needs_pair, run

TARGET, DRAFT = PAIR / "target-q8_0.gguf", PAIR / "draft-q8_0.gguf"
PAIRED = ("-m", "storyteller")


def warned(*words: str) -> dict[str, str]:
    done = run("run", "--json", "--no-save", *words, "hi")
    assert done.returncode == 0, done.stderr
    return {each["message"]: each["code"] for each in json.loads(done.stdout)["warnings"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--temp 0 --xtc-probability 1", "--xtc-probability has no effect: --temp 0 takes the likeliest token"),
        ("--temp 0 --top-k 5", "--top-k has no effect: --temp 0 takes the likeliest token"),
        ("--dry-base 2", "--dry-base has no effect: DRY is off without --dry-multiplier"),
        ("--repeat-last-n -1", "--penalty-last-n has no effect: there is no penalty"),
        ("--xtc-threshold 0.2", "--xtc-threshold has no effect: XTC is off without --xtc-probability"),
        ("--xtc-probability 1 --xtc-threshold 0.6",
         "--xtc-probability has no effect: --xtc-threshold above 0.5 switches XTC off"),
    ],
)  # fmt: skip
def test_a_setting_without_effect_gets_one_line(words: str, said: str) -> None:
    assert said in warned(*words.split())


CHAIN = "--verify has no effect: on a chain it is --verify block, the usual rule; --tree eagle2 makes trees"
GREEDY = "--verify has no effect: with --temp 0 every exact rule keeps the same tokens of a chain"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--verify traversal", CHAIN),
        ("--verify token --temp 0", GREEDY),
        ("--method draft-model --verify traversal", CHAIN),
        ("--method suffix --draft-temp 0.5", "--draft-temp has no effect: no draft model drafts"),
        ("-d none --draft-temp 0.5", "--draft-temp has no effect: no draft model drafts"),
        ("-k 0 --length confidence:0.5", "--length has no effect: nothing is drafted"),
        ("--method plain --verify block", "--verify has no effect: nothing is drafted"),
        ("-d none --length confidence:0.5", "--length has no effect: nothing is drafted"),
        ("--approximate", "--approximate has no effect: --verify block keeps the distribution"),
    ],
)
def test_an_axis_without_effect_gets_one_line(words: str, said: str) -> None:
    assert [text for text, code in warned(*PAIRED, *words.split()).items() if code == "no-effect"] == [said]


@pytest.mark.parametrize(
    "words",
    [
        "--verify traversal --tree eagle2 --method draft-model",
        "--verify traversal --seed 3 --method draft-model",
        "--verify token",
        "--verify token --temp 0 --draft-temp 0.5",
        "--draft-temp 0.5",
        "--approximate --verify typical",
        "--length confidence:0.5",
    ],
)
def test_an_axis_with_an_effect_gets_none(words: str) -> None:
    assert "no-effect" not in warned(*PAIRED, *words.split()).values()


def test_keeping_a_raw_prompt_needs_one() -> None:
    line = "--cache has no effect: it is for --raw, and a conversation's prompt is kept anyway"
    assert line.encode() in run("run", "--no-save", "--cache", "hi").stderr
    assert warned("--cache")[line] == "no-effect"
    assert b"no effect" not in run("run", "--no-save", "--cache", "--raw", "hi").stderr


@pytest.mark.parametrize("words", ["--temp 0", "--top-k 5", "--repeat-penalty 1.1 --repeat-last-n -1"])
def test_a_setting_with_an_effect_gets_none(words: str) -> None:
    assert "no-effect" not in warned(*words.split()).values()


@pytest.mark.parametrize("words", ["--method plain", "--method suffix", "-k 0"])
def test_a_draft_that_nothing_uses_is_not_loaded(words: str) -> None:
    (said,) = [text for text, code in warned("-m", f"{TARGET}+{DRAFT}", *words.split()).items() if code == "draft"]
    assert said == f"the draft is not loaded: {words} uses none"
    assert "draft" in warned("-m", str(TARGET), "-d", str(DRAFT), *words.split()).values()


@pytest.mark.parametrize("words", ["", "--method draft-model", "--method plain -d none"])
def test_a_draft_that_may_be_used_is_loaded(words: str) -> None:
    pair = f"{TARGET}" if "none" in words else f"{TARGET}+{DRAFT}"
    assert "draft" not in warned("-m", pair, *words.split()).values()


def test_a_file_that_only_chats_would_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1")
    done = run("run", "--json", "--no-save", f"What is in @{file}, mail me@home.de or @nobody?")
    (told,) = [each["message"] for each in json.loads(done.stdout)["warnings"]]
    assert told == f"@{file} is not read here: -f {file} puts it before the prompt"


def test_a_pattern_in_a_hint_is_quoted_for_the_shell() -> None:
    done = run("run", "--json", "--no-save", "What do these say? @tests/cli/*_effect.py")
    told = [each["message"] for each in json.loads(done.stdout)["warnings"]]
    assert "@tests/cli/*_effect.py is not read here: -f 'tests/cli/*_effect.py' puts it before the prompt" in told


def test_files_that_the_shell_put_among_the_words_are_named(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text("x = 1")

    def told(*words: str) -> list[str]:
        done = run("run", "--json", "--no-save", *words, cwd=tmp_path)
        return [each["message"] for each in json.loads(done.stdout)["warnings"]]

    advice = "is a file whose name is sent as text: -f b.txt, or -f '*.txt' in quotes"
    assert told("-f", "a.txt", "b.txt", "hi") == [f"b.txt {advice}"]
    assert told("explain", "b.txt") == [f"b.txt {advice}"]
    assert told("-f", "a.txt", "b.txt", "c.txt", "hi")[0].startswith("b.txt and 1 more are files")
    assert told("-f", "a.txt", "-f", "b.txt", "what is in b.txt?") == []


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./answers"])
def test_a_corpus_that_is_not_there_is_named(name: str) -> None:
    done = run("run", "--no-save", "--corpus", name, "hi")
    assert f"--corpus: there is no file or folder {Path(name).absolute()}".encode() in done.stderr
    assert done.returncode == 3


@needs_pair
def test_earlier_answers_are_copied_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    said = ("run", "-m", str(TARGET), "-d", "none", "--temp", "0", "-n", "60", "--json", "--method", "copy")

    def answered(*words: str) -> tuple[str, int, list[str]]:
        found = json.loads(localspec(*said, *words, "Once upon a time").stdout)
        return found["text"], found["spec"]["passes"], [each["message"] for each in found["warnings"]]

    hidden = answered("--no-save", "--corpus", "answers")
    assert hidden[2] == [], "there is no earlier answer, and that is no news"
    text, n_plain, _ = answered()
    for _ in range(20):  # the index is built beside the answer, and kept
        copied, n_passes, warnings = answered("--no-save", "--corpus", "answers")
        assert (copied, warnings) == (text, [])
        if n_passes < n_plain / 2:
            return
    pytest.fail("no earlier answer was copied from")


@needs_pair
def test_a_prediction_is_read_from_its_file_and_copied_from(tmp_path: Path) -> None:
    def answered(*words: str) -> dict[str, Any]:
        settings = ("--temp", "0", "-n", "24", "--no-save", "--json")
        done = localspec("run", "-m", str(TARGET), "-d", "none", *settings, *words)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    text = answered("--method", "plain", "hi")["text"]
    (tmp_path / "answer.txt").write_text(text)
    found = answered("--method", "copy", "--prediction", f"@{tmp_path}/answer.txt", "hi")
    assert found["text"] == text
    assert found["spec"]["passes"] < answered("--method", "copy", "hi")["spec"]["passes"]


def test_a_chat_tells_the_same() -> None:
    """Options of its own with the first answer, and a draft that nothing uses."""
    pair = ("-m", f"{TARGET}+{DRAFT}")
    done = run(
        "chat", "--plain", "--no-save", *pair, "--method", "suffix", "--temp", "0", "--top-k", "5", stdin=b"hi\n"
    )
    assert done.returncode == 0, done.stderr
    told = done.stderr.decode()
    assert "the draft is not loaded: --method suffix uses none" in told
    assert "--top-k has no effect: --temp 0 takes the likeliest token" in told


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_method_that_needs_a_draft_takes_the_one_that_lies_beside_the_target(command: str, tmp_path: Path) -> None:
    """As the picker does, and `-d auto`; where none fits, one line says what is missing."""
    (tmp_path / "target.gguf").write_bytes(TARGET.read_bytes())
    asked = (command, "-m", str(tmp_path / "target.gguf"), "--method", "draft-model", "--no-save")
    words = ("hi",) if command == "run" else ("--plain",)
    assert "--draft FILE.gguf" in run(*asked, *words).stderr.decode()
    (tmp_path / "draft.gguf").write_bytes(DRAFT.read_bytes())
    done = run(*asked, *words)
    assert done.returncode == 0, done.stderr
    assert run(*asked, "-d", "none", *words).returncode == 2


def test_no_home_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_name: str) -> None:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_config_path", homeless)
    monkeypatch.setattr(folders.os, "environ", {"PATH": ""})
    with pytest.raises(folders.ResourceError, match="no home folder"):
        folders.config_folder()


@needs_pair
def test_a_warning_beside_the_text_is_told_below_it(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    told = ("run", "--no-save", "-m", f"{TARGET}", "-n", "5", "--corpus", str(tmp_path / "empty.txt"), "Once")
    done = localspec(*told, program=["sh", "-c", 'exec "$@" 2>&1', "sh", *REAL])
    text, _, below = done.stdout.decode().partition("\n")
    assert text
    assert below == "localspec: warning: the corpus has no text\n"
