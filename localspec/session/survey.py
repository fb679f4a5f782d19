"""What the passes of a loaded pair cost: timed when somebody asks."""

from collections.abc import Generator
from typing import TypeVar

from localspec.backends.llama_cpp import LlamaBackend
from localspec.control.timing import DRAFT_SIZES, SHARES, ModelTimes, time_model
from localspec.engine import events
from localspec.engine.protocols import Cancel, Clock
from localspec.settings.jobs import SurveyRequest

T = TypeVar("T")


def survey_pair(
    asked: SurveyRequest, target: LlamaBackend, draft: LlamaBackend | None, clock: Clock, cancel: Cancel
) -> events.EventsThen[tuple[ModelTimes, ModelTimes | None]]:
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
    return target_times, drafts


def reported(what: str, measuring: Generator[float, None, T], clock: Clock) -> events.EventsThen[T]:
    """Measure, and report how far that is, ten times a second at most."""
    last = clock()
    run = events.Returning(measuring)
    for share in run:
        if clock() - last > 0.1:
            last = clock()
            yield events.Loading(what, share)
    return run.result
