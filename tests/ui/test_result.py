"""The object of --json: its figures, from the events alone."""

import pytest

from localspec.engine import events
from localspec.settings.request import LoadSettings, Request
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


@pytest.mark.parametrize("has_draft", [True, False])
def test_the_pair_is_that_which_was_loaded(has_draft: bool) -> None:
    target, draft = (
        events.ModelFacts(f"/{name}.gguf", 7, "llama", "Q8_0", 1, 2, 3, kv_bytes, ("CPU",))
        for name, kv_bytes in (("target", 100), ("draft", 20))
    )
    stats = Stats()
    stats.observe(events.Loaded("two", target, draft if has_draft else None, 512, 2, 1.0, {"llama_cpp": "b1"}))
    made = result.result(stats, LoadSettings("/target.gguf", draft="/draft.gguf", name="two"), Request())
    assert made["pair"]["name"] == "two"
    assert made["pair"]["target"]["path"] == "/target.gguf"
    assert (made["pair"]["draft"] or {}).get("path") == ("/draft.gguf" if has_draft else None)
    assert made["memory"]["kv_bytes"] == (120 if has_draft else 100)
    assert made["versions"]["llama_cpp"] == "b1"
