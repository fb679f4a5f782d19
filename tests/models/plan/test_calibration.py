"""Figures of a machine are kept with their provenance, and used for the device they belong to."""

from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ResourceError
from localspec.models.plan.calibration import FILE, Calibration, Figure, load, store
from localspec.models.plan.machine import Rates, flat

FIGURES = tuple(
    Figure("CPU", "a processor", kind, rows, rate)
    for kind, rows, rate in [("Q4_K", 4, 8e9), ("Q4_K", 1, 10e9), ("F16", 1, 20e9)]
)
KEPT = Calibration("2026-01-31", "b1", FIGURES)


def test_what_is_kept_is_read(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    path = store(tmp_path / "new", KEPT)
    assert load(path.parent) == KEPT
    assert [one.name for one in path.parent.iterdir()] == [FILE]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"schema": "other"}', '{"schema": "localspec.machine/1", "figures": 3}', "[" * 9999],
)
def test_a_damaged_file_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert load(tmp_path) is None


@pytest.mark.parametrize(("key", "value"), [("rows", 0), ("bytes_per_s", -1), ("bytes_per_s", "nan"), ("rows", None)])
def test_impossible_figures_are_none(tmp_path: Path, key: str, value: object) -> None:
    import json

    wire = asdict(KEPT)
    wire["figures"][0][key] = value
    (tmp_path / FILE).write_text(json.dumps(wire))
    assert load(tmp_path) is None


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="cannot be kept"):
        store(tmp_path / "file", KEPT)


def test_figures_belong_to_one_device() -> None:
    rates = KEPT.rates("CPU", "a processor")
    assert rates is not None
    assert rates.source == "measured 2026-01-31"
    assert KEPT.rates("CPU", "another processor") is None
    assert KEPT.rates("CUDA0", "a processor") is None


def test_rates_between_and_beyond_what_was_measured() -> None:
    """Q4_K: 10 GB/s at one row, 8 at four; half way a byte's time is half way, beyond it grows with the rows."""
    rates = KEPT.rates("CPU", "a processor")
    assert rates is not None
    assert rates.seconds_per_byte("Q4_K", 1) == pytest.approx(1 / 10e9)
    assert rates.seconds_per_byte("Q4_K", 2) == pytest.approx((2 / 3) / 10e9 + (1 / 3) / 8e9)
    assert rates.seconds_per_byte("Q4_K", 4) == pytest.approx(1 / 8e9)
    assert rates.seconds_per_byte("Q4_K", 8) == pytest.approx(2 / 8e9)
    assert rates.seconds_per_byte("Q5_K", 1) == pytest.approx(1 / 10e9)  # nearest in bits to Q4_K
    assert rates.seconds_per_byte("BF16", 1) == pytest.approx(1 / 20e9)


@given(st.integers(1, 64), st.integers(0, 32))
def test_more_rows_never_cost_less_than_fewer_where_none_were_measured_so(rows: int, more: int) -> None:
    rates = Rates({"Q4_K": ((1, 10e9), (4, 8e9), (16, 3e9))}, "given")
    assert rates.seconds_per_byte("Q4_K", rows + more) >= rates.seconds_per_byte("Q4_K", rows) * (1 - 1e-12)
    assert flat(1e9, "").seconds_per_byte("Q4_K", rows) == 1e-9
