"""Names that earlier versions had: one line with the version that went without, and what does their work."""

from __future__ import annotations

import pytest

from tests.cli.harness import assert_one_line, run

CASES = {
    "calibrate storyteller": ("calibrate PAIR was removed in 0.2.0", "localspec plan PAIR --measure"),
    "calibrate storyteller --seconds 3": ("calibrate --seconds was removed in 0.2.0", "localspec plan PAIR --measure"),
    "doctor storyteller": ("doctor PAIR was removed in 0.2.0", "localspec plan PAIR --measure"),
    "doctor storyteller --seconds 3": ("doctor --seconds was removed in 0.2.0", "localspec plan PAIR --measure"),
    "calibrate storyteller --attention": ("calibrate --attention was removed in 0.2.0", "--flash-attn"),
}


@pytest.mark.parametrize("line", CASES)
def test_a_removed_name_leads_to_what_does_its_work(line: str) -> None:
    message, hint = CASES[line]
    assert hint in assert_one_line(run(*line.split()), 2, message)
