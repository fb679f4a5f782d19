"""When a draft model of another vocabulary writes text, and when it drafts shared tokens."""

from __future__ import annotations

import pytest

from localspec.engine.sampling import Sampler
from localspec.settings.request import Sampling, Speculation
from localspec.speculation.capabilities import draft_temperature, writes_text
from localspec.speculation.resolve import resolve_axes

GREEDY = Sampling(temperature=0.0)
SEEDED = Sampling(temperature=0.0, seed=1)


def decided(sampling: Sampling, speculation: Speculation) -> bool:
    axes = resolve_axes(
        speculation,
        has_draft=True,
        is_seeded=sampling.seed is not None,
        is_greedy=sampling.temperature == 0.0,
    )
    return writes_text(axes, Sampler(sampling, temperature=draft_temperature(sampling, axes)))


@pytest.mark.parametrize(
    ("sampling", "speculation"),
    [
        (GREEDY, Speculation()),
        (SEEDED, Speculation()),
        (GREEDY, Speculation("draft-model", k=3)),
        (SEEDED, Speculation("draft-model", k=3)),
        (Sampling(temperature=0.8), Speculation("draft-model", verify="match")),
        (Sampling(temperature=0.8, draft_temperature=0.0), Speculation("draft-model")),
    ],
)
def test_chains_of_chosen_tokens_are_text(sampling: Sampling, speculation: Speculation) -> None:
    assert decided(sampling, speculation)


@pytest.mark.parametrize(
    ("sampling", "speculation"),
    [
        (Sampling(temperature=0.8), Speculation()),
        (Sampling(temperature=0.8, seed=1), Speculation()),
        (Sampling(temperature=0.8), Speculation("draft-model", k=3)),
        (GREEDY, Speculation("draft-model", tree="static:2,2")),
        (Sampling(temperature=0.0, repeat_penalty=1.1), Speculation()),
        (Sampling(temperature=0.0, typical_p=0.5), Speculation()),
    ],
)
def test_all_else_is_of_shared_tokens(sampling: Sampling, speculation: Speculation) -> None:
    assert not decided(sampling, speculation)
