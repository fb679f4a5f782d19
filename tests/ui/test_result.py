"""The object of --json: its figures, from the events alone."""

from __future__ import annotations

import pytest

from localspec.engine import events
from localspec.ui import result
from localspec.ui.stats import Stats


@pytest.mark.parametrize(("cached", "speed"), [(0, 500.0), (900, 50.0), (1000, 0.0)])
def test_the_speed_of_a_prompt_counts_what_was_read(cached: int, speed: float) -> None:
    """Tokens from the cache took no time."""
    stats = Stats()
    stats.observe(events.Prefilled(prompt_n=1000, cache_n=cached, ms=2000.0))
    timings = result.timings(stats)
    assert timings["prompt_per_second"] == speed
    assert (timings["prompt_n"], timings["cache_n"], timings["prompt_ms"]) == (1000, cached, 2000.0)
