"""The loop: draft, verify, commit. `step` and `generate`; nothing else.

One step serves every method, every tree and every temperature: temperature 0 is a one-hot distribution, a chain is a
tree, and plain decoding is the draft without nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from localspec.engine.context import Context
from localspec.engine.draft import Draft, Step, Times
from localspec.engine.protocols import Backend, Cancel, Cancelled, Clock, Controller, Drafter, RandomSource, Verifier
from localspec.engine.sampling import Sampler, TargetDistributions


@dataclass(frozen=True, slots=True)
class Engine:
    """One target with whatever drafts for it. All state is in the parts; `context` is passed in.

    Two accounts of time are kept. A step's own `times` add up to the wall clock: what passed since the step before,
    its telling included, is `other`. The controller is given what a pass really cost: from the end of telling the one
    before to the end of telling it, so that no pass pays for another's events.
    """

    target: Backend
    drafters: Mapping[str, Drafter]
    verifier: Verifier
    controller: Controller
    sampler: Sampler
    rng: RandomSource
    clock: Clock
    cancel: Cancel

    def start(self, context: Context) -> Step:
        """Evaluate the prompt and commit the first token straight from its last row.

        Raises Cancelled; the target's cache then holds a prefix of the prompt and the context is untouched.
        """
        began = self.clock()
        draft = Draft.root(context.pending)
        rows = self.target.prefill(context.tokens, self.cancel)
        read = self.clock()
        verdict = self.verifier.verify(
            draft, TargetDistributions(self.sampler, rows, draft, context.tokens), self.rng, context.position
        )
        step = context.commit(draft, verdict, Times(verify=read - began, sample=self.clock() - read))
        for drafter in self.drafters.values():
            drafter.begin(context)
        return step

    def step(self, context: Context, lap: float) -> Step:
        """One pass of the target. `lap` is when the last pass ended: what lies between counts as `other`."""
        began = self.clock()
        plan = self.controller.plan(context, context.budget)
        planned = self.clock()
        draft = self.drafters[plan.drafter].propose(context, plan, self.rng)
        draft = draft.padded(plan.width(len(draft)))
        drafted = self.clock()
        rows = self.target.extend(draft.tokens, draft.parents, draft.outputs)
        decoded = self.clock()
        verdict = self.verifier.verify(
            draft, TargetDistributions(self.sampler, rows, draft, context.tokens), self.rng, context.position
        )
        times = Times(drafted - planned, decoded - drafted, self.clock() - decoded, planned - lap, planned - began)
        step = context.commit(draft, verdict, times, plan)
        self.target.keep(step.kept)  # the last token of the run becomes pending; `rows` last until the next decode
        assert self.target.length == len(context.tokens) - 1
        for drafter in self.drafters.values():
            drafter.observe(step, rows)
        return step

    def generate(self, context: Context) -> Iterator[Step]:
        """Yield every pass until a stop rule or the cancel flag ends the context.

        Cache and context agree at every yield, so the generator may be dropped anywhere.
        """
        try:
            step = self.start(context)
            lap = self.clock()
            yield step
            told = self.clock()
            while context.finish is None and not self.cancel():
                step = self.step(context, lap)
                lap += step.times.total
                yield step
                began, told = told, self.clock()
                self.controller.observe(step, told - began)
        except Cancelled:
            pass
        context.interrupt()
