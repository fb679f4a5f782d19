"""Functions of Python that a pass and the line of it call: time that no model takes. A count needs no quiet machine."""

import sys
from statistics import median
from types import FrameType

import pytest

from localspec.control.auto import Auto
from localspec.control.candidates import Chains, Copies
from localspec.control.lengths import Fixed
from localspec.control.prices import Prices
from localspec.control.schedule import Probing
from localspec.engine.acceptance import Acceptance
from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Draw
from localspec.engine.event_stream import stream_events
from localspec.engine.events import Committed
from localspec.engine.loop import Engine
from localspec.engine.protocols import Controller, Shape
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.methods.copy import Copy
from localspec.methods.draft_model import DraftModel
from localspec.methods.plain import Plain
from localspec.settings.request import Sampling
from localspec.testing.contract import TableBackend, random_table
from localspec.trees.static import Chain
from localspec.verify.coupled import CoupledVerifier
from localspec.worker.codec import event_line

GREEDY = Sampler(Sampling(temperature=0.0))
SHAPE = Shape(4, 4, 1)
WORDS = Vocabulary(lambda token: False, lambda token: b"x")
PARTS = DrafterContext(
    draft=TableBackend(random_table(64, 2), 64, 256),
    sampler=GREEDY,
    policy=Chain(),
    cancel=lambda: False,
    n_vocab=64,
    is_eog=WORDS.is_eog,
)
PLAIN, COPY, MODEL = Plain(), Copy(PARTS), DraftModel.build(PARTS)


def automatic() -> Controller:
    """Return a planner that looks for copies and chains in each pass, and finds that none pays."""
    prices = Prices({1: 0.01, 2: 1.0, 16: 9.0}, draft=0.004)
    chains = Chains("draft-model", prices, Acceptance(Draw.COUPLED), SHAPE, Draw.COUPLED, MODEL)
    return Probing(Auto(prices, [Copies("copy", prices, COPY, 4), chains], "draft-model"))


@pytest.mark.parametrize(
    ("controller", "most"), [(Fixed("plain", Shape(0, 0, 1), Draw.FIXED), 105), (automatic(), 184)]
)
def test_a_pass_without_a_draft_calls_few_functions(controller: Controller, most: int) -> None:
    """What is added to every pass is seen here, such as a price that is computed at each look.

    The bounds are from above alone, by Python 3.11. From 3.12 on a comprehension is no call, so counts are lower there.
    """
    target = TableBackend(random_table(64, 1), 64, 256)
    engine = Engine.local(
        target,
        {"plain": PLAIN, "copy": COPY, "draft-model": MODEL},
        CoupledVerifier(),
        controller,
        GREEDY,
        SeededRandom(1),
        lambda: 0.01 * target.calls,
        lambda: False,
    )
    calls, found = 0, []

    def counted(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(counted)
    try:
        for event in stream_events(
            engine, Context([1, 2, 3], WORDS, n_ctx=256, max_tokens=60), WORDS, details=False, began=0.0
        ):
            event_line(event, 1)
            if isinstance(event, Committed):
                assert event.k == 0
                found.append(calls)
                calls = 0
    finally:
        sys.setprofile(None)
    assert median(found[8:]) <= most
