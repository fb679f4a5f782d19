"""Which controller plans the passes of a request, and what it may know: the profile of the pair, kept between runs.

Left to itself (`--method auto`) the planner chooses among the draft model's chains, copies of the text, and plain
passes. A method that was asked for by name is obeyed; a tree or a length rule under `auto` is cut to what may be lost.

Where the form of an answer allows one token alone, a run of such forced tokens stands whatever the models say. It goes
first, and a method that was named drafts behind it as if it were committed. A head cannot: it reads the states of
tokens that the target has evaluated. Its pass has either the run or its own draft, whichever is longer; a head under
the form drafts forced tokens too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.backends.build import build_info
from localspec.control.auto import Auto
from localspec.control.candidates import CandidateSource, Chains, Copies, RuleCandidates
from localspec.control.company import Beside, Company, nobody
from localspec.control.prices import Prices
from localspec.control.profile import Profile
from localspec.control.schedule import Baselines, Probing
from localspec.control.timing import TimedBackend, add_prices, first_prices, misses_widths
from localspec.engine import events
from localspec.engine.acceptance import Acceptance
from localspec.engine.constraint import Ahead
from localspec.engine.draft import Draw, Step
from localspec.engine.protocols import Cancel, Clock, Controller, DraftBudget, Drafter, History, Plan
from localspec.methods import DrafterContext
from localspec.methods.copy import Copy
from localspec.methods.draft_model import DraftModel
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.session.exact_widths import ENOUGH
from localspec.session.loaded_model import LoadedModel
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings, Sampling
from localspec.settings.sizes import counted
from localspec.speculation.resolve import Axes

COPY = Copy.info.name


def remembered(pair: Sequence[LoadedModel], settings: LoadSettings) -> Profile:
    """Return the profile of what is loaded, target first, with these settings, placed as it is, on this machine."""
    build = build_info()
    facts: list[object] = [settings.gpu, settings.draft_gpu, settings.kv_type, settings.mmap]
    for loaded in pair:
        backend, model = loaded.backend, loaded.model
        facts += [backend.capabilities.devices, backend.threads, backend.options.flash_attn]
        facts += [backend.options.placement, model.n_gpu_layers, model.is_repacked]
    facts += [build.llama_cpp, build.devices, build.system_info]
    if settings.reproducible:
        facts.append(f"reproducible in {min(pair[0].backend.capabilities.n_ctx, ENOUGH)} positions")
    if rollback := pair[0].backend.options.rollback:
        facts.append(f"rolls {counted(rollback, 'token')} back")
    facts += [scale for _, scale in settings.lora]
    files = [*(loaded.model.path for loaded in pair), *(Path(path) for path, _ in settings.lora)]
    return Profile.of(cache_folder("profiles"), [file_fingerprint(path) for path in files], facts)


@dataclass(slots=True)
class PairController:
    """The controllers of one loaded pair. `profile` is what earlier runs learned of it.

    `can_verify`: the target can take back a rejected draft, so that there may be one. `settles` and `replays` as in
    `Capabilities`.
    """

    profile: Profile
    clock: Clock
    can_verify: bool = True
    settles: int = 1
    replays: bool = False
    _copier: Copy | None = field(init=False, default=None)
    _auto: Auto | None = field(init=False, default=None)
    _is_measured: bool = field(init=False, default=False)  # since it was loaded
    _has_warned: bool = field(init=False, default=False)  # that the profile cannot be kept
    _is_known: bool = field(init=False, default=False)  # what plain decoding costs, from earlier answers
    _baselines: Baselines = field(init=False)

    def __post_init__(self) -> None:
        self.forget()

    @staticmethod
    def of(settings: LoadSettings, target: LoadedModel, draft: LoadedModel | None, clock: Clock) -> PairController:
        profile = remembered([target] if draft is None else [target, draft], settings)
        can = target.backend.capabilities
        return PairController(profile, clock, can.can_rollback, can.settles, can.replays)

    def beside(self) -> PairController:
        """Return the controllers of another answer of the pair, with the same profile; passes are measured."""
        made = replace(self)
        made._is_measured = True
        return made

    def must_measure(self) -> bool:
        """Whether it matters what passes cost, and earlier runs did not find out all of it.

        It does to the planner, and to plain decoding, whose passes may have more rows than one. A method that was named
        is measured before its first answer too: measuring empties the caches, and a chat may change to `auto` later.
        """
        if self._is_measured or not self.can_verify:
            return False
        return misses_widths(self._prices())

    @property
    def decode_rows(self) -> int:
        return self._prices().decode_rows

    @property
    def reads_singly(self) -> bool:
        return self._prices().reads_singly

    def measure(self, target: TimedBackend, draft: TimedBackend | None, cancel: Cancel) -> Iterator[events.Event]:
        """Measure what passes cost. Both caches are empty. Raises Cancelled between two passes."""
        yield events.Loading("first measurement", 0.0)
        if self._prices().is_known:
            add_prices(target, self._prices(), self.clock, cancel)
        else:
            self.profile.measured(first_prices(target, draft, self.clock, cancel))
        self._is_measured = True
        self.profile.save()

    def keep(self) -> Iterator[events.Event]:
        """Write the profile down; say so, once, where that is impossible and something was to be kept."""
        if not self.profile.save() and (self._is_measured or self._auto is not None) and not self._has_warned:
            self._has_warned = True
            yield events.Warned("profile", f"{self.profile.file.parent} cannot be written, so each run measures again")

    def forget(self) -> None:
        """Drop what was read of texts and measured beside them; what was learned of the pair stays."""
        self._copier = None
        self._baselines = Baselines(self.clock)

    def recall(self, prompt_n: int) -> Iterator[events.Event]:
        """Tell again what earlier answers measured of plain decoding, where it holds for this one too."""
        known = self._baselines.near(prompt_n)
        self._is_known = bool(known)
        for plain in known:
            yield events.Probed(plain.ms, plain.ctx, self.clock() - plain.at)

    def prefilled(self, event: events.Prefilled) -> None:
        """Let the answer lose a share of the time in which the target read its prompt."""
        if self._auto is not None:
            self._auto.credit_reading(event.ms / 1e3)

    def measured(self, plain_ms: float, position: int) -> None:
        self._baselines.add(plain_ms, position)

    def controller(
        self,
        axes: Axes,
        drafter: Drafter,
        copier: Copy | None,
        parts: DrafterContext,
        sampling: Sampling,
        n_others: Callable[[], int] = nobody,
    ) -> Controller:
        """Return the controller of a request that samples so; the planner chooses among `drafter` and `copier`.

        `n_others` tells how many other answers the next pass has rows of: it is then planned beside these.

        With a seed a named method drafts in the same passes whatever they take.
        """
        self._auto = None
        if axes.shape.nodes == 0 and not axes.is_automatic:  # plain decoding needs no pass to measure it
            return axes.length_rule(axes.shape)
        acceptance, is_seeded = self.learned(axes, sampling), sampling.seed is not None
        can_follow = parts.draft is None or not parts.draft.capabilities.is_head
        named = AfterRun(axes.length_rule(axes.shape), can_follow=can_follow)
        if axes.must_repeat:  # so no earlier measurement may decide the drafts
            return Probing(named, Acceptance(axes.draw), settles=self.settles)
        if not axes.is_guarded:
            alone = Probing(named, acceptance, settles=self.settles, is_known=self._is_known, is_spread=not is_seeded)
            return alone if n_others is nobody else Company(alone, named, n_others)
        sources: list[CandidateSource] = []
        prices = self._prices()
        reader: Any = drafter if hasattr(drafter, "behind") else None  # those without a model have no text to read
        if not axes.is_automatic:
            inner = axes.length_rule(axes.shape)
            sources = [RuleCandidates(axes.method, prices, inner, acceptance, reader, can_follow=can_follow)]
        else:
            if copier is not None:
                is_asked = bool(copier.prediction)
                sources.append(Copies(COPY, prices, copier, axes.longest_copy, is_asked=is_asked))
            if axes.shape.nodes:
                chains = Chains(axes.method, prices, acceptance, axes.shape, axes.draw, reader, can_follow=can_follow)
                sources.append(chains)
        self._auto = Auto(prices, sources, axes.method, self.settles)
        alone = Probing(self._auto, settles=self.settles, is_known=self._is_known)
        return alone if n_others is nobody else Company(alone, Beside(self._auto, n_others), n_others)

    def copier(self, axes: Axes, parts: DrafterContext, sampling: Sampling) -> Copy | None:
        if not (axes.is_automatic and self.can_verify and self._prices().is_known):
            return None
        if self._copier is None or not self._copier.reads(parts):
            self._copier = Copy(parts)
        self._copier.resume(parts.sampler.constraint, self.profile.copied(f"{sampling.temperature:g}"))
        return self._copier

    def learned(self, axes: Axes, sampling: Sampling) -> Acceptance:
        """Return what was learned of the drafts of a rule, at first by the trial."""
        drafted_at = sampling.temperature if sampling.draft_temperature is None else sampling.draft_temperature
        rule, draw = learned_as(axes, sampling, drafted_at)
        trial = self.profile.trial if axes.method == DraftModel.info.name else None
        key = f"{axes.method} {dict(axes.options)} {rule}"
        return self.profile.accepted(key, draw, trial, is_greedy=rule == "greedy")

    def findings(self) -> dict[str, Any]:
        if self._auto is None:
            return {"verdict": "", "cause": "", "overdrawn_ms": None}
        verdict, cause = self._auto.findings()
        return {"verdict": verdict, "cause": cause, "overdrawn_ms": self._auto.overdrawn_ms}

    def _prices(self) -> Prices:
        return (self.profile.prices or Prices()).of_target(replays=self.replays)


def learned_as(axes: Axes, sampling: Sampling, drafted_at: float) -> tuple[str, Draw]:
    if sampling.temperature == drafted_at == 0.0 and axes.draw is not Draw.FIXED:
        # Nothing is left to chance: any rule keeps the draft's likeliest token where it is the target's, and the
        # draft's probability tells of that what a lead in the race tells elsewhere.
        return "greedy", Draw.COUPLED
    return f"{axes.verify} {axes.draw.value} {sampling.temperature:g} {drafted_at:g}", axes.draw


@dataclass(frozen=True, slots=True)
class AfterRun:
    """Another controller's plans, behind the forced tokens. `can_follow`: the drafter needs no states of these."""

    inner: Controller
    can_follow: bool = True

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        run = budget.forced
        if run and self.can_follow:
            return replace(self.inner.plan(Ahead([*history.tokens, *run]), budget.after(run)), forced=run)
        plan = self.inner.plan(history, budget)
        is_longer = len(run) >= max(plan.max_depth, 1)
        return replace(plan, forced=run, max_nodes=0, max_depth=0) if is_longer else plan

    def observe(self, step: Step, seconds: float) -> None:
        self.inner.observe(step, seconds)
