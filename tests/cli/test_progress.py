"""What a download says where there is no screen to draw bars on."""

from types import SimpleNamespace
from typing import Any

import pytest

from localspec.cli.console import Console
from localspec.cli.fetch import ProgressLines


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
