"""The runner of scripts/bench: turns, intervals, a file that is gone on with, and what an error leaves."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import measure  # noqa: F401  # registers the cases
import pytest
from measuring.runner import CASES, Case, Contender, Contenders, Figures, Options, main, parsed


class Steps:
    """A case of two contenders: the slow one takes twice as long, and each round twice as long as the one before."""

    def __init__(self) -> None:
        self.turns: list[tuple[int, str]] = []
        self.fails_in = 99
        self.is_over = False

    def begin(self, _: Options) -> Iterator[Contenders]:
        try:
            yield {
                "slow": Contender(lambda n: self._turn(n, "slow"), ("quick",)),
                "quick": Contender(lambda n: self._turn(n, "quick")),
            }
        finally:
            self.is_over = True

    def _turn(self, n: int, name: str) -> Figures:
        if n == self.fails_in:
            raise OSError("the server breaks off")
        self.turns.append((n, name))
        figures = {"s": 2.0**n * (2 if name == "slow" else 1)}
        return figures | ({"share": 0.5} if name == "slow" else {})


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()

    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--size", type=int, default=1)

    monkeypatch.setitem(CASES, "steps", Case(steps.begin, add_options, rounds=3, warm_up=1))
    return steps


def test_a_table_of_medians_and_ratios(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    """The warm-up is no round of the table; a figure that a contender lacks is an empty cell."""
    assert main(["steps"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "|  | s | share | ratio | rounds |",
        "|---|---|---|---|---|",
        "| slow | 8.00 | 0.50 | 2.00 of quick | 3 |",
        "| quick | 4.00 |  |  | 3 |",
        "",
    ]
    assert sorted(steps.turns) == [(n, name) for n in range(4) for name in ("quick", "slow")]
    assert steps.is_over


def test_orders_are_drawn_and_the_same_in_every_run(steps: Steps) -> None:
    """Fixed turns would give each contender the same neighbour every time."""
    main(["steps", "--rounds", "20"])
    first = steps.turns[:]
    steps.turns.clear()
    main(["steps", "--rounds", "20"])
    assert steps.turns == first
    assert {first[2 * n][1] for n in range(20)} == {"quick", "slow"}


def test_rounds_of_one_text_are_compared_alone_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A near tie that two programs round apart makes two texts, of which one is easier to draft."""

    def begin(_: Options) -> Iterator[Contenders]:
        yield {
            "ours": Contender(lambda n: {"tok/s": 6.0 if n else 2.0, "text": "a king"}, ("theirs",)),
            "theirs": Contender(lambda n: {"tok/s": 2.0, "text": "a queen" if n else "a king"}),
        }

    monkeypatch.setitem(CASES, "texts", Case(begin, lambda _: None, rounds=3, warm_up=0))
    assert main(["texts"]) == 0
    assert "| ours | 6.00 | 3.00 of theirs (1.00 of 1 with one text) | 3 |" in capsys.readouterr().out


def test_six_rounds_have_an_interval(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    main(["steps", "--rounds", "6"])
    assert "| quick | 12.0 [2.0, 64.0] |" in capsys.readouterr().out


def test_a_file_is_gone_on_with(steps: Steps, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error leaves the rounds before it, in the table and in the file; the same command measures what is left."""
    file = tmp_path / "steps.json"
    steps.fails_in = 2
    assert main(["steps", "--json", str(file)]) == 1
    output = capsys.readouterr()
    assert "| quick | 2.00 |  |  | 1 |" in output.out
    assert output.err == "scripts/bench: the server breaks off\n"
    assert steps.is_over
    assert json.loads(file.read_text())["rounds"] == [{"slow": {"s": 4.0, "share": 0.5}, "quick": {"s": 2.0}}]
    steps.fails_in = 99
    steps.turns.clear()
    assert main(["steps", "--json", str(file)]) == 0
    assert {n for n, _ in steps.turns} == {0, 2, 3}, "the warm-up and the rounds that were left"
    assert "| quick | 4.00 |  |  | 3 |" in capsys.readouterr().out


def test_a_file_of_another_command_is_refused(steps: Steps, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "steps.json"
    main(["steps", "--json", str(file), "--rounds", "1"])
    steps.turns.clear()
    capsys.readouterr()
    assert main(["steps", "--json", str(file), "--size", "2"]) == 1
    assert capsys.readouterr().err == (
        f"scripts/bench: {file} holds another measurement: name another file, or delete it\n"
    )
    assert not steps.turns


def test_no_round_begins_that_would_end_too_late(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["steps", "--seconds", "0"]) == 1
    assert {n for n, _ in steps.turns} <= {0}
    assert capsys.readouterr() == ("", "scripts/bench: no round was over within 0 s: --seconds SECONDS gives it more\n")


@pytest.mark.parametrize(
    "words", [["steps", "--rounds", "0"], ["lanes", "-m", "x", "--clients", "1,0"], ["nothing"], []]
)
def test_wrong_words_are_refused(steps: Steps, words: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parsed(words)
    assert refused.value.code == 2


def test_every_case_has_a_help() -> None:
    cases = {"host", "beside", "plain", "ui", "first_token", "lanes", "memory", "matrix", "replay", "predictions"}
    assert cases <= set(CASES)
    for case in CASES.values():
        assert case.begin.__doc__
