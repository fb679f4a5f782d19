"""When a draft model of another vocabulary writes text, and when it drafts shared tokens."""

from localspec.engine.sampling import Sampler
from localspec.settings.request import Sampling, Speculation
from localspec.speculation.capabilities import draft_temperature, writes_text
from localspec.speculation.resolve import resolve_axes
from tests.recorded import recorded_expressions

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


test_what_is_recorded = recorded_expressions(__file__, Sampling, Speculation, decided, GREEDY=GREEDY, SEEDED=SEEDED)
