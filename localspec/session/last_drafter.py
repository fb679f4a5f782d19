"""The drafter of the last answer, for the next one."""

from dataclasses import dataclass, replace

from localspec.engine.protocols import Drafter
from localspec.methods import DrafterContext
from localspec.session.decision import Decision
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.speculation.capabilities import draft_temperature


@dataclass(slots=True)
class LastDrafter:
    """The drafter of the last answer, kept while requests want the same: its lessons of a chat stay of use."""

    _key: object = None
    _drafter: Drafter | None = None

    def get(self, parts: DrafterContext, decision: Decision, sampling: Sampling) -> Drafter:
        axes = decision.axes
        options = tuple(axes.options.items())
        tempered = replace(sampling, seed=None, draft_temperature=draft_temperature(sampling, axes))
        # The constraint of an earlier answer is held by its drafter, so that no other one has its id.
        ids = id(parts.draft), id(parts.sampler.constraint), id(parts.corpus)
        key = (axes.method, axes.tree, axes.draw, options, tempered, *ids, parts.prediction)
        if self._drafter is None or self._key != key:
            drafter: Drafter = registered("method")[axes.method].build(parts)
            self._key, self._drafter = key, drafter
        return self._drafter

    def drop(self) -> None:
        self._key = self._drafter = None
