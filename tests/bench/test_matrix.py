"""The table of `auto` beside plain decoding: what the clock says of answers, whatever their accounts say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from localspec.bench.measurement import Cell, Measurement, from_wire
from localspec.bench.result import Hashes
from scripts.matrix import DRAFTS, Matrix, code, is_late, report, state_of

EMPTY = Measurement(
    cell=Cell(0, 0.0, "plain", 0), seed=1, method="auto", tree="", length="", k=0, verify="", reason="length",
    prompt_n=9, prefill_ms=30.0, ttft_ms=30.0, total_ms=1030.0, tokens=101, decoded=100, decode_ms=1000.0, passes=101,
    drafted=0, accepted=0, tested_per_pos=(), accepted_per_pos=(), reached_per_pos=(), draft_ms=0.0, verify_ms=0.0,
    host_ms=0.0, peak_memory=0, overdrawn_ms=-1.0,
)  # fmt: skip


HOSTILE = list(DRAFTS).index("hostile")


def answer(contender: str, ms: float, *, number: int = 0, repeat: int = 0, ttft: float = 30.0) -> Measurement:
    """Return an answer whose hundred tokens after the first took `ms` each."""
    cell = Cell(number, 0.0, contender, repeat)
    return dataclasses.replace(EMPTY, cell=cell, decode_ms=100 * ms, ttft_ms=ttft)


def row(measurements: list[Measurement], draft: str) -> dict[str, str]:
    """Return a draft's line of the table by the names of its columns."""
    head, _, *lines = ([word.strip() for word in line.split("|")[1:-1]] for line in report(measurements).splitlines())
    return next(dict(zip(head, line, strict=True)) for line in lines if line[0] == draft)


@pytest.mark.parametrize(("ms", "late"), [(10.0, False), (10.30, False), (10.31, True), (5.0, False)])
def test_an_answer_may_take_a_token_and_two_percent_more_than_plain_ones(ms: float, late: bool) -> None:
    """(100 + 1) tokens of 10 ms, over 0.98, are 1030.6 ms."""
    assert is_late(answer("hostile", ms), answer("plain", 10.0)) is late


def test_every_draft_has_a_plain_answer_of_its_own_process_before_or_behind(tmp_path: Path) -> None:
    """Where the weights of another process lie is no matter of the method."""
    rounds = Matrix(tmp_path, prompts=4, seeds=3, n=8, threads=1).rounds()
    assert len(rounds) == 4 * 3 * 2
    first = list[bool]()
    for cells in rounds:
        pairs = list(zip(cells[::2], cells[1::2], strict=True))
        assert [len({one.repeat for one in pair}) for pair in pairs] == [1] * len(DRAFTS)
        assert {next(one.contender for one in pair if one.contender != "plain") for pair in pairs} == set(DRAFTS)
        first += [pair[0].contender == "plain" for pair in pairs]
    assert 2 * sum(first) == len(first)
    assert len({cell for cells in rounds for cell in cells}) == len(rounds) * 2 * len(DRAFTS)


def test_an_answer_of_other_length_is_held_against_its_own_tokens() -> None:
    """Ten tokens of 10 ms and one more, over 0.98, are 112.2 ms."""
    short = dataclasses.replace(answer("hostile", 0.0), decoded=10, tokens=11)
    assert not is_late(dataclasses.replace(short, decode_ms=112.0), answer("plain", 10.0))
    assert is_late(dataclasses.replace(short, decode_ms=113.0), answer("plain", 10.0))


def test_an_account_that_held_by_its_own_word_is_late_by_the_clock() -> None:
    """Each answer stands beside the plain one of its process and round; one without it is not judged."""
    found = [
        answer("plain", 10.0, repeat=HOSTILE), answer("hostile", 10.5, repeat=HOSTILE), answer("plain", 20.0, repeat=0),
        answer("plain", 20.0, number=1, repeat=HOSTILE), answer("hostile", 10.5, number=1, repeat=HOSTILE),
        answer("hostile", 99.0, number=2, repeat=HOSTILE),
    ]  # fmt: skip
    line = row(found, "hostile")
    assert line["account held"] == "3/3"
    assert line["late"] == "1/2"


def test_the_first_token_is_told_beside_plain_decodings_of_the_same_round() -> None:
    found = [
        answer("plain", 10.0, repeat=1, ttft=33.0), answer("150M", 5.0, repeat=1, ttft=33.0),
        answer("plain", 10.0, number=1, repeat=1, ttft=10.0), answer("150M", 5.0, number=1, repeat=1, ttft=12.0),
        answer("plain", 10.0, number=2, repeat=1, ttft=10.0), answer("150M", 5.0, number=2, repeat=1, ttft=30.0),
    ]  # fmt: skip
    assert row(found, "150M")["ttft"] == "1.20"


def test_what_was_measured_before_the_column_was_there_is_told_again() -> None:
    wires = [answer("plain", 10.0).to_wire(), answer("distilled", 10.5).to_wire()]
    for wire in wires:
        del wire["text_hash"], wire["overdrawn_ms"]
    assert row([from_wire(wire) for wire in wires], "distilled")["late"] == "1/1"


def test_what_makes_and_measures_is_one_state_and_another_model_is_another(tmp_path: Path) -> None:
    """Answers of both would stand in one table; files made again with the same bytes are the same."""
    root = Path(__file__).parents[2]
    found = code()
    for name in (
        "localspec/engine/loop.py",
        "models/plan/search.py",
        "scripts/matrix.py",
        "scripts/make_scaled_pair.py",
    ):
        assert root / name in found, name
    model, hashes = tmp_path / "draft.gguf", Hashes(tmp_path / "sha256.json")
    seen = []
    for data in (b"distilled", b"hostile", b"distilled"):
        model.unlink(missing_ok=True)
        model.write_bytes(data)
        seen.append(state_of(found, [model], hashes))
    assert seen[0] == seen[2] != seen[1]
    assert state_of(found[1:], [model], hashes) != seen[0]
