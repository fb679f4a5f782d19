"""The sweep of llama.cpp's server, and what its answers are taken for. The programs themselves are built by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.bench.measurement import Measurement
from localspec.bench.schedule import Cell
from scripts.llama_peers.build import features
from scripts.llama_peers.server import Server, settings
from scripts.llama_peers.texts import of_one_text


def test_the_sweep_has_every_setting_once() -> None:
    found = settings([1, 2, 8], has_draft=True)
    assert len({one.name for one in found}) == len({one.options for one in found}) == len(found) == 6
    assert [one.needs_draft for one in found] == [False, True, True, True, False, False]
    assert not any(one.needs_draft for one in settings([1, 2, 8], has_draft=False))


def test_the_servers_timings_are_ours() -> None:
    """Rates are of the tokens after the first; every pass commits its accepted tokens and one more."""
    server = Server(Path("none"), settings([4], has_draft=True)[1], Path("t"), Path("d"), 1, 512)
    timings = {"prompt_n": 9, "prompt_ms": 3.0, "predicted_n": 33, "predicted_ms": 64.0, "draft_n": 40,
               "draft_n_accepted": 20}  # fmt: skip
    cell = Cell(0, 0.0, server.setting.name, 0)
    answer = {"timings": timings, "stop_type": "limit", "content": " a king"}
    one = server._measured(cell, answer, 70.0)
    assert one.tok_per_s == pytest.approx(500.0)
    assert (one.passes, one.drafted, one.accepted, one.reason) == (13, 40, 20, "length")
    assert server._measured(cell, {**answer, "stop_type": "eos"}, 70.0).reason == "stop"


def test_only_answers_of_one_text_are_compared_pass_by_pass() -> None:
    """A near tie that two programs round apart makes two texts, of which one is easier to draft."""
    server = Server(Path("none"), settings([4], has_draft=True)[1], Path("t"), Path("d"), 1, 512)
    timings = {"prompt_n": 9, "prompt_ms": 3.0, "predicted_n": 33, "predicted_ms": 64.0}

    def wrote(name: str, texts: list[str], repeat: int = 0) -> list[Measurement]:
        answers = [{"timings": timings, "stop_type": "limit", "content": text} for text in texts]
        return [server._measured(Cell(i, 0.0, name, repeat), answer, 70.0) for i, answer in enumerate(answers)]

    ours = wrote("auto", ["a king", "a queen"]) + wrote("auto", ["a king", "a fox"], repeat=1)
    theirs = wrote("server", ["a king", "a fox"]) + wrote("server", ["a king", "a fox"], repeat=1)
    mine, others = of_one_text(ours, theirs)
    at = [(0, 0), (0, 1), (1, 1)]
    assert [(one.cell.prompt, one.cell.repeat) for one in mine] == at
    assert [(one.cell.prompt, one.cell.repeat) for one in others] == at


def test_the_instruction_sets_are_those_that_are_installed() -> None:
    options = features()
    assert not options or options[0] == "GGML_NATIVE=OFF"
    assert all(option.endswith(("=ON", "=OFF")) for option in options)
