"""What `localspec verify` comes to where a check cannot run: the others are told, and the exit code is theirs first."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.bench import losslessness
from localspec.bench.losslessness import Check, Verification
from localspec.bench.suites import Prompt
from localspec.cli.entry import outcome
from localspec.config import Request
from localspec.errors import UsageError
from tests.cli.harness import needs_pair

PASSED = Check("coupled", True, "1 of 1", (), {})
FAILED = Check("greedy", False, "0 of 1", (), {})
NOT_RUN = Check("law", False, "no room", (), {}, UsageError("no room", hint="--ctx 2048"))


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
    monkeypatch.setattr("localspec.cli.verify._run", lambda *_, **__: list(found))
    assert outcome(["verify", "storyteller", *flags]) == code
    written = capsys.readouterr()
    assert ("no room — try: --ctx 2048" in written.err) == (code == 2)
    if flags:
        made = json.loads(written.out)  # one object, whatever came of it
        assert [one["check"] for one in made["checks"]] == [one.name for one in found]
        assert [one["ran"] for one in made["checks"]] == [one.obstacle is None for one in found]
        assert made["passed"] == (code == 0)
    else:
        assert ("NOT lossless" in written.out, "lossless here" in written.out) == (code == 10, code == 0)


@pytest.mark.parametrize(("n_unknown", "why"), [(0, "no room"), (1, "tokens that the draft does not have")])
def test_a_law_without_texts_says_why(monkeypatch: pytest.MonkeyPatch, n_unknown: int, why: str) -> None:
    monkeypatch.setattr(losslessness, "ask", lambda *_: SimpleNamespace(tokens=(1, 2)))
    monkeypatch.setattr(losslessness, "inspect", lambda *_: {"trials": [], "n_unknown": n_unknown})
    nobody: Any = None
    prompts = (Prompt("0", "Once"),)
    found = Verification(
        nobody, Request(), prompts, draws=100, is_stopped=lambda: False, on_progress=lambda _: None
    ).law()
    assert why in found.summary
    assert found.obstacle is not None
    assert not found.is_failed
