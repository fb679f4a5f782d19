"""Measuring a device: every figure is there, and they agree with each other; how large they are depends."""

from localspec.backends.bandwidth import ROWS, TYPES, measure


def test_every_type_at_every_number_of_rows() -> None:
    figures = [one for one in measure(total=1 << 20, width=512) if one.device == "CPU"]
    assert [(one.type, one.rows) for one in figures] == [(kind, rows) for kind in TYPES for rows in ROWS]
    for one in figures:
        assert one.bytes_per_s > 0
