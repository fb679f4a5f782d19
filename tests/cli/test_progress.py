"""What a download says where there is no screen to draw bars on."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from localspec.bench.answers import Answer
from localspec.cli.console import Console
from localspec.cli.fetch import ProgressLines
from localspec.cli.live import Live
from localspec.cli.pair_engine import PairEngine
from localspec.cli.race import progress
from localspec.settings.request import Request
from tests.ui.test_stats import a_pass


def pull(phase: str, n_bytes: int) -> Any:
    item = SimpleNamespace(file=SimpleNamespace(size=10**9, name="model.gguf"))
    return SimpleNamespace(files=[SimpleNamespace(name=phase, bytes=n_bytes, item=item)])


def test_sparse_lines_tell_how_far_it_is_and_that_the_hub_asks_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = ProgressLines(Console(), lambda: now[0])
    lines.show(pull("downloading", 0))
    now[0] = 1.0
    lines.show(pull("downloading", 1000))
    assert capsys.readouterr().err == "", "a thousandth is not worth a line"
    now[0] = 100.0
    lines.show(pull("downloading", 500_000_000))
    assert "pulled 50 % of 1.0 GB, 5.0 MB/s" in capsys.readouterr().err
    now[0] = 1000.0
    lines.show(pull("pause 40 s", 500_000_000))
    assert capsys.readouterr().err.rstrip().endswith("; the hub asks for a pause of 40 s")
    now[0] = 2000.0
    lines.show(pull("again in 4 s", 500_000_000))
    said = capsys.readouterr().err.rstrip()
    assert said.endswith("; the transfer broke off: again in 4 s")
    assert "the hub asks" not in said


def test_a_race_says_nothing_of_an_answer_that_has_no_token(capsys: pytest.CaptureFixture[str]) -> None:
    now, console = [0.0], Console()
    engine = cast(PairEngine, SimpleNamespace(live=Live(console, lambda: now[0], is_long=True)))
    answer = Answer(Request())
    now[0] = 61.0
    progress(engine, "1/1 speculative", answer)
    assert capsys.readouterr().err == ""
    answer.stats.observe(a_pass(0, 0, 0))
    progress(engine, "1/1 speculative", answer)
    assert capsys.readouterr().err == "1/1 speculative · 1 token\n"
