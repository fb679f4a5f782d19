"""`localspec demo`: what guesses gain here, in one true sentence."""

import json
from pathlib import Path

import pytest

from localspec.bench.answers import Answer, Same
from localspec.bench.rounds import Race, Round
from localspec.cli import demo
from localspec.engine.events import Finished, Started
from localspec.heads.deeper import write_deeper
from localspec.models.gguf.header import read_header
from localspec.settings.request import Request
from tests.cli.harness import PAIR, needs_pair, run, run_engine
from tests.ui.test_stats import a_pass

ANSWER, NONE = "this answer of 40 tokens", "Guesses gained nothing here: with them it was"
SAME = "the text is the same, token for token"
READING = 5.0  # seconds before the first token, which count on neither side
FORK = "the texts part at a tie, where rounding decides"


def answered(seconds: float) -> Answer:
    answer = Answer(Request(), tokens=[1] * 40)
    answer.stats.observe(Finished("stop", "", 1e3 * (seconds + READING), 1e3 * READING, 0))
    return answer


@pytest.mark.parametrize(
    ("plain", "guessed", "is_equal", "said"),
    [
        (8.4, 8.0, True, f"With guesses {ANSWER} was written 1.1 times as fast, and {SAME}."),
        (8.0, 4.0, False, f"With guesses {ANSWER} was written 2.0 times as fast, and {FORK}."),
        (8.3, 8.0, True, f"{NONE} as fast, 1.04 times the speed without; and {SAME}."),
        (7.7, 8.0, True, f"{NONE} as fast, 0.96 times the speed without; and {SAME}."),
        (4.0, 8.0, True, f"{NONE} slower, 0.50 times the speed without; and {SAME}."),
    ],
)  # fmt: skip
def test_the_sentence_has_the_measured_ratio(plain: float, guessed: float, is_equal: bool, said: str) -> None:
    one = Round(answered(plain), answered(guessed), Same(is_equal, 40))
    assert demo._sentence(Race((one,))) == said


def test_where_guesses_gain_nothing_it_says_what_a_pass_was_worth() -> None:
    plain, guessed = answered(8.0), answered(8.0)
    for index in range(11):
        plain.stats.observe(a_pass(index, 0, 0))
        guessed.stats.observe(a_pass(index, 3, 1))
    why = demo._why(guessed.stats, plain.stats)
    assert why == "A pass wrote 2.0 tokens, and took as long as 1.0 passes without guesses."
    one = Round(plain, guessed, Same(True, 40))
    assert demo._sentence(Race((one,))) == f"{NONE} as fast, 1.00 times the speed without; and {SAME}. {why}"
    nothing = answered(8.0)
    nothing.stats.observe(Started("plain", "chain", "fixed", 0, "block", 1, False, 3))
    assert demo._why(nothing.stats, plain.stats) == "This answer was decoded plainly."


@needs_pair
def test_without_a_model_the_bundled_one_tells_a_story_at_the_pace_of_a_larger_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Added layers change no token: the story is that of the model as it is."""
    env = {"HOME": str(tmp_path), "HF_HOME": str(tmp_path), "LOCALSPEC_HOME": str(tmp_path)}
    monkeypatch.setattr(demo, "MORE", 4)
    done = run_engine("demo", "--json", env=env, cwd=tmp_path)
    made = json.loads(done.stdout)
    assert made["times"] == pytest.approx(made["plain_s"] / made["guessed_s"])
    assert made["race"]["output"]["is_equal"]
    story = ("run", "storyteller", "--raw", "--method", "plain", "-n", "160", "--temp", "0.7", "--seed", "8")
    assert run_engine(*story, "Once upon a time", env=env).stdout.decode() == made["race"]["plain_text"] + "\n"
    assert not list(tmp_path.glob("localspec-demo-*"))
    shown = run_engine("demo", env=env, cwd=tmp_path)
    lines = shown.stdout.decode().splitlines()
    assert [line[:15].strip() for line in lines[:2]] == ["without guesses", "with guesses"]
    chance = "One answer is one sample; texts that repeat little gain less: localspec plan MODEL --measure tries yours."
    assert lines[-2] == chance
    assert lines[-1] == "A real model: localspec pairs list, then localspec pull NAME"
    about, *steps = shown.stderr.decode().splitlines()
    assert "(4 layers that change nothing are added)" in about
    assert steps == ["loading", "warming up", "writing without guesses", "writing with guesses"]
    assert not done.stderr, "a program reads the object alone"
    assert not run_engine("demo", "-q", env=env, cwd=tmp_path).stderr


@needs_pair
def test_a_deeper_model_keeps_all_but_its_layers(tmp_path: Path) -> None:
    write_deeper(tmp_path / "deep.gguf", PAIR / "target-q8_0.gguf", 3)
    small, deep = read_header(PAIR / "target-q8_0.gguf"), read_header(tmp_path / "deep.gguf")
    assert {key for key, value in small.metadata.items() if deep.metadata[key] != value} == {"llama.block_count"}
    assert deep.metadata["llama.block_count"] == 11
    own = [tensor.name for tensor in small.tensors]
    assert [one.name for one in deep.tensors[: len(own)]] == own
    assert len(deep.tensors) == len(own) + 3 * sum(name.startswith("blk.0.") for name in own)


@needs_pair
def test_what_to_type_then_names_the_model_as_it_was_typed(tmp_path: Path) -> None:
    path = tmp_path / "my model.gguf"
    path.symlink_to(PAIR / "target-q8_0.gguf")
    with demo._chosen(str(path)) as shown:
        assert shown.next == f"Your own: localspec run -m '{path}' -f FILE \"What to change\""
    done = run_engine("demo", str(path), env={"LOCALSPEC_HOME": str(tmp_path)})
    assert [line for line in done.stderr.decode().splitlines() if "warning" not in line] == [
        "my model.gguf edits a file of 24 lines, first plainly, then with guesses: copies of the file.",
        "loading",
        demo.MEASURING,
        "warming up",
        "writing without guesses",
        "writing with guesses",
    ]


def test_a_model_that_is_not_here_is_refused() -> None:
    done = run("demo", "nowhere.gguf")
    assert done.returncode == 3
    assert done.stderr.decode().startswith("localspec: nowhere.gguf does not exist")
