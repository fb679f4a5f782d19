"""What the passes of a loaded pair cost: timed when somebody asks."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from localspec.backends.llama_cpp import LlamaBackend
from localspec.control.prices import Prices
from localspec.control.timing import DRAFT_SIZES, SHARES, ModelTimes, prices_of, time_model
from localspec.engine import events
from localspec.engine.protocols import Cancel, Clock
from localspec.settings.jobs import SurveyRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PairTimes:
    """What a survey measured of a pair."""

    target: ModelTimes
    draft: ModelTimes | None

    def prices(self, calibrated: float) -> Prices:
        return prices_of(self.target, self.draft, calibrated)

    def to_wire(self) -> dict[str, Any]:
        return {"target": self.target.to_wire(), "draft": None if self.draft is None else self.draft.to_wire()}


def survey_pair(
    asked: SurveyRequest, target: LlamaBackend, draft: LlamaBackend | None, clock: Clock, cancel: Cancel
) -> events.EventsThen[PairTimes]:
    """Time both models, reporting how far that is. Both caches must be empty, and are again; raises Cancelled."""
    seconds = {name: share * asked.seconds for name, share in SHARES.items()}
    if not asked.is_deep:
        seconds["deep"] = seconds["deep draft"] = 0.0
    timing = time_model(target, asked.sizes, (seconds["empty"], seconds["deep"]), clock, cancel)
    target_times, drafts = (yield from reported("target", timing, clock)), None
    if draft is not None:
        sizes = DRAFT_SIZES if len(asked.sizes) > 1 else asked.sizes
        timing = time_model(draft, sizes, (seconds["draft"], seconds["deep draft"]), clock, cancel)
        drafts = yield from reported("draft", timing, clock)
    return PairTimes(target_times, drafts)


def reported(what: str, measuring: Generator[float, None, T], clock: Clock) -> events.EventsThen[T]:
    """Measure, and report how far that is, ten times a second at most."""
    last = clock()
    run = events.Returning(measuring)
    for share in run:
        if clock() - last > 0.1:
            last = clock()
            yield events.Loading(what, share)
    return run.result
