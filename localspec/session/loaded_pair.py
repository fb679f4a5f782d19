"""A loaded pair, which answers requests one at a time. It lives in the worker.

Models and caches stay from one answer to the next, so that a chat's next turn evaluates only new tokens. Everything
else is built for each request. All that happens is reported in events.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from localspec.backends.batch import ignored
from localspec.backends.breakers import sequence_breakers
from localspec.backends.lanes import Lane, SharedLane
from localspec.backends.passes import Passes
from localspec.control.company import nobody
from localspec.control.timing import prices_of
from localspec.engine import events
from localspec.engine.constraint import Constraint, is_whole
from localspec.engine.context import Context, Vocabulary
from localspec.engine.event_stream import stream_events
from localspec.engine.judge import Judge, Judging, LocalJudge
from localspec.engine.loop import Engine
from localspec.engine.protocols import Cancel, Cancelled, Clock
from localspec.engine.randomness import SeededRandom
from localspec.engine.repetition import Breakers
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Translation
from localspec.errors import IncompatibleError, LocalspecError
from localspec.lossless.questions import Subject, answer
from localspec.methods import DrafterContext
from localspec.methods._model import ModelDrafter
from localspec.models.gguf.draft_kinds import MASKS
from localspec.prompt.grammar import Grammars
from localspec.prompt.prompt import Tokenised, predicted, tokenise
from localspec.prompt.truncate import shortened, too_long
from localspec.session.controllers import COPY, PairController
from localspec.session.corpus import CorpusReader
from localspec.session.decision import Decision
from localspec.session.exit_drafts import EarlyExitDraft
from localspec.session.last_drafter import LastDrafter
from localspec.session.loaded_model import LoadedModel, lengthened
from localspec.session.prompt_scores import scored
from localspec.session.prompt_states import PromptStates
from localspec.session.survey import survey_pair
from localspec.session.trial import DraftTrial
from localspec.settings.jobs import PairQuestion, SurveyRequest, with_request
from localspec.settings.request import LoadSettings, Request, Sampling
from localspec.speculation import registered
from localspec.speculation.capabilities import Fitted, draft_temperature, fit_axes, require_tokens, writes_text
from localspec.speculation.reproducible import Narrow, exact, fit_widths, unbranched
from localspec.speculation.resolve import resolve_axes

if TYPE_CHECKING:
    from localspec.session.remote_target import RemoteTarget


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A target, perhaps a draft model, and everything that earlier answers and runs found out about them.

    `widths` are the rows that a pass may have, () where it may have any number. `cancel` is read between passes and
    inside prefill. `translation` is that of a draft model with other tokens than the target's. Answers `beside` this
    one have pairs of their own, made when they are needed, and all ask `passes` for theirs. `branching` holds the pair
    that `branched` made.
    """

    settings: LoadSettings
    target: LoadedModel
    draft: LoadedModel | None
    early_exit: EarlyExitDraft
    controllers: PairController
    cancel: Cancel
    clock: Clock
    states: PromptStates
    widths: tuple[int, ...] = ()
    translation: Translation | None = None
    last_drafter: LastDrafter = field(default_factory=LastDrafter)
    grammars: Grammars = field(default_factory=Grammars)
    corpora: CorpusReader = field(default_factory=CorpusReader)
    passes: Passes | None = None
    beside: tuple[Callable[[], LoadedPair], ...] = ()
    branching: list[LoadedPair] = field(default_factory=list)

    @property
    def n_ctx(self) -> int:
        return self.target.backend.capabilities.n_ctx

    @property
    def remote(self) -> RemoteTarget | None:
        return None if self.settings.verifier is None else cast("RemoteTarget", self.target.backend)

    @property
    def threads(self) -> int:
        return self.target.backend.threads

    def loaded(self, load_ms: float, versions: dict[str, str]) -> events.Loaded:
        can, lane = self.target.backend.capabilities, self.target.backend
        return events.Loaded(
            name=self.settings.name,
            target=self.target.facts(),
            draft=None if self.draft is None else self.draft.facts(),
            n_ctx=self.n_ctx,
            threads=self.threads,
            load_ms=load_ms,
            versions=versions,
            max_rows=can.max_rows if can.can_rollback else 1,
            max_leaves=lane.shared.own.max_leaves if isinstance(lane, SharedLane) else can.max_leaves,
            parallel=1 + len(self.beside),
        )

    def answer(self, request: Request) -> Iterator[events.Event]:
        """Answer one request. Cache and text agree whenever the iterator is dropped."""
        request.check()
        request, pair = request.never(self.target.model.suppressed), self
        try:
            decision = yield from pair.decide(request)
        except IncompatibleError:
            if (pair := self.branched()) is self:
                raise
            decision = yield from pair.decide(request)
        yield from Answering(pair, request, decision).run()

    def decide(self, request: Request) -> events.EventsThen[Decision]:
        """Return who drafts for a request. Raises UsageError or IncompatibleError for one that cannot be obeyed.

        The draft made of the target's own layers is loaded, if one drafts. One that was not named and cannot be loaded
        is left out, with a warning. The controller is the one that knows the target with that draft.
        """
        fitted, derived = self._fitted(request), None
        if self.remote is not None:
            self.remote.require(fitted.axes, request)
        method, options = registered("method")[fitted.axes.method], fitted.axes.options
        if method.info.has_derived_draft:
            choose = partial(method.layers, options)
            try:
                derived = yield from self.early_exit.load(choose, self.target, self.cancel, self.clock)
            except LocalspecError as error:
                if not fitted.axes.is_guarded:
                    raise
                self.early_exit.give_up()
                without = self._fitted(request)
                why = f"{error.message}; decoding runs without the early exit"
                fitted = replace(without, warnings=(*without.warnings, why))
        if derived is None:
            return Decision(fitted.axes, fitted.warnings, self.draft, is_derived=False, controllers=self.controllers)
        controllers = derived.controllers if fitted.axes.is_guarded else self.controllers
        return Decision(fitted.axes, fitted.warnings, derived.model, is_derived=True, controllers=controllers)

    def _fitted(self, request: Request) -> Fitted:
        """Resolve the options within what the loaded models can do; a warning for each that had to give way."""
        sampling, asked, target = request.sampling, request.speculation, self.target.capabilities()
        if self.widths:
            asked = exact(asked, sampling)
        elif target.capabilities.max_leaves == 1 and not target.capabilities.is_lane:  # a state follows one path
            asked = unbranched(asked)
        axes = resolve_axes(
            asked,
            has_draft=self.draft is not None,
            is_seeded=sampling.seed is not None or self.remote is not None,
            is_greedy=sampling.temperature == 0.0,
            has_exit=self.early_exit.pays,
            draft_kind=self.draft.kind if self.draft is not None else MASKS if self.target.model.masks else "",
        )
        fitted = fit_axes(axes, asked, target, None if self.draft is None else self.draft.capabilities())
        return fit_widths(fitted, asked, self.widths) if self.widths else fitted

    def inspect(self, question: PairQuestion) -> Iterator[events.Event]:
        """Answer a question about the pair; the caches are empty afterwards."""
        question.request.check()
        question = with_request(question, question.request.never(self.target.model.suppressed))
        decision = yield from self.decide(question.request)
        self.forget()
        prompt = self.tokenised(question.request)
        is_drafted = decision.axes.method == "draft-model" or decision.is_derived
        backend = decision.draft.backend if decision.draft is not None and is_drafted else None
        breakers = self.breakers(question.request.sampling)
        translation = None if decision.is_derived else self.translation
        subject = Subject(
            self.target.backend, backend, prompt.tokens, decision.axes, self.cancel, breakers, translation
        )
        yield events.Inspected(answer(question, subject))
        self.forget()

    def survey(self, asked: SurveyRequest) -> Iterator[events.Event]:
        """Time the passes of both models, and try the draft where that is kept; the caches are empty afterwards."""
        self.forget()
        if asked.is_kept and self.draft is not None:
            trial = DraftTrial(self.target, self.draft, self.translation, self.clock, self.cancel)
            yield from trial.learn(self.controllers.profile, is_asked=True)
        draft = None if self.draft is None else self.draft.backend
        target_times, times = yield from survey_pair(asked, self.target.backend, draft, self.clock, self.cancel)
        is_kept = False
        if asked.is_kept:
            self.controllers.profile.measured(prices_of(target_times, times, calibrated=time.time()))
            is_kept = self.controllers.profile.save()
        facts = {**self.controllers.profile.facts(), "is_kept": is_kept}
        drafting = None if times is None else times.to_wire()
        yield events.Inspected({"target": target_times.to_wire(), "draft": drafting, "profile": facts})

    def idle(self, is_asked: Cancel) -> None:
        """Do what can wait until nobody is waiting: `is_asked` tells whether somebody is again."""
        self.states.idle(is_asked)

    def close(self) -> None:
        self.corpora.close()
        self.last_drafter.drop()
        self.early_exit.close()
        for each in self.branching:
            each.target.backend.close()
        if self.draft is not None:
            self.draft.close()
        self.target.close()

    def branched(self, cancel: Cancel | None = None) -> LoadedPair:
        """Return a pair that verifies trees: itself, or one whose target has a context of its own, beside its lane.

        There is one such context for each `cancel`, which stops it in place of this pair's own. Raises ResourceError.
        """
        lane = self.target.backend
        if not isinstance(lane, SharedLane):
            return self
        stop = cancel or self.cancel
        made = next((each for each in self.branching if each.cancel is stop), None)
        if made is None:
            options = replace(lane.shared.own, threads=lane.threads)
            own = Lane(lane.passes, self.target.model, options, stop, lane.tell if cancel is None else ignored)
            target = replace(self.target, backend=own)
            made = replace(self, target=target, cancel=stop, last_drafter=LastDrafter(), grammars=Grammars())
            self.branching.append(made)
        return made

    def forget(self) -> None:
        self.last_drafter.drop()
        self.controllers.forget()
        models = [self.draft, self.target]
        if self.early_exit.loaded is not None:
            self.early_exit.loaded.controllers.forget()
            models.append(self.early_exit.loaded.model)
        for model in models:
            if model is not None:
                model.backend.truncate(0)

    def tokenised(self, request: Request, *, is_alone: bool = True) -> Tokenised:
        """Return the prompt, in a longer context or shortened if need be.

        Unless it `is_alone`, answers are under way: no context changes, and what cancels these is not asked. Raises
        PromptTooLongError, or Cancelled on the way there.
        """

        def tokens_of(asked: Request) -> Tokenised:
            if is_alone and self.cancel():
                raise Cancelled
            return tokenise(asked, self.target.model, self.target.specials)

        trained, whole, grown = self.target.info.n_ctx_train, tokens_of(request), tuple[str, ...]()
        if is_alone and self.settings.ctx is None:
            exit_ = self.early_exit.loaded
            drafts = [each for each in (self.draft, None if exit_ is None else exit_.model) if each is not None]
            grown = lengthened(request, len(whole.tokens), self.target, drafts)
        prompt = shortened(request, whole, self.n_ctx, trained, tokens_of)
        if len(prompt.tokens) >= self.n_ctx:
            raise too_long(len(prompt.tokens), self.n_ctx, trained)
        return replace(prompt, warnings=(*grown, *prompt.warnings))

    def breakers(self, sampling: Sampling) -> Breakers:
        """Return what breaks a repetition, in the target's tokens; nothing where no sampler asks."""
        if not Sampler(sampling).has_dry:
            return {}
        return sequence_breakers(self.target.model, sampling.dry_sequence_breaker)


@dataclass(slots=True)
class Answering:
    """One answer of a pair, from the prompt to the last token: `prepare` finds all that `engine` is made of.

    `began` is when the clock of the answer started: neither loading nor measuring is part of it.
    """

    pair: LoadedPair
    request: Request
    decision: Decision
    prompt: Tokenised = field(init=False)
    constraint: Constraint | None = field(init=False)
    seed: int = field(init=False)
    began: float = field(init=False)

    def run(self) -> Iterator[events.Event]:
        """Yield what happens. Raises what a request that cannot be obeyed does, before the first event."""
        yield from self.prepare()
        pair, request, prompt, controllers = self.pair, self.request, self.prompt, self.decision.controllers
        if request.scores_prompt:
            yield self._scores()
        draft = self.decision.own_draft if self._translation is None else None
        yield from pair.states.begin(request, [pair.target, *([draft] if draft else [])], prompt.tokens)
        vocabulary = Vocabulary(pair.target.model.is_eog, self._piece())
        stops = (*request.stop, *prompt.stops)
        context = Context(prompt.tokens, vocabulary, n_ctx=pair.n_ctx, max_tokens=request.max_tokens, stops=stops)
        for event in stream_events(
            self.engine(), context, vocabulary, details=request.details, began=self.began, marks=prompt.marks
        ):
            if isinstance(event, events.Prefilled):
                controllers.prefilled(event)
                pair.states.prefilled(event)
            if isinstance(event, events.Committed) and event.plain_ms is not None:
                controllers.measured(event.plain_ms, event.position)
            if pair.remote is not None:
                event = pair.remote.completed(event)
            if isinstance(event, events.Finished):
                event = replace(event, **controllers.findings(), saves=pair.states.n_bytes)
                if self.constraint is not None:
                    event = replace(event, is_whole=is_whole(self.constraint, context.tokens, pair.grammars.ends))
                yield from controllers.keep()
                yield from pair.corpora.lacks(request.speculation.corpus)
            yield event

    def prepare(self) -> Iterator[events.Event]:
        """Measure what is not known of the passes, and read the prompt; yields what begins an answer."""
        pair, request, decision = self.pair, self.request, self.decision
        if decision.controllers.must_measure():
            yield from self._measure()
        pair.target.backend.tune(decode_rows=1 if pair.widths else decision.controllers.decode_rows)
        if decision.draft is not None:
            decision.draft.backend.tune(reads_singly=decision.controllers.reads_singly)
        self.began = pair.clock()
        require_tokens(request.sampling, pair.target.model.n_vocab)
        if request.cold:
            pair.forget()
        self.prompt = pair.tokenised(request)
        self.constraint = pair.grammars.constraint(request, pair.target.model, self.prompt)
        self.seed = secrets.randbits(32) if request.sampling.seed is None else request.sampling.seed
        yield self._started()
        for warning in (*decision.warnings, *self.prompt.warnings, *decision.unused(request, pair.target)):
            yield events.Warned("request", warning)
        yield from decision.controllers.recall(len(self.prompt.tokens))

    def engine(self) -> Engine:
        """Return drafters, controller, judge and samplers, put together for this answer."""
        pair, request, axes, sampling = self.pair, self.request, self.decision.axes, self.request.sampling
        model, breakers, constraint = pair.target.model, pair.breakers(sampling), self.constraint
        drafting = (Sampler if pair.remote is None else pair.remote.drafting_sampler(axes))(
            sampling,
            temperature=draft_temperature(sampling, axes),
            breakers=breakers,
            constraint=constraint,
            drafts=True,
        )
        parts = DrafterContext(
            draft=None if self.decision.draft is None else self.decision.draft.backend,
            sampler=drafting,
            policy=axes.policy,
            cancel=pair.cancel,
            n_vocab=model.n_vocab,
            options=axes.options,
            is_eog=model.is_eog,
            translation=self._translation,
            writes_text=writes_text(axes, drafting),
            masks=model.masks,
            prediction=predicted(request, model),
            corpus=pair.corpora.corpus(request.speculation.corpus, pair.target, pair.cancel, waits=axes.must_repeat),
        )
        drafter = pair.last_drafter.get(parts, self.decision, sampling)
        controllers = self.decision.controllers
        copier = controllers.copier(axes, parts, sampling)
        n_others = nobody if pair.passes is None else pair.passes.n_beside
        controller = controllers.controller(axes, drafter, copier, parts, sampling, n_others)
        drafters = {axes.method: drafter} | ({} if copier is None else {COPY: copier})
        sampler, n_top = Sampler(sampling, breakers=breakers, constraint=constraint), request.logprobs
        rng = SeededRandom(self.seed)
        judge: Judge = LocalJudge(pair.target.backend, sampler, axes.verifier, rng)
        if pair.remote is not None:
            from localspec.remote.ahead import DraftingOn  # late: few pairs have a verifier

            meantime = DraftingOn(drafter, rng, pair.clock) if isinstance(drafter, ModelDrafter) else None
            judge = pair.remote.judge(axes, request, self.seed, self.prompt, rng, constraint, meantime)
        controller = Narrow(controller, pair.widths[-1]) if pair.widths else controller
        judging = None if n_top is None else Judging(n_top, sampler if request.is_after_sampler else None)
        return Engine(judge, drafters, controller, rng, pair.clock, pair.cancel, judging)

    @property
    def _translation(self) -> Translation | None:
        """Return that of a draft model with other tokens; a draft of the target's own layers has the same."""
        return None if self.decision.is_derived else self.pair.translation

    def _measure(self) -> Iterator[events.Event]:
        pair, controllers = self.pair, self.decision.controllers
        pair.states.stow(pair.target)
        pair.forget()  # the cost of a lone token is measured at the start of a text
        draft = pair.draft if controllers is pair.controllers else self.decision.draft
        yield from controllers.measure(pair.target.backend, None if draft is None else draft.backend, pair.cancel)

    def _started(self) -> events.Started:
        axes, draft = self.decision.axes, self.decision.draft
        return events.Started(
            method=axes.method,
            tree=axes.tree,
            length=axes.length,
            k=axes.shape.nodes,
            verify=axes.verify,
            seed=self.seed,
            is_seeded=self.request.sampling.seed is not None,
            prompt_n=len(self.prompt.tokens),
            is_lossless=axes.verifier.is_lossless,
            derived=draft.facts() if draft is not None and self.decision.is_derived else None,
            widths=self.pair.widths,
            left_out=self.prompt.left_out,
            n_ctx=self.pair.n_ctx,
        )

    def _scores(self) -> events.Event:
        pair, target = self.pair, self.pair.target
        if pair.remote is not None:
            raise IncompatibleError("the rows of a prompt stay with its verifier", hint="ask on that machine")
        pair.states.stow(target)
        n_top = self.request.logprobs or 0
        return scored(self.prompt.tokens, target.backend, target.model.piece, n_top, pair.cancel)

    def _piece(self) -> Callable[[int], bytes]:
        """Return how tokens become text: a control token is none, unless the prompt's form marks or shows it."""
        model, marks = self.pair.target.model, self.prompt.marks
        texts = [*self.prompt.shown, *(() if marks is None else (marks.start, marks.end, marks.skip))]
        marking = {token for text in texts for token in model.tokenize(text, parse_special=True)}
        return lambda token: model.piece(token, special=token in marking)
