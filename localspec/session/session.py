"""The composition root: settings become models, backends, a drafter, a verifier and a controller, and those an Engine.

A session lives in the worker. Models and caches stay from one answer to the next, so a chat's next turn evaluates only
what is new; everything else is built for each request. What happens is told in events.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.rpc import add_servers
from localspec.control.profile import Profile
from localspec.control.timing import Survey
from localspec.engine import events
from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Draw
from localspec.engine.event_stream import stream_events
from localspec.engine.loop import Engine
from localspec.engine.protocols import Cancel, Cancelled, Clock, Drafter
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.errors import InternalError, LocalspecError, ResourceError
from localspec.lossless.questions import Question, Subject, answer
from localspec.methods import DrafterContext, registered, resolve
from localspec.models.pairs import require_fit
from localspec.prompt.prompt import Tokenised, tokenise
from localspec.prompt.truncate import shortened, too_long
from localspec.session.calibration import known_widths, remembered, survey_pair
from localspec.session.controllers import PairController
from localspec.session.early_exit import EarlyExitDraft
from localspec.session.loading import Loaded, doubts_of, inspect_model, load_model, versions
from localspec.session.placement import InspectedModel, first_step
from localspec.settings.request import LoadSettings, Request, Sampling
from localspec.speculation.capabilities import draft_temperature, fit_axes, require_tokens
from localspec.speculation.reproducible import exact, fit_widths, narrowed
from localspec.speculation.resolve import Axes, resolve_axes


class Session:
    """A loaded pair that answers requests, one at a time. `cancel` is read between passes and inside prefill."""

    def __init__(self, cancel: Cancel, clock: Clock = time.perf_counter) -> None:
        self._cancel = cancel
        self._clock = clock
        self._target: Loaded | None = None
        self._draft: Loaded | None = None
        self._settings = LoadSettings("")
        self._deriving: EarlyExitDraft | None = None
        self._widths: tuple[int, ...] = ()  # rows that a pass may have, () where it may have any number
        self._drafted: tuple[object, Drafter] | None = None  # the last answer's, and what it was built from
        self._controllers: PairController | None = None
        self._exit_controllers: tuple[Loaded, PairController] | None = (
            None  # of the target with a draft of its own layers
        )

    def load(self, settings: LoadSettings) -> Iterator[events.Event]:
        """Check the files, load the pair, and say so. A pair loaded before is closed first."""
        self.close()
        self._settings = settings
        began = self._clock()
        if settings.rpc:
            add_servers(settings.rpc)
        target = inspect_model(settings.target)
        draft = None if settings.draft is None else inspect_model(settings.draft)
        warnings = () if draft is None else require_fit(target.info, draft.info).warnings
        warnings += doubts_of(settings, target.info)
        deriving = EarlyExitDraft(settings, target)
        if draft is None:
            warnings += deriving.find(target)
        warnings += yield from self._load_pair(settings, target, draft)
        assert self._target is not None
        self._deriving = deriving
        if self._draft is not None:
            limit = self._draft.backend.capabilities.n_ctx
            if limit < self._target.backend.capabilities.n_ctx:
                warnings += (f"the draft model reads at most {limit} tokens: beyond them decoding is plain",)
        self._controllers = self._steered(self._draft)
        if settings.reproducible:
            profile = self._controllers.profile if self._draft is None else self._profile(None)
            self._widths = yield from known_widths(profile, self._target.backend, self._clock, self._cancel)
        for warning in warnings:
            yield events.Warned("pair", warning)
        yield events.Loaded(
            name=settings.name,
            target=self._target.facts(),
            draft=None if self._draft is None else self._draft.facts(),
            n_ctx=self._target.backend.capabilities.n_ctx,
            threads=self._target.backend.threads,
            load_ms=1e3 * (self._clock() - began),
            versions=versions(),
        )

    def _load_pair(
        self, settings: LoadSettings, target: InspectedModel, draft: InspectedModel | None
    ) -> Generator[events.Event, None, tuple[str, ...]]:
        """Load both models where they are to go; return what to warn of.

        Where the memory that was counted on is not there, one step smaller is tried, and then it is said what is
        missing.
        """
        step = first_step(settings, target, draft)
        while True:
            try:
                self._target = yield from load_model(target, step.target, "target", self._cancel)
                if draft is not None and step.draft is not None:
                    self._draft = yield from load_model(draft, step.draft, "draft", self._cancel)
                return step.warnings
            except ResourceError as error:
                self.close()
                step = step.smaller(error)
            except BaseException:
                self.close()
                raise

    def generate(self, request: Request) -> Iterator[events.Event]:
        """Answer one request. Cache and text agree whenever the iterator is dropped."""
        request.check()
        if self._target is None:
            raise InternalError("no model is loaded", hint="load a pair first")
        request = request.never(self._target.model.suppressed)
        axes, warnings, draft = yield from self._decided(request)
        controllers = self._steering_of(axes, draft)
        yield from self._measured(axes, draft, controllers)
        self._target.backend.decode_rows = 1 if self._widths else controllers.decode_rows
        began = self._clock()  # neither loading nor measuring is part of the answer
        require_tokens(request.sampling, self._target.model.n_vocab)
        if request.cold:
            self._forget()
            axes = axes.cold()
        prompt = self._prompt(request)
        seed = secrets.randbits(32) if request.sampling.seed is None else request.sampling.seed
        yield events.Started(
            method=axes.method,
            tree=axes.tree,
            length=axes.length,
            k=axes.shape.nodes,
            verify=axes.verify,
            seed=seed,
            is_seeded=request.sampling.seed is not None,
            prompt_n=len(prompt.tokens),
            is_lossless=axes.verifier.is_lossless,
            derived=None if draft is None or draft is self._draft else draft.facts(),
            widths=self._widths,
        )
        for warning in (*warnings, *prompt.warnings):
            yield events.Warned("request", warning)
        vocabulary = Vocabulary(self._target.model.is_eog, self._target.model.piece)
        n_ctx = self._target.backend.capabilities.n_ctx
        context = Context(prompt.tokens, vocabulary, n_ctx=n_ctx, max_tokens=request.max_tokens, stops=request.stop)
        yield from controllers.recall(len(prompt.tokens))
        engine = self._engine(None if draft is None else draft.backend, axes, request.sampling, seed, controllers)
        for event in stream_events(engine, context, vocabulary, details=request.details, began=began):
            if isinstance(event, events.Prefilled):
                controllers.prefilled(event)
            if isinstance(event, events.Committed) and event.plain_ms is not None:
                controllers.measured(event.plain_ms, event.position)
            if isinstance(event, events.Finished):
                event = replace(event, **controllers.findings())
                yield from controllers.keep()
            yield event

    def inspect(self, question: Question) -> Iterator[events.Event]:
        """Answer a question about the pair; the caches are empty afterwards."""
        question.request.check()
        assert self._target is not None, "a pair is loaded first"
        question = replace(question, request=question.request.never(self._target.model.suppressed))
        axes, _, draft = yield from self._decided(question.request)
        self._forget()
        prompt = self._prompt(question.request)
        is_drafted = axes.method == "draft-model" or draft is not self._draft
        backend = draft.backend if draft is not None and is_drafted else None
        subject = Subject(self._target.backend, backend, prompt.tokens, axes, self._cancel)
        yield events.Inspected(answer(question, subject))
        self._forget()

    def survey(self, asked: Survey) -> Iterator[events.Event]:
        """Time the passes of both models, for the profile too if that is asked; the caches are empty afterwards."""
        assert self._target is not None, "a pair is loaded first"
        assert self._controllers is not None
        self._forget()
        draft = None if self._draft is None else self._draft.backend
        found = yield from survey_pair(asked, self._target.backend, draft, self._clock, self._cancel)
        is_kept = False
        if asked.is_kept:
            prices = found.prices
            prices.calibrated = time.time()
            self._controllers.profile.renew(prices)
            is_kept = self._controllers.profile.save()
        profile = {**self._controllers.profile.told(), "is_kept": is_kept}
        yield events.Inspected({**found.to_wire(), "profile": profile})

    def close(self) -> None:
        """Free all models; the session can load again."""
        self._widths = ()
        self._drafted = self._exit_controllers = None
        if self._deriving is not None:
            self._deriving.close()
        for loaded in (self._draft, self._target):
            if loaded is not None:
                loaded.close()
        self._target = self._draft = self._deriving = self._controllers = None

    def _forget(self) -> None:
        """Empty every cache and drop the drafters with what they learned of the text."""
        self._drafted = None
        if self._controllers is not None:
            self._controllers.forget()
        if self._exit_controllers is not None:
            self._exit_controllers[1].forget()
        derived = None if self._deriving is None else self._deriving.loaded
        for loaded in (derived, self._draft, self._target):
            if loaded is not None:
                loaded.backend.truncate(0)

    def _prompt(self, request: Request) -> Tokenised:
        """Return the prompt, shortened if that is asked. Raises PromptTooLongError, or Cancelled on the way there."""
        assert self._target is not None
        target, n_ctx = self._target, self._target.backend.capabilities.n_ctx

        def tokenised(asked: Request) -> Tokenised:
            if self._cancel():
                raise Cancelled
            return tokenise(asked, target.model, target.specials)

        prompt = shortened(request, n_ctx, tokenised)
        if len(prompt.tokens) >= n_ctx:
            raise too_long(len(prompt.tokens), n_ctx, self._target.info.n_ctx_train)
        return prompt

    def _axes(self, request: Request) -> tuple[Axes, tuple[str, ...]]:
        """Decide the axes within what the models can do; what had to give way becomes a warning."""
        assert self._target is not None
        sampling = request.sampling
        asked = exact(request.speculation, sampling) if self._widths else request.speculation
        axes = resolve_axes(
            asked,
            has_draft=self._draft is not None,
            is_seeded=sampling.seed is not None,
            is_greedy=sampling.temperature == 0.0,
            has_exit=self._deriving is not None and self._deriving.pays,
        )
        fitted = fit_axes(axes, asked, self._target.held(), None if self._draft is None else self._draft.held())
        fitted = fit_widths(fitted, asked, self._widths) if self._widths else fitted
        return fitted.axes, fitted.warnings

    def _decided(self, request: Request) -> Generator[events.Event, None, tuple[Axes, tuple[str, ...], Loaded | None]]:
        """Return the axes, what to warn of, and the model that drafts, which is loaded if it is not yet.

        An early exit that nobody asked for by name and that cannot be had is done without.
        """
        axes, warnings = self._axes(request)
        try:
            return axes, warnings, (yield from self._drafting(axes))
        except LocalspecError as error:
            assert self._deriving is not None
            if not axes.is_guarded:
                raise
            self._deriving.give_up()
            axes, warnings = self._axes(request)
            return axes, (*warnings, f"{error.message}; decoding goes without the early exit"), self._draft

    def _drafting(self, axes: Axes) -> Generator[events.Event, None, Loaded | None]:
        """Return the model that drafts: the pair's, or one made of the target's own layers, which stays loaded."""
        method = resolve(registered()[axes.method])
        if not method.info.has_derived_draft:
            return self._draft
        assert self._target is not None
        assert self._deriving is not None
        n_ctx = self._target.backend.capabilities.n_ctx
        return (yield from self._deriving.load(partial(method.layers, axes.options), n_ctx, self._cancel))

    def _steering_of(self, axes: Axes, draft: Loaded | None) -> PairController:
        """Return what plans for the pair, or for the target with the early exit that `auto` took."""
        assert self._controllers is not None
        if draft is None or draft is self._draft or not axes.is_guarded:
            return self._controllers
        if self._exit_controllers is None or self._exit_controllers[0] is not draft:
            self._exit_controllers = draft, self._steered(draft)
        return self._exit_controllers[1]

    def _measured(self, axes: Axes, draft: Loaded | None, controllers: PairController) -> Iterator[events.Event]:
        """See to it that a controller knows what passes cost, the first time one is asked for."""
        assert self._target is not None
        if not controllers.must_measure(axes):
            return
        self._forget()  # what a lone token costs is found out at the start of a text
        draft = self._draft if controllers is self._controllers else draft
        yield from controllers.measure(self._target.backend, None if draft is None else draft.backend, self._cancel)

    def _engine(
        self, draft: LlamaBackend | None, axes: Axes, sampling: Sampling, seed: int, controllers: PairController
    ) -> Engine:
        """Put the parts together for one request."""
        assert self._target is not None
        target = self._target.backend
        parts = self._parts(draft, axes, sampling)
        drafters = {axes.method: self._drafter(parts, axes, sampling)}
        temperature = sampling.temperature if sampling.draft_temperature is None else sampling.draft_temperature
        rule, draw = f"{axes.verify} {axes.draw.value} {sampling.temperature:g} {temperature:g}", axes.draw
        if sampling.temperature == temperature == 0.0 and draw is not Draw.FIXED:
            # Nothing is left to chance: any rule keeps the draft's likeliest token where it is the target's, and the
            # draft's probability tells of that what a lead in the race tells elsewhere.
            rule, draw = "greedy", Draw.COUPLED
        acceptance = controllers.profile.accepted(f"{axes.method} {dict(axes.options)} {rule}", draw)
        controller = controllers.controller(axes, drafters, acceptance, parts, sampling.temperature)
        return Engine(
            target=target,
            controller=narrowed(controller, self._widths),
            drafters=drafters,
            verifier=axes.verifier,
            sampler=Sampler(sampling),
            rng=SeededRandom(seed),
            clock=self._clock,
            cancel=self._cancel,
        )

    def _parts(self, draft: LlamaBackend | None, axes: Axes, sampling: Sampling) -> DrafterContext:
        """Return what a method's drafter is built from."""
        assert self._target is not None
        return DrafterContext(
            draft=draft,
            sampler=Sampler(sampling, temperature=draft_temperature(sampling, axes)),
            policy=axes.policy,
            cancel=self._cancel,
            n_vocab=self._target.model.n_vocab,
            options=axes.options,
            is_eog=self._target.model.is_eog,
        )

    def _drafter(self, parts: DrafterContext, axes: Axes, sampling: Sampling) -> Drafter:
        """Build the drafter, or go on with the last answer's: what was learned in a chat stays of use."""
        options = tuple(axes.options.items())
        tempered = replace(sampling, seed=None, draft_temperature=draft_temperature(sampling, axes))
        key = (axes.method, axes.tree, axes.draw, options, tempered, id(parts.draft))
        if self._drafted is None or self._drafted[0] != key:
            self._drafted = key, resolve(registered()[axes.method]).build(parts)
        return self._drafted[1]

    def _steered(self, draft: Loaded | None) -> PairController:
        """Return the controllers of the target with `draft`, which know what earlier runs learned."""
        assert self._target is not None
        return PairController(
            self._profile(draft), self._clock, can_verify=self._target.backend.capabilities.can_rollback
        )

    def _profile(self, draft: Loaded | None) -> Profile:
        """Find what earlier runs learned of the target with `draft`."""
        assert self._target is not None
        return remembered([self._target, *([] if draft is None else [draft])], self._settings)
