"""The loop: draft, verify, commit. `step` and `generate`; nothing else.

One step serves every method, every tree and every temperature: temperature 0 is a one-hot distribution, a chain is a
tree, and plain decoding is the draft without nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from localspec.engine.constraint import Ahead, cut, forced_run
from localspec.engine.context import Context
from localspec.engine.draft import Draft, Step
from localspec.engine.judge import Judge, Judging, LocalJudge
from localspec.engine.protocols import (
    Backend,
    Cancel,
    Cancelled,
    Clock,
    Controller,
    DraftBudget,
    Drafter,
    Plan,
    RandomSource,
    Verifier,
)
from localspec.engine.sampling import Sampler
from localspec.engine.stopwatch import Stopwatch

NO_DRAFT = DraftBudget(0, 0)


@dataclass(frozen=True, slots=True)
class Engine:
    """One judge with whatever drafts for it. All state is in the parts; `context` is passed in."""

    judge: Judge
    drafters: Mapping[str, Drafter]
    controller: Controller
    rng: RandomSource  # of the drafts
    clock: Clock
    cancel: Cancel
    judging: Judging | None = None  # how log-probabilities are told, None where nobody asked

    @classmethod
    def local(
        cls,
        target: Backend,
        drafters: Mapping[str, Drafter],
        verifier: Verifier,
        controller: Controller,
        sampler: Sampler,
        rng: RandomSource,
        clock: Clock,
        cancel: Cancel,
        judging: Judging | None = None,
    ) -> Engine:
        """Return an engine whose target is in this process; drafts and verdicts draw from one source of chance."""
        judge = LocalJudge(target, sampler, verifier, rng)
        return cls(judge, drafters, controller, rng, clock, cancel, judging)

    def start(self, context: Context, watch: Stopwatch) -> Step:
        """Evaluate the prompt and commit the first token straight from its last row.

        Raises Cancelled; the target's cache then holds a prefix of the prompt and the context is untouched.
        """
        watch.mark()
        draft = Draft.root(context.pending)
        verdict, rows = self.judge.start(draft, context.tokens, watch.mark, self.cancel)
        step = context.commit(draft, verdict, watch.prompt_times())
        if self.judging is not None:
            step = replace(step, judged=self.judging.of(step, rows, context.tokens))
        for drafter in self.drafters.values():
            drafter.begin(context)
        return step

    def step(self, context: Context, watch: Stopwatch) -> Step:
        watch.mark()
        judge = self.judge
        to_replay = judge.to_replay
        plan = self.controller.plan(context, NO_DRAFT if to_replay else self._budget(context))
        if to_replay:  # no snapshot can be taken before them: a rejected draft would make the next pass still wider
            plan = replace(plan, max_nodes=0, max_depth=0, is_probe=False, why=f"reads {to_replay} tokens again")
        watch.mark()
        draft = self._proposed(context, plan)
        if judge.constraint is not None:
            draft = cut(draft, judge.constraint, context.tokens)
        draft = draft.padded(plan.width(len(draft)))
        watch.mark()
        verdict, rows = judge.verdict(draft, context.tokens, watch.mark)
        step = context.commit(draft, verdict, watch.pass_times(), plan, replayed=to_replay)
        if self.judging is not None:
            step = replace(step, judged=self.judging.of(step, rows, context.tokens))
        judge.keep(step.kept)  # the last token of the run becomes pending; `rows` last until the next decode
        assert judge.length == len(context.tokens) - 1
        for drafter in self.drafters.values():
            drafter.observe(step, rows)
        return step

    def generate(self, context: Context) -> Iterator[Step]:
        """Yield every pass until a stop rule or the cancel flag ends the context.

        Cache and context agree at every yield, so the generator may be dropped anywhere.
        """
        watch = Stopwatch(self.clock)
        try:
            step = self.start(context, watch)
            watch.begin_passes()
            yield step
            watch.turn()
            while context.finish is None and not self.cancel():
                step = self.step(context, watch)
                yield step
                self.controller.observe(step, watch.turn())
        except Cancelled:
            pass
        context.interrupt()

    def _budget(self, context: Context) -> DraftBudget:
        """Return the room before the end, and the tokens that must come next."""
        budget, constraint = context.budget, self.judge.constraint
        most = min(budget.depth, budget.nodes)
        if constraint is None or most <= 0 or not self.judge.capabilities.can_rollback:
            return budget
        return replace(budget, forced=forced_run(constraint, context.tokens, most))

    def _proposed(self, context: Context, plan: Plan) -> Draft:
        """Return the draft of the plan; where tokens are forced, what follows them is drafted as if they stood."""
        drafter, run = self.drafters[plan.drafter], plan.forced
        if not run:
            return drafter.propose(context, plan, self.rng)
        ahead = Ahead([*context.tokens, *run])
        return drafter.propose(ahead, plan, self.rng).after(context.pending, run, outputs=self.judging is not None)
