"""What a draft model would have been worth in an answer that it did not draft, found out while nobody waits.

It reads what was said, which it must at the next answer in any case, and is compared at each token. At temperature 0 it
is right or not. Else, with p the law that the target drew a token x from and q the draft's, min(1, q(x) / p(x)) is on
average the sum of min(p, q): the chance that a draw from q is accepted (arXiv 2211.17192). It ends within a chunk once
anything is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate

from localspec.control.profile import Profile
from localspec.control.trial import CHAT, Trial
from localspec.engine import events
from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Draw
from localspec.engine.protocols import Cancel, Cancelled, Logits
from localspec.engine.sampling import Sampler
from localspec.engine.translation import SameTokens, Translation
from localspec.errors import LocalspecError
from localspec.session.decision import DRAFT_MODEL, Decision
from localspec.session.loaded_model import LoadedModel
from localspec.session.trial import GREEDY
from localspec.settings.request import Request, Sampling

LITTLE = 0.1  # of the passes: a draft that drafted in more learns from them
CHUNK = 32  # tokens that are read at once
SHORTEST_ANSWER = 8  # tokens of an answer that is worth reading


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer: its `tokens` of the target with the prompt, which ends before `start`.

    `chances` are those of its tokens under the law that each was drawn from, () where nothing was left to chance.
    `sampler` is the draft's; its tokens are drawn as `draw`, and `acceptance` is what is known of them.
    """

    sampler: Sampler
    draw: Draw
    acceptance: Acceptance
    chances: Sequence[float] = ()
    tokens: Sequence[int] = ()
    start: int = 0
    is_usual: bool = True  # drawn as the shipped texts are tried, or without chance


class Hearing:
    """Notes the answers of one pair, and has the draft model read the last one in idle time."""

    def __init__(self) -> None:
        self._now: Heard | None = None  # the answer under way
        self._heard: Heard | None = None
        self._passes = self._drafted = 0

    def begin(self, request: Request, decision: Decision, drafting: Sampler, sampler: Sampler) -> list[float] | None:
        """Note an answer; return where the chances of its tokens are to be put, None where they are not needed."""
        self._now = self._heard = None
        self._passes = self._drafted = 0
        axes = decision.axes
        can_hear = request.learns and axes.method == DRAFT_MODEL and not decision.is_derived
        if not can_hear or not _can_read(decision.draft) or axes.must_repeat or drafting.needs_history:
            return None
        rule, draw, acceptance = decision.controllers.learned(axes, request.sampling)
        if (rule == "greedy") != sampler.is_greedy:
            return None
        chances: list[float] = []
        self._now = Heard(drafting, draw, acceptance, chances, is_usual=_is_usual(request.sampling))
        return None if sampler.is_greedy else chances

    def observe(self, event: events.Event) -> None:
        if isinstance(event, events.Committed):
            self._passes += 1
            self._drafted += event.drafter == DRAFT_MODEL and event.k > 0

    def end(self, tokens: Sequence[int], start: int) -> None:
        """Keep the answer, which began at `start`, if the draft model drafted little of it."""
        if self._now is not None and self._drafted <= LITTLE * self._passes:
            self._heard = replace(self._now, tokens=list(tokens), start=start)
        self._now = None

    def idle(
        self,
        profile: Profile,
        target: LoadedModel,
        draft: LoadedModel,
        translation: Translation | None,
        cancel: Cancel,
    ) -> None:
        """Learn from the last answer, as far as nobody asks for anything; one that was not begun is kept for later."""
        heard, self._heard = self._heard, None
        if heard is None:
            return
        try:
            found = hear(heard, target, draft, translation, cancel)
        except LocalspecError:  # an answer that drafts will tell
            return
        if found.kinds:
            heard.acceptance.absorb(found.acceptance(heard.draw, is_greedy=not heard.chances))
            if heard.is_usual:
                profile.hear(found)
            profile.save()
        elif cancel():
            self._heard = heard


def hear(
    heard: Heard, target: LoadedModel, draft: LoadedModel, translation: Translation | None, cancel: Cancel
) -> Trial:
    """Let the draft read an answer; return what it would have been worth, as far as nobody cancelled."""
    trial, backend = Trial(), draft.backend
    translation = translation or SameTokens(target.model.n_vocab, draft.model.n_vocab)
    end = len(heard.tokens) - target.model.is_eog(heard.tokens[-1])
    tokens = heard.tokens[:end]
    own = translation.text(tokens)
    places = list(_places(tokens, own, heard.start, target, draft) if translation.respells else
                  ((at - 1, at) for at in range(heard.start, end)))  # fmt: skip
    if len(places) < SHORTEST_ANSWER or not len(own) or len(own) > backend.capabilities.n_ctx:
        return trial
    rows, (begin, last) = min(CHUNK, backend.capabilities.max_rows), (places[0][0], places[-1][0] + 1)
    with suppress(Cancelled):
        if begin:
            backend.prefill(own[:begin], cancel)
        else:
            backend.truncate(0)
        for first in range(begin, last, rows):
            if cancel():
                break
            chunk = own[first : min(first + rows, last)]
            found = backend.extend(chunk, range(-1, len(chunk) - 1))
            for at, token in places:
                if first <= at < first + len(chunk):
                    _compare(trial, heard, token, translation.row(found.logits(at - first)))
            backend.keep(tuple(range(len(chunk))))
    return trial


def _compare(trial: Trial, heard: Heard, at: int, row: Logits) -> None:
    """Compare a row of the draft with the token at place `at`."""
    token = heard.tokens[at]
    if heard.chances:
        trial.drawn_at(CHAT, heard.sampler.dist(row), token, heard.chances[at - heard.start])
        return
    likeliest = GREEDY.dist(row, with_belief=True)
    best = int(likeliest.ids[0])
    trial.likeliest_is(CHAT, likeliest.belief.prob(best), best == token)


def _places(
    tokens: Sequence[int], own: Sequence[int], start: int, target: LoadedModel, draft: LoadedModel
) -> Iterator[tuple[int, int]]:
    """Yield places in the draft's tokens whose rows are for a token of the answer, and the place of that token.

    They are where both texts have as many bytes to come: the prompt has marks, which may be spelled in other ways.
    """
    pieces = [target.model.piece(token) for token in tokens[start:]]
    to_come = list(accumulate(map(len, reversed(pieces))))[::-1]  # with the token itself
    ends = dict(zip(accumulate((len(draft.model.piece(token)) for token in reversed(own)), initial=0),
                    range(len(own) - 1, -1, -1), strict=False))  # fmt: skip
    for at, left in enumerate(to_come, start=start):
        if left in ends and pieces[at - start]:
            yield ends[left], at


def _is_usual(sampling: Sampling) -> bool:
    """Whether an answer has the temperatures of the shipped texts' trial, or none."""
    drafted_at = sampling.temperature if sampling.draft_temperature is None else sampling.draft_temperature
    return sampling.temperature == drafted_at and drafted_at in (0.0, Sampling().temperature)


def _can_read(draft: LoadedModel | None) -> bool:
    """Whether a draft model can read several tokens at once; a head reads the states of its target's own text."""
    if draft is None or draft.kind != "model":
        return False
    can = draft.backend.capabilities
    return can.can_rollback and can.max_rows > 1
