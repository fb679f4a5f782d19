"""What `localspec verify` comes to where a check cannot run: the others are told, and the exit code is theirs first."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.bench import losslessness
from localspec.bench.answers import Same
from localspec.bench.losslessness import Check, Verification
from localspec.bench.suites import Prompt
from localspec.cli.entry import outcome
from localspec.errors import PromptTooLongError, UsageError, WorkerDiedError
from localspec.settings.request import Request
from tests.cli.harness import needs_pair

PASSED = Check("coupled", True, "1 of 1", (), {})
FAILED = Check("greedy", False, "0 of 1", (), {})
NOT_RUN = Check("distribution", False, "no room", (), {}, UsageError("no room", hint="--ctx 2048"))


@needs_pair
@pytest.mark.parametrize(
    ("found", "code"),
    [((FAILED, PASSED, NOT_RUN), 10), ((PASSED, PASSED, NOT_RUN), 2), ((PASSED, PASSED, PASSED), 0)],
)
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_check_that_cannot_run_hides_no_other(
    found: tuple[Check, ...],
    code: int,
    flags: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("localspec.cli.verify._run", lambda *_: iter(found))
    assert outcome(["verify", "storyteller", *flags]) == code
    written = capsys.readouterr()
    assert ("no room — try: --ctx 2048" in written.err) == (code == 2)
    if flags:
        made = json.loads(written.out)  # one object, whatever came of it
        assert [one["ran"] for one in made["checks"]] == [one.obstacle is None for one in found]
        assert made["passed"] == (code == 0)
        names = {"distribution": "law"}  # in JSON it has the name that earlier versions gave it
        assert [one["check"] for one in made["checks"]] == [names.get(one.name, one.name) for one in found]
    else:
        assert ("NOT lossless" in written.out, "lossless here" in written.out) == (code == 10, code == 0)


@needs_pair
@pytest.mark.parametrize("flags", [(), ("--json",)])
@pytest.mark.parametrize(("before", "code"), [(PASSED, 9), (FAILED, 10)])
def test_what_was_checked_before_the_engine_died_is_told(
    before: Check,
    code: int,
    flags: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def died(*_: Any) -> Iterator[Check]:
        yield before
        raise WorkerDiedError("the engine died")

    monkeypatch.setattr("localspec.cli.verify._run", died)
    assert outcome(["verify", "storyteller", *flags]) == code
    written = capsys.readouterr()
    assert "the engine died" in written.err
    if flags:
        made = json.loads(written.out)  # one object
        assert ([one["check"] for one in made["checks"]], made["is_complete"]) == ([before.name], False)
        assert not made["passed"]
    else:
        assert written.out.startswith("ok   coupled" if before is PASSED else "FAIL greedy")
        assert "lossless here" not in written.out
        assert ("NOT lossless" in written.out) == (before is FAILED)


@pytest.mark.parametrize("too_long", [("0",), ("0", "1")])
def test_a_prompt_that_does_not_fit_is_left_out(too_long: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both texts none, one, or all: the last one's error is the check's own."""
    prompts = (Prompt("0", "0"), Prompt("1", "1"))

    def ask(_: Any, request: Request) -> Any:
        if request.prompt in too_long:
            raise PromptTooLongError(f"prompt {request.prompt} is too long")
        return SimpleNamespace(stats=SimpleNamespace(drafted=2, accepted=1), tokens=(1,))

    monkeypatch.setattr(losslessness, "ask", ask)
    monkeypatch.setattr(losslessness, "compare_answers", lambda *_: Same(True, 1))
    nobody: Any = None
    made = Verification(nobody, Request(), prompts, draws=100, is_stopped=lambda: False, on_progress=lambda _: None)
    if len(too_long) == 2:
        with pytest.raises(PromptTooLongError):
            made.greedy()
        return
    found = made.greedy()
    assert found.is_passed
    assert found.summary.startswith("1 of 1 texts")
    assert found.notes == ("prompt 0 was left out: prompt 0 is too long",)
    assert found.to_wire()["left_out"] == list(found.notes)
    assert made.coupled().notes == ()


@pytest.mark.parametrize("fork_at", [None, 0.0, 0.8])
def test_with_reproducible_no_fork_is_accepted(fork_at: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_: Any, request: Request) -> Any:
        is_forked = request.speculation.method == "suffix" and request.sampling.temperature == fork_at
        drafted = 0 if request.speculation.method == "plain" else 2
        return SimpleNamespace(stats=SimpleNamespace(drafted=drafted, accepted=1), tokens=(2,) if is_forked else (1,))

    def compare(_: Any, plain: Any, other: Any) -> Same:
        is_equal = plain.tokens == other.tokens
        tie = {"index": 0, "margin": 0.0, "drift": 1.0, "is_tie": True}
        return Same(is_equal, 1, None if is_equal else tie)

    monkeypatch.setattr(losslessness, "ask", ask)
    monkeypatch.setattr(losslessness, "compare_answers", compare)
    nobody: Any = None
    made = Verification(
        nobody, Request(), (Prompt("a", "a"), Prompt("b", "b")), draws=100, is_reproducible=True,
        is_stopped=lambda: False, on_progress=lambda _: None,
    )  # fmt: skip
    found = made.reproducible()
    assert found.is_passed == (fork_at is None)
    assert found.is_failed == (fork_at is not None)
    assert found.summary.startswith("8 of 8" if fork_at is None else "6 of 8")
    if fork_at is not None:
        assert found.notes[0].startswith(f"prompt a, --temp {fork_at:g}, --method suffix: ")


def trial(df: int, p_value: float = 0.5, impossible: int = 0) -> dict[str, Any]:
    return {"position": 5, "statistic": float(df), "df": df, "p_value": p_value, "n": 100, "impossible": impossible}


def dist_of(monkeypatch: pytest.MonkeyPatch, trials: list[dict[str, Any]], n_unknown: int = 0) -> Check:
    """Return the distribution check of one prompt whose recorded texts come to `trials`."""
    monkeypatch.setattr(losslessness, "ask", lambda *_: SimpleNamespace(tokens=(1, 2)))
    monkeypatch.setattr(losslessness, "inspect", lambda *_: {"trials": trials, "n_unknown": n_unknown})
    nobody: Any = None
    prompts = (Prompt("0", "Once"),)
    return Verification(
        nobody, Request(), prompts, draws=100, is_stopped=lambda: False, on_progress=lambda _: None
    ).distribution()


@pytest.mark.parametrize(
    ("trials", "n_unknown", "why", "hint"),
    [
        ([], 0, "no room", "--ctx 2048, or shorter prompts"),
        ([], 1, "tokens that the draft does not have", "another --suite"),
        ([trial(0), trial(0)], 0, "tell no two tokens", "--draws 1000, or a higher --temp"),
    ],
)
def test_a_dist_that_nothing_tested_says_why(
    monkeypatch: pytest.MonkeyPatch, trials: list[dict[str, Any]], n_unknown: int, why: str, hint: str
) -> None:
    found = dist_of(monkeypatch, trials, n_unknown)
    assert why in found.summary
    assert found.obstacle is not None
    assert found.obstacle.hint == hint
    assert not found.is_failed


def test_texts_that_show_nothing_are_told_beside_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dist_of(monkeypatch, [trial(12), trial(0)])
    assert found.is_passed
    assert any("1 of them have one token that so many draws can tell" in note for note in found.notes)


def test_what_the_target_excludes_fails_where_nothing_is_left_to_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dist_of(monkeypatch, [trial(0, 0.0, impossible=3)]).is_failed
