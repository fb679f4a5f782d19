"""`auto` on real text at the costs of three machines, on a clock that only passes move: no machine's noise is in it.

The bundled pair drafts and verifies; what a pass takes is made up. It must not lose to any fixed length, nor to plain
decoding where nothing is to be won, by more than the account allows.
"""

import statistics
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from localspec.bench.suites import choose, load_suite
from localspec.settings.request import Request, Sampling
from tests.integration.simulated_clock import SimulatedPair

AUTO = None
FIXED = (1, 3, 6)
LEAST = 0.97  # of the best fixed length
MACHINES = {  # plain passes by rows, and of a pass of the draft model
    "rows by four, on a CPU": ((1, 1.27, 1.35, 1.2, 1.65, 1.75, 1.85, 1.75), 0.03),
    "dear rows, by four": ((1, 1.73, 2.38, 2.4, 3.3, 3.6, 4, 4.5), 0.03),
    "free rows up to eight": ((1, 1.02, 1.03, 1.05, 1.08, 1.1, 1.12, 1.14, 2.2, 2.2, 2.2), 0.06),
}


def whole(
    folder: Path, machine: tuple[Sequence[float], float], lengths: Sequence[int | None], temp: float, n: int
) -> list[float]:
    """Return the speed of all answers together, for each length."""
    prompts = choose(load_suite("stories", is_chat=False), 5).prompts
    requests = [
        Request(prompt=prompt.text, max_tokens=n, sampling=Sampling(temperature=temp, seed=1), cold=True)
        for prompt in prompts
    ]
    with closing(SimulatedPair(*machine, folder)) as pair:
        speeds = [[pair.speed(request, k) for k in lengths] for request in requests]
    return [statistics.harmonic_mean(column) for column in zip(*speeds, strict=True)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("temp", [0.0, 0.8])
def test_it_keeps_up_with_the_best_fixed_length(machine: str, temp: float, tmp_path: Path) -> None:
    auto, *fixed = whole(tmp_path, MACHINES[machine], (AUTO, *FIXED), temp, 256)
    assert auto >= LEAST * max(*fixed, 1.0)


@pytest.mark.parametrize("temp", [0.0, 0.8])
def test_where_nothing_is_to_be_won_it_is_as_fast_as_plain_decoding(temp: float, tmp_path: Path) -> None:
    """Two rows cost two passes, and so does a draft of one token."""
    (auto,) = whole(tmp_path, ((1, 2, 3, 4), 1.0), (AUTO,), temp, 192)
    assert auto >= 0.98
