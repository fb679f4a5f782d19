"""A loaded pair, which answers requests one at a time. It lives in the worker.

Models and caches stay from one answer to the next, so that a chat's next turn evaluates only new tokens. Everything
else is built for each request. All that happens is reported in events.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from localspec.backends.lanes import Lane, SharedLane
from localspec.backends.model import sequence_breakers
from localspec.backends.passes import Passes
from localspec.control.company import nobody
from localspec.engine import events
from localspec.engine.constraint import Constraint, is_whole
from localspec.engine.context import Context, Vocabulary
from localspec.engine.event_stream import stream_events
from localspec.engine.judge import Judging
from localspec.engine.loop import Engine
from localspec.engine.protocols import Cancel, Cancelled, Clock
from localspec.engine.randomness import SeededRandom
from localspec.engine.repetition import Breakers
from localspec.engine.sampling import Sampler
from localspec.engine.text import Marks
from localspec.engine.translation import Translation
from localspec.errors import IncompatibleError
from localspec.lossless.questions import Subject, answer
from localspec.methods import DrafterContext
from localspec.methods._model import ModelDrafter
from localspec.prompt.grammar import Grammars
from localspec.prompt.prompt import Tokenised, predicted, tokenise
from localspec.prompt.truncate import shortened, too_long
from localspec.session.controllers import COPY, PairController
from localspec.session.corpus import CorpusReader
from localspec.session.decision import Decision, LastDrafter, decide
from localspec.session.early_exit import EarlyExitDraft
from localspec.session.loaded_model import LoadedModel, lengthened
from localspec.session.prompt_scores import scored
from localspec.session.prompt_states import PromptStates
from localspec.session.survey import survey_pair
from localspec.settings.jobs import PairQuestion, SurveyRequest, with_request
from localspec.settings.request import LoadSettings, Request, Sampling
from localspec.speculation.capabilities import draft_temperature, require_tokens, writes_text
from localspec.speculation.reproducible import narrowed

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
        """Return the tokens that the target's context holds."""
        return self.target.backend.capabilities.n_ctx

    @property
    def remote(self) -> RemoteTarget | None:
        """Return the target if it is on another machine."""
        return None if self.settings.verifier is None else cast("RemoteTarget", self.target.backend)

    @property
    def threads(self) -> int:
        return self.target.backend.threads

    def loaded(self, load_ms: float, versions: dict[str, str]) -> events.Loaded:
        """Return the event that ends loading."""
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
        request = request.never(self.target.model.suppressed)
        try:
            decision = yield from decide(request, self)
        except IncompatibleError:
            if (branched := self.branched()) is self:
                raise
        else:
            branched = self
        if branched is not self:
            yield from branched.answer(request)
            return
        yield from self._measure(decision)
        self.target.backend.tune(decode_rows=1 if self.widths else decision.controllers.decode_rows)
        if decision.draft is not None:
            decision.draft.backend.tune(reads_singly=decision.controllers.reads_singly)
        began = self.clock()  # neither loading nor measuring is part of the answer
        require_tokens(request.sampling, self.target.model.n_vocab)
        if request.cold:
            self.forget()
        prompt = self.tokenised(request)
        constraint = self.grammars.constraint(request, self.target.model, prompt)
        seed = secrets.randbits(32) if request.sampling.seed is None else request.sampling.seed
        yield self._started(decision, request, seed, prompt)
        for warning in (*decision.warnings, *prompt.warnings, *decision.unused(request, self.target)):
            yield events.Warned("request", warning)
        yield from decision.controllers.recall(len(prompt.tokens))
        if request.scores_prompt:
            target = self.target
            if self.remote is not None:
                raise IncompatibleError("the rows of a prompt stay with its verifier", hint="ask on that machine")
            self.states.stow(target)
            yield scored(prompt.tokens, target.backend, target.model.piece, request.logprobs or 0, self.cancel)
        yield from self._decode(decision, request, seed, prompt, constraint, began)

    def inspect(self, question: PairQuestion) -> Iterator[events.Event]:
        """Answer a question about the pair; the caches are empty afterwards."""
        question.request.check()
        question = with_request(question, question.request.never(self.target.model.suppressed))
        decision = yield from decide(question.request, self)
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
        """Time the passes of both models, for the profile too if that is asked; the caches are empty afterwards."""
        self.forget()
        draft = None if self.draft is None else self.draft.backend
        found = yield from survey_pair(asked, self.target.backend, draft, self.clock, self.cancel)
        is_kept = False
        if asked.is_kept:
            self.controllers.profile.measured(found.prices(calibrated=time.time()))
            is_kept = self.controllers.profile.save()
        profile = {**self.controllers.profile.told(), "is_kept": is_kept}
        yield events.Inspected({**found.to_wire(), "profile": profile})

    def idle(self, is_asked: Cancel) -> None:
        """Do what can wait until nobody is waiting: `is_asked` tells whether somebody is again."""
        self.states.idle(is_asked)

    def close(self) -> None:
        """Free all models. Nothing can be asked of the pair afterwards."""
        self.corpora.close()
        self.last_drafter.drop()
        self.early_exit.close()
        for each in self.branching:
            each.target.backend.close()
        if self.draft is not None:
            self.draft.close()
        self.target.close()

    def branched(self) -> LoadedPair:
        """Return a pair that verifies trees: itself, or one whose target has a context of its own, beside its lane.

        Raises ResourceError.
        """
        lane = self.target.backend
        if not isinstance(lane, SharedLane):
            return self
        if not self.branching:
            options = replace(lane.shared.own, threads=lane.threads)
            own = Lane(lane.passes, self.target.model, options, self.cancel, lane.tell)
            target = replace(self.target, backend=own)
            self.branching.append(replace(self, target=target, last_drafter=LastDrafter(), grammars=Grammars()))
        return self.branching[0]

    def forget(self) -> None:
        """Empty every cache and drop the drafter with what it learned of the text."""
        self.last_drafter.drop()
        self.controllers.forget()
        models = [self.draft, self.target]
        if self.early_exit.loaded is not None:
            self.early_exit.loaded.controllers.forget()
            models.append(self.early_exit.loaded.model)
        for model in models:
            if model is not None:
                model.backend.truncate(0)

    def tokenised(self, request: Request) -> Tokenised:
        """Return the prompt, in a longer context or shortened if need be.

        Raises PromptTooLongError, or Cancelled on the way there.
        """

        def tokens_of(asked: Request) -> Tokenised:
            if self.cancel():
                raise Cancelled
            return tokenise(asked, self.target.model, self.target.specials)

        trained = self.target.info.n_ctx_train
        whole = tokens_of(request)
        exit_ = self.early_exit.loaded
        drafts = [each for each in (self.draft, None if exit_ is None else exit_.model) if each is not None]
        told = lengthened(request, len(whole.tokens), self.target, drafts) if self.settings.ctx is None else ()
        prompt = shortened(request, whole, self.n_ctx, trained, tokens_of)
        if len(prompt.tokens) >= self.n_ctx:
            raise too_long(len(prompt.tokens), self.n_ctx, trained)
        return replace(prompt, warnings=(*told, *prompt.warnings))

    def fitted(self, request: Request) -> Tokenised:
        """Return the prompt, shortened if need be; no context changes, so answers may be under way."""

        def tokens_of(asked: Request) -> Tokenised:
            return tokenise(asked, self.target.model, self.target.specials)

        trained = self.target.info.n_ctx_train
        prompt = shortened(request, tokens_of(request), self.n_ctx, trained, tokens_of)
        if len(prompt.tokens) >= self.n_ctx:
            raise too_long(len(prompt.tokens), self.n_ctx, trained)
        return prompt

    def _measure(self, decision: Decision) -> Iterator[events.Event]:
        """Measure the costs of passes the first time that the controller of a request needs them."""
        controllers = decision.controllers
        if not controllers.must_measure():
            return
        self.states.stow(self.target)
        self.forget()  # the cost of a lone token is measured at the start of a text
        draft = self.draft if controllers is self.controllers else decision.draft
        yield from controllers.measure(self.target.backend, None if draft is None else draft.backend, self.cancel)

    def _started(self, decision: Decision, request: Request, seed: int, prompt: Tokenised) -> events.Started:
        """Return the event that begins an answer."""
        axes = decision.axes
        return events.Started(
            method=axes.method,
            tree=axes.tree,
            length=axes.length,
            k=axes.shape.nodes,
            verify=axes.verify,
            seed=seed,
            is_seeded=request.sampling.seed is not None,
            prompt_n=len(prompt.tokens),
            is_lossless=axes.verifier.is_lossless,
            derived=decision.draft.facts() if decision.draft is not None and decision.is_derived else None,
            widths=self.widths,
            left_out=prompt.left_out,
            n_ctx=self.n_ctx,
        )

    def _decode(
        self,
        decision: Decision,
        request: Request,
        seed: int,
        prompt: Tokenised,
        constraint: Constraint | None,
        began: float,
    ) -> Iterator[events.Event]:
        """Decode, and keep what the passes teach."""
        controllers = decision.controllers
        draft = decision.own_draft if self.translation is None or decision.is_derived else None
        yield from self.states.begin(request, [self.target, *([draft] if draft else [])], prompt.tokens)
        vocabulary = Vocabulary(self.target.model.is_eog, self._piece(prompt.marks, prompt.shown))
        stops = (*request.stop, *prompt.stops)
        context = Context(prompt.tokens, vocabulary, n_ctx=self.n_ctx, max_tokens=request.max_tokens, stops=stops)
        engine = self._engine(decision, request, seed, constraint, prompt)
        remote = self.remote
        for event in stream_events(
            engine, context, vocabulary, details=request.details, began=began, marks=prompt.marks
        ):
            if isinstance(event, events.Prefilled):
                controllers.prefilled(event)
                self.states.prefilled(event)
            if isinstance(event, events.Committed) and event.plain_ms is not None:
                controllers.measured(event.plain_ms, event.position)
            if remote is not None:
                event = remote.told(event)
            if isinstance(event, events.Finished):
                event = replace(event, **controllers.findings(), saves=self.states.n_bytes)
                if constraint is not None:
                    event = replace(event, is_whole=is_whole(constraint, context.tokens, self.grammars.ends))
                yield from controllers.keep()
                yield from self.corpora.lacks(request.speculation.corpus)
            yield event

    def breakers(self, sampling: Sampling) -> Breakers:
        """Return what breaks a repetition, in the target's tokens; nothing where no sampler asks."""
        if not Sampler(sampling).has_dry:
            return {}
        return sequence_breakers(self.target.model, sampling.dry_sequence_breaker)

    def _piece(self, marks: Marks | None, shown: Sequence[str]) -> Callable[[int], bytes]:
        """Return how tokens become text: a control token is none, unless it marks the reasoning or is `shown`."""
        model = self.target.model
        texts = [*shown, *(() if marks is None else (marks.start, marks.end, marks.skip))]
        marking = {token for text in texts for token in model.tokenize(text, parse_special=True)}
        return lambda token: model.piece(token, special=token in marking)

    def _engine(
        self, decision: Decision, request: Request, seed: int, constraint: Constraint | None, prompt: Tokenised
    ) -> Engine:
        """Put the parts together for one request."""
        axes, sampling, breakers = decision.axes, request.sampling, self.breakers(request.sampling)
        drafting = (Sampler if self.remote is None else self.remote.drafting_sampler(axes))(
            sampling,
            temperature=draft_temperature(sampling, axes),
            breakers=breakers,
            constraint=constraint,
            drafts=True,
        )
        parts = DrafterContext(
            draft=None if decision.draft is None else decision.draft.backend,
            sampler=drafting,
            policy=axes.policy,
            cancel=self.cancel,
            n_vocab=self.target.model.n_vocab,
            options=axes.options,
            is_eog=self.target.model.is_eog,
            translation=None if decision.is_derived else self.translation,
            writes_text=writes_text(axes, drafting),
            masks=self.target.model.masks,
            prediction=predicted(request, self.target.model),
            corpus=self.corpora.corpus(request.speculation.corpus, self.target, self.cancel, waits=axes.must_repeat),
        )
        drafter = self.last_drafter.get(parts, decision, sampling)
        copier = decision.controllers.copier(axes, parts, sampling)
        n_others = nobody if self.passes is None else self.passes.n_beside
        controller = decision.controllers.controller(axes, drafter, copier, parts, sampling, n_others)
        drafters = {axes.method: drafter} | ({} if copier is None else {COPY: copier})
        sampler, n_top = Sampler(sampling, breakers=breakers, constraint=constraint), request.logprobs
        rng = SeededRandom(seed)
        if self.remote is not None:
            from localspec.remote.ahead import DraftingOn  # late: few pairs have a verifier

            meantime = DraftingOn(drafter, rng, self.clock) if isinstance(drafter, ModelDrafter) else None
            judge = self.remote.judge(axes, request, seed, prompt, rng, constraint, meantime)
            return Engine(judge, drafters, controller, rng, self.clock, self.cancel)
        return Engine.local(
            target=self.target.backend,
            controller=narrowed(controller, self.widths),
            drafters=drafters,
            verifier=axes.verifier,
            sampler=sampler,
            rng=rng,
            clock=self.clock,
            cancel=self.cancel,
            judging=None if n_top is None else Judging(n_top, sampler if request.is_after_sampler else None),
        )
