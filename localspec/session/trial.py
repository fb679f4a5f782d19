"""The trial of a draft model: target and draft read the same shipped text, and their rows are compared.

So its acceptance is known before it drafts: what it would cost to find out in an answer may be more than the loss
account lends (control/auto.py). It is made once a pair and build of llama.cpp, while the pair is loaded.
"""

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
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


@dataclass(slots=True)
class DraftTrial:
    """Both models of a pair, which read a text: its first tokens, and then those whose rows are compared.

    The caches are empty, and are again. `translation` is None where the tokens of both are the same.
    """

    target: LoadedModel
    draft: LoadedModel
    translation: Translation | None
    clock: Clock
    cancel: Cancel

    def learn(self, profile: Profile, *, is_asked: bool = False) -> Iterator[events.Event]:
        """Let a profile know what the draft is worth: by an earlier trial of these files, else by one made now.

        Another build of llama.cpp computes other rows, so it has a trial of its own. Where that found fewer tokens
        right than the build before, with the same cache and devices, it is told, once. Raises Cancelled.
        """
        build = build_info().llama_cpp
        trials = [other.trial for other in profiles_of(profile.file.parent, profile.models) if other.trial is not None]
        known = [trial for trial in trials if trial.kinds]
        if profile.trial is None:
            profile.learn_trial(next((trial for trial in known if trial.build == build), None))
        has_none = profile.trial is None or not profile.trial.kinds
        if not ((has_none and is_asked) or _is_due(profile)) or not self._is_possible:
            return
        yield events.Loading(TRIAL, 0.0)
        run = events.Returning(self.run(math.inf if is_asked else MAX_SECONDS))
        for share in run:
            yield events.Loading(TRIAL, share)
        trial = replace(run.result, build=build, under="; ".join(map(_decisive, (self.target, self.draft))))
        profile.learn_trial(trial)
        before = next((earlier for earlier in known if earlier.under == trial.under), None)
        if before is not None and (shares := fallen(before, trial)) is not None:
            was, now = (f"{100 * share:.0f} %" for share in shares)
            earlier = f"llama.cpp {before.build}" if before.build else "the llama.cpp before"
            message = f"{now} of the draft's tokens are right on sample texts with llama.cpp {build}, and {was} were"
            yield events.Warned(FALLEN, f"{message} with {earlier}: drafts will gain less than they did")
        profile.save()

    def run(self, seconds: float) -> Generator[float, None, Trial]:
        """Return what a trial finds, yielding the share of it that is done; an empty one where it would take `seconds`.

        Raises Cancelled.
        """
        trial, began, read = Trial(), self.clock(), [0, 0]
        try:
            for done, (kind, text) in enumerate(texts().items()):
                if self.cancel():
                    raise Cancelled
                lead = self.clock()
                begun = self._begin(text, read)
                if not done and _is_too_long(self.clock() - lead, seconds):
                    break
                if begun is not None:
                    self._compare(trial, kind, *begun)
                yield (done + 1) / len(texts())
        except LocalspecError:  # a draft that cannot be tried is loaded all the same: an answer will tell
            trial = Trial()
        finally:
            for model in (self.target, self.draft):
                model.backend.truncate(0)
        spelled = read[1] / max(read[0], 1) if trial.kinds else 1.0
        return replace(trial, seconds=self.clock() - began, spelled=spelled)

    @property
    def _is_possible(self) -> bool:
        """Whether both can read a few rows at once; a head reads the states of its target's own text."""
        can = [model.backend.capabilities for model in (self.target, self.draft)]
        has_room = all(each.n_ctx >= 4 * (LEAD + COMPARED) and each.max_rows > 1 and each.can_rollback for each in can)
        return self.draft.info.head is None and has_room

    @property
    def _translated(self) -> Translation:
        return self.translation or SameTokens(self.target.model.n_vocab, self.draft.model.n_vocab)

    def _begin(self, text: str, read: list[int]) -> tuple[list[int], list[int], list[tuple[int, int]]] | None:
        """Read the start of a text, and count the tokens of both in `read`; None where both share no end of a token.

        Return the tokens that follow, of target and draft, and the places among both where both have such an end.
        """
        special, n_own = self.target.model.special, self.draft.backend.capabilities.max_rows
        begin = [special.bos] if special.add_bos and special.bos is not None else []
        most = LEAD + min(COMPARED, self.target.backend.capabilities.max_rows, n_own)
        tokens = [*begin, *self.target.model.tokenize(text.encode())][:most]
        own = list(self._translated.text(tokens))
        places = {end: at for at, end in enumerate(_ends(self.target, tokens)) if at >= LEAD}
        shared = [(places[end], at) for at, end in enumerate(_ends(self.draft, own)) if end in places and at > 0]
        if not shared:
            return None
        read[0], read[1] = read[0] + len(tokens), read[1] + len(own)
        first = shared[0][1]  # the draft's own places begin where the first one compared is
        for model, lead in ((self.target, tokens[:LEAD]), (self.draft, own[:first])):
            model.backend.truncate(0)
            model.backend.prefill(lead, self.cancel)
        own = own[first : first + n_own]
        return tokens[LEAD:], own, [(at - LEAD, n - first) for at, n in shared if n - first < len(own)]

    def _compare(self, trial: Trial, kind: str, tokens: list[int], own: list[int], at: list[tuple[int, int]]) -> None:
        read = ((self.target, tokens), (self.draft, own))
        wide, small = (model.backend.extend(text, range(-1, len(text) - 1)) for model, text in read)
        for place, own_place in at:
            row, guess = wide.logits(place), self._translated.row(small.logits(own_place))
            likeliest = GREEDY.dist(guess, with_belief=True)
            token = int(likeliest.ids[0])
            trial.likeliest_is(kind, likeliest.belief.prob(token), token == int(row.argmax()))
            trial.drawn_from(kind, USUAL.dist(row), USUAL.dist(guess))


def _is_due(profile: Profile) -> bool:
    """Whether there was no trial, or one was refused that the prices measured since would allow in half the time."""
    trial, prices = profile.trial, profile.prices
    if trial is None:
        return True
    if trial.kinds or not _is_too_long(trial.seconds, MAX_SECONDS) or prices is None or not prices.is_known:
        return False
    token = prices.of(COMPARED) / COMPARED + (prices.read.value or prices.draft.value)
    return len(texts()) * (LEAD + COMPARED) * token < MAX_SECONDS / 2


def _is_too_long(lead: float, seconds: float) -> bool:
    """Whether a trial would take over `seconds`, of which the first tokens of the first text took `lead`."""
    return lead * len(texts()) * (LEAD + COMPARED) > seconds * LEAD


def _decisive(model: LoadedModel) -> str:
    """Return what decides rows beside the file and llama.cpp: the cache's type, flash attention and the devices."""
    load = model.backend
    return ", ".join((load.options.kv_type, load.options.flash_attn, *load.capabilities.devices))


def _ends(model: LoadedModel, tokens: list[int]) -> list[int]:
    """Return how many bytes of text end with each token; tokens that stand for structure write none."""
    special = model.model.special
    return list(accumulate(0 if token == special.bos else len(model.model.piece(token)) for token in tokens))
