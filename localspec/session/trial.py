"""The trial of a draft model: target and draft read the same shipped text, and their rows are compared.

So its acceptance is known before it drafts: what it would cost to find out in an answer may be more than the loss
account lends (control/auto.py). It is made once a pair and build of llama.cpp, while the pair is loaded.
"""

import math
from collections.abc import Generator, Iterator
from functools import cache
from importlib.resources import files
from itertools import accumulate

from msgspec.structs import replace

from localspec.backends.build import build_info
from localspec.control.profile import Profile, profiles_of
from localspec.control.trial import Trial, fallen
from localspec.engine import events
from localspec.engine.protocols import Cancel, Cancelled, Clock
from localspec.engine.sampling import Sampler
from localspec.engine.translation import SameTokens, Translation
from localspec.errors import LocalspecError
from localspec.session.loaded_model import LoadedModel
from localspec.settings.request import Sampling

TRIAL = "trial of the draft"
FALLEN = "acceptance"  # code of the warning
LEAD = 12  # tokens of a text before the first that is compared
COMPARED = 32  # tokens of a text that are compared, at most
MAX_SECONDS = 10.0  # seconds that a trial may take: where the first tokens show that it would be more, none is made
GREEDY, USUAL = Sampler(Sampling(temperature=0.0)), Sampler(Sampling())


@cache
def texts() -> dict[str, str]:
    whole = files("localspec.session").joinpath("trial.txt").read_text("utf-8")
    sections = (part.partition("\n") for part in whole.split("=== ")[1:])
    return {kind.strip(): text.strip() for kind, _, text in sections}


def learn_draft(
    profile: Profile,
    target: LoadedModel,
    draft: LoadedModel,
    translation: Translation | None,
    clock: Clock,
    cancel: Cancel,
    *,
    is_asked: bool = False,
) -> Iterator[events.Event]:
    """Let a profile know what a draft model is worth: by an earlier trial of these files, else by one that is made now.

    Another build of llama.cpp computes other rows, so it has a trial of its own. Where that found fewer tokens right
    than the build before, with the same cache and devices, it is told, once. The caches are empty, and are again.
    Raises Cancelled.
    """
    build = build_info().llama_cpp
    trials = [other.trial for other in profiles_of(profile.file.parent, profile.models) if other.trial is not None]
    known = [trial for trial in trials if trial.kinds]
    if profile.trial is None:
        profile.learn_trial(next((trial for trial in known if trial.build == build), None))
    has_none = profile.trial is None or not profile.trial.kinds
    if not ((has_none and is_asked) or _is_due(profile)) or not _can_try(target, draft):
        return
    yield events.Loading(TRIAL, 0.0)
    seconds = math.inf if is_asked else MAX_SECONDS
    run = events.Returning(try_draft(target, draft, translation, clock, cancel, seconds))
    for share in run:
        yield events.Loading(TRIAL, share)
    trial = replace(run.result, build=build, under=_under(target, draft))
    profile.learn_trial(trial)
    before = next((earlier for earlier in known if earlier.under == trial.under), None)
    shares = None if before is None else fallen(before, trial)
    if before is not None and shares is not None:
        yield events.Warned(FALLEN, _fall_message(shares, before.build, build))
    profile.save()


def try_draft(
    target: LoadedModel,
    draft: LoadedModel,
    translation: Translation | None,
    clock: Clock,
    cancel: Cancel,
    seconds: float,
) -> Generator[float, None, Trial]:
    """Return what a trial finds, yielding the share of it that is done; an empty one where it would take `seconds`.

    Raises Cancelled.
    """
    trial, began, models = Trial(), clock(), (target.backend, draft.backend)
    readers = _Readers(target, draft, translation or SameTokens(target.model.n_vocab, draft.model.n_vocab), cancel)
    try:
        for done, (kind, text) in enumerate(texts().items()):
            if cancel():
                raise Cancelled
            lead = clock()
            has_lead = readers.begin(text)
            if not done and _is_too_long(clock() - lead, seconds):
                break
            if has_lead:
                readers.compare(trial, kind)
            yield (done + 1) / len(texts())
    except LocalspecError:  # a draft that cannot be tried is loaded all the same: an answer will tell
        trial = Trial()
    finally:
        for backend in models:
            backend.truncate(0)
    return replace(trial, seconds=clock() - began, spelled=readers.spelled if trial.kinds else 1.0)


def _is_due(profile: Profile) -> bool:
    """Whether there was no trial, or one was refused that the prices measured since would allow in half the time."""
    if profile.trial is None:
        return True
    prices = profile.prices
    if (
        profile.trial.kinds
        or not _is_too_long(profile.trial.seconds, MAX_SECONDS)
        or prices is None
        or not prices.is_known
    ):
        return False
    token = prices.of(COMPARED) / COMPARED + (prices.read.value or prices.draft.value)
    return len(texts()) * (LEAD + COMPARED) * token < MAX_SECONDS / 2


def _is_too_long(lead: float, seconds: float) -> bool:
    """Whether a trial would take over `seconds`, of which the first tokens of the first text took `lead`."""
    return lead * len(texts()) * (LEAD + COMPARED) > seconds * LEAD


def _under(*models: LoadedModel) -> str:
    """Return what decides rows beside the files and llama.cpp: the cache's types, flash attention and the devices."""
    loads = [model.backend for model in models]
    return "; ".join(
        ", ".join((load.options.kv_type, load.options.flash_attn, *load.capabilities.devices)) for load in loads
    )


def _fall_message(shares: tuple[float, float], before: str, now: str) -> str:
    was, is_ = (f"{100 * share:.0f} %" for share in shares)
    with_ = f"llama.cpp {before}" if before else "the llama.cpp before"
    return (
        f"{is_} of the draft's tokens are right on sample texts with llama.cpp {now}, and {was} were with {with_}: "
        "drafts will gain less than they did"
    )


def _can_try(target: LoadedModel, draft: LoadedModel) -> bool:
    """Whether both can read a few rows at once; a head reads the states of its target's own text."""
    can = [model.backend.capabilities for model in (target, draft)]
    has_room = all(each.n_ctx >= 4 * (LEAD + COMPARED) and each.max_rows > 1 and each.can_rollback for each in can)
    return draft.info.head is None and has_room


class _Readers:
    """Both models, which read a text: its first tokens, and then those whose rows are compared."""

    def __init__(self, target: LoadedModel, draft: LoadedModel, translation: Translation, cancel: Cancel) -> None:
        self._target, self._draft, self._translation, self._cancel = target, draft, translation, cancel
        can = target.backend.capabilities, draft.backend.capabilities
        self._rows = min(COMPARED, *(capabilities.max_rows for capabilities in can))
        self._n_tokens = self._n_own = 0  # of all texts
        self._tokens: list[int] = []  # of the target, that are compared; likewise those of the draft
        self._own: list[int] = []
        self._shared: list[tuple[int, int]] = []  # places among both where both have the end of a token

    def begin(self, text: str) -> bool:
        special = self._target.model.special
        begin = [special.bos] if special.add_bos and special.bos is not None else []
        tokens = [*begin, *self._target.model.tokenize(text.encode())][: LEAD + self._rows]
        own = list(self._translation.text(tokens))
        places = {end: at for at, end in enumerate(_ends(self._target, tokens)) if at >= LEAD}
        shared = [(places[end], at) for at, end in enumerate(_ends(self._draft, own)) if end in places and at > 0]
        if not shared:
            return False
        self._n_tokens += len(tokens)
        self._n_own += len(own)
        first = shared[0][1]  # the draft's own places begin where the first one compared is
        for model, lead in ((self._target, tokens[:LEAD]), (self._draft, own[:first])):
            model.backend.truncate(0)
            model.backend.prefill(lead, self._cancel)
        self._tokens, self._own = tokens[LEAD:], own[first : first + self._draft.backend.capabilities.max_rows]
        self._shared = [(at - LEAD, own_at - first) for at, own_at in shared if own_at - first < len(self._own)]
        return True

    @property
    def spelled(self) -> float:
        """Tokens of the draft for one of the target, in what was read."""
        return self._n_own / max(self._n_tokens, 1)

    def compare(self, trial: Trial, kind: str) -> None:
        read = ((self._target, self._tokens), (self._draft, self._own))
        wide, small = (model.backend.extend(tokens, range(-1, len(tokens) - 1)) for model, tokens in read)
        for at, own_at in self._shared:
            row, guess = wide.logits(at), self._translation.row(small.logits(own_at))
            likeliest = GREEDY.dist(guess, with_belief=True)
            token = int(likeliest.ids[0])
            trial.likeliest_is(kind, likeliest.belief.prob(token), token == int(row.argmax()))
            trial.drawn_from(kind, USUAL.dist(row), USUAL.dist(guess))


def _ends(model: LoadedModel, tokens: list[int]) -> list[int]:
    """Return how many bytes of text end with each token; tokens that stand for structure write none."""
    special = model.model.special
    return list(accumulate(0 if token == special.bos else len(model.model.piece(token)) for token in tokens))
