"""`auto` on real text at the costs of three machines, on a clock that only passes move: no machine's noise is in it.

The bundled pair drafts and verifies; what a pass takes is made up. It must not lose to any fixed length, nor to plain
decoding where nothing is to be won, by more than the account allows.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import pytest

from scripts.replay import compare, contenders, passes

FIXED = "1,3,6"
LEAST = 0.97  # of the best fixed length
MACHINES = {  # plain passes by rows, and of a pass of the draft model
    "rows by four, on a CPU": ("1,1.27,1.35,1.2,1.65,1.75,1.85,1.75", 0.03),
    "dear rows, by four": ("1,1.73,2.38,2.4,3.3,3.6,4,4.5", 0.03),
    "free rows up to eight": ("1,1.02,1.03,1.05,1.08,1.1,1.12,1.14,2.2,2.2,2.2", 0.06),
}


def whole(rows: str, draft: float, who: str, temp: float, n: int) -> dict[str, float]:
    """Return the speed of all answers together."""
    asked = argparse.Namespace(
        rows=passes(rows),
        draft=draft,
        contenders=contenders(who),
        suite="stories",
        prompts=8,
        rounds=1,
        temp=temp,
        cold=False,
        unseeded=False,
        n=n,
        noise=0.04,
        schema=None,
    )
    return {one: statistics.harmonic_mean(answers.speeds) for one, answers in compare(asked).items()}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("temp", [0.0, 0.8])
def test_it_keeps_up_with_the_best_fixed_length(machine: str, temp: float) -> None:
    rows, draft = MACHINES[machine]
    speeds = whole(rows, draft, f"auto,{FIXED}", temp, 256)
    auto = speeds.pop("auto")
    assert auto >= LEAST * max(*speeds.values(), 1.0)


@pytest.mark.parametrize("temp", [0.0, 0.8])
def test_where_nothing_is_to_be_won_it_is_as_fast_as_plain_decoding(temp: float) -> None:
    """Two rows cost two passes, and so does a draft of one token."""
    assert whole("1,2,3,4", 1.0, "auto", temp, 192)["auto"] >= 0.98


@pytest.mark.parametrize(
    ("read", "text"),
    [(passes, ""), (passes, "1,x"), (passes, "1,0"), (passes, "1,inf"), (contenders, "auto,0"), (contenders, "k3")],
)
def test_what_is_no_list_is_refused_in_one_line(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=repr(text)) as refused:
        read(text)
    assert "\n" not in str(refused.value)
