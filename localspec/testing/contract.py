"""What tests of drafters and verifiers stand on: a model that is a table, and `DrafterContract`, the tests that every
drafting method must pass. (`enumeration.py` has a random source that replays every branch.)

Public, so that a method in another package can prove itself with the same tools.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Draft, Draw, Mask, Nodes, Step
from localspec.engine.loop import Engine
from localspec.engine.protocols import (
    Cancel,
    Capabilities,
    DraftBudget,
    Drafter,
    History,
    Logits,
    Plan,
    Tokens,
    TreePolicy,
)
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.methods.plain import Plain
from localspec.settings.request import Sampling
from localspec.trees.static import Chain, Static
from localspec.verify.coupled import CoupledVerifier

Table = Callable[[tuple[int, ...]], Logits]  # visible tokens -> [V] float32


class TableRows:
    """Rows of one call, stale after the next."""

    def __init__(self, backend: TableBackend, rows: dict[int, Logits]) -> None:
        self._backend = backend
        self._rows = rows
        self._call = backend.calls

    def logits(self, node: int) -> Logits:
        """Return the row of `node`; asserts that no later call made it stale."""
        assert self._call == self._backend.calls, "this row was overwritten by a later decode"
        return self._rows[node]


class TableBackend:
    """A Backend whose logits are a pure function of the visible tokens: `table(tokens) -> [V] float32`."""

    def __init__(self, table: Table, n_vocab: int, n_ctx: int = 64) -> None:
        self.capabilities = Capabilities(can_rollback=True, max_leaves=64, max_rows=64, n_ctx=n_ctx, n_vocab=n_vocab)
        self.calls = 0
        self.evaluated = 0
        self.dropped = 0  # open nodes that were evaluated and not kept
        self.forgotten = 0  # committed tokens that a later text did not share
        self.committed: list[int] = []
        self._table = table
        self._paths: list[tuple[int, ...]] = []

    @property
    def tokens(self) -> Sequence[int]:
        return self.committed

    @property
    def length(self) -> int:
        return len(self.committed)

    @property
    def to_replay(self) -> int:
        return 0

    def cached(self, tokens: Tokens) -> int:
        """Count the tokens that are held already; the last is evaluated anew."""
        pairs = zip(self.committed, tokens[:-1], strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))

    def prefill(self, tokens: Tokens, cancel: Cancel) -> TableRows:
        """Hold exactly `tokens`; row 0 is the last one's."""
        wanted = [int(token) for token in tokens]
        assert len(wanted) <= self.capabilities.n_ctx, "past the context"
        self.truncate(self.cached(wanted))
        self.evaluated += len(wanted) - self.length
        self.committed = wanted
        self.calls += 1
        return TableRows(self, {0: self._table(tuple(wanted))})

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> TableRows:
        """Add nodes to the open tree; rows are keyed by node id."""
        first = len(self._paths)
        for token, parent in zip(tokens, parents, strict=True):
            above = self._paths[parent] if parent >= 0 else ()
            self._paths.append((*above, int(token)))
        assert self.length + len(self._paths) <= self.capabilities.n_ctx, "every node of a tree takes a cell"
        self.evaluated += len(tokens)
        self.calls += 1
        new = range(first, len(self._paths))
        wanted = [node for i, node in enumerate(new) if outputs is None or outputs[i]]
        return TableRows(self, {node: self._table((*self.committed, *self._paths[node])) for node in wanted})

    def keep(self, nodes: Nodes) -> None:
        """Commit a path; its nodes must follow one another from the tip."""
        path: tuple[int, ...] = ()
        for node in nodes:
            assert self._paths[node][:-1] == path, "kept nodes form a path from the tip"
            path = self._paths[node]
        self.committed += path
        self._close(n_kept=len(nodes))

    def truncate(self, length: int) -> None:
        self.forgotten += max(0, self.length - length)
        del self.committed[length:]
        self._close(n_kept=0)

    @property
    def open(self) -> int:
        """Nodes of the tree under way."""
        return len(self._paths)

    def _close(self, n_kept: int) -> None:
        self.dropped += len(self._paths) - n_kept
        self._paths = []


def random_table(
    n_vocab: int, seed: int, *, scale: float = 1.5, near: Table | None = None, distance: float = 1.0
) -> Table:
    """Return a table of random logits that depends on the last four tokens and the length.

    With `near`, the table is that one plus noise of scale `distance`: a draft that resembles its target.
    """

    def table(tokens: tuple[int, ...]) -> Logits:
        rng = np.random.default_rng([seed, len(tokens), *tokens[-4:]])
        noise = rng.normal(size=n_vocab)
        if near is not None:
            return (near(tokens) + distance * noise).astype(np.float32)
        return (scale * noise).astype(np.float32)

    return table


@dataclass(frozen=True, slots=True)
class DrafterUnderTest:
    """A drafter under test with the backends that it owns."""

    drafter: Drafter
    backends: tuple[TableBackend, ...] = ()

    def check(self, tokens: Sequence[int], forgotten: int = 0) -> None:
        """Assert that every cache holds a prefix of the text, short of the pending token, and evaluated nothing twice.

        Every token ever evaluated is still held, or was an open node that was not kept, or is one of the `forgotten`
        that an earlier text did not share.
        """
        for backend in self.backends:
            held = backend.length
            assert held < len(tokens), "the pending token stays outside"
            assert backend.committed == list(tokens[:held]), "the cache holds another text"
            assert backend.open == 0, "a tree was left open"
            assert backend.forgotten <= forgotten, "tokens of this text were forgotten"
            assert backend.evaluated == held + backend.dropped + backend.forgotten, "a held token was evaluated again"


class Scripted:
    """A controller that follows a list of plans over and over, clamped to the room."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._passes = 0

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        plan = self._plans[self._passes % len(self._plans)]
        depth = min(plan.max_depth, budget.depth)
        return replace(plan, max_nodes=min(plan.max_nodes, budget.nodes) if depth else 0, max_depth=depth)

    def observe(self, step: Step, seconds: float) -> None:
        self._passes += 1


@dataclass(frozen=True, slots=True)
class ContractLimits:
    """What may end a text in the contract's runs; pieces are the digits of the tokens."""

    max_tokens: int | None = None
    n_ctx: int = 64
    eog: int = -1
    stops: tuple[str, ...] = ()

    def context(self, tokens: Sequence[int]) -> Context:
        vocabulary = Vocabulary(lambda token: token == self.eog, lambda token: b"%d" % token)
        return Context(list(tokens), vocabulary, n_ctx=self.n_ctx, max_tokens=self.max_tokens, stops=self.stops)


class DrafterContract:
    """What every drafting method keeps. Subclass it as `class TestFoo(DrafterContract)` and give `make`."""

    n_vocab: ClassVar[int] = 4
    draws: ClassVar[tuple[Draw, ...]] = tuple(Draw)
    # Tree policies, with nodes and depth of the plan, which may cut the policy's own.
    policies: ClassVar = ((Chain(), 1, 1), (Chain(), 4, 4), (Static((2, 2)), 6, 2), (Static((3, 2, 1)), 5, 2))
    text: ClassVar[tuple[int, ...]] = (0, 1, 2, 1)
    ends: ClassVar = (
        ContractLimits(max_tokens=30),
        ContractLimits(eog=3),
        ContractLimits(stops=("21",)),
        ContractLimits(n_ctx=20),
    )

    @abstractmethod
    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        """Return a fresh drafter whose models, if it has any, say `table` and hold `n_ctx` tokens."""

    def test_proposals_keep_to_the_plan(self) -> None:
        """Root, order of nodes, limits, vocabulary, and distributions that can have given their tokens."""
        for policy, nodes, depth in self.policies:
            for draw in self.draws:
                subject = self.make(random_table(self.n_vocab, 1), policy)
                plan = Plan("it", nodes, depth, draw)
                self._assert_planned(
                    subject.drafter.propose(ContractLimits().context(self.text), plan, SeededRandom(3)), plan
                )

    def test_no_plan_no_draft(self) -> None:
        """Zero nodes or zero levels give the pending token alone and cost no evaluation."""
        for nodes, depth in ((0, 0), (0, 3), (3, 0)):
            subject = self.make(random_table(self.n_vocab, 1), Chain())
            draft = subject.drafter.propose(
                ContractLimits().context(self.text), Plan("it", nodes, depth), SeededRandom(3)
            )
            assert draft.tokens.tolist() == [self.text[-1]]
            assert all(backend.evaluated == 0 for backend in subject.backends)

    def test_a_full_draft_context_ends_the_draft(self) -> None:
        """Near the end of its own context a drafter proposes what fits (its backend asserts it), in the end nothing."""
        for policy, nodes, depth in self.policies:
            for spare in range(5):
                subject = self.make(random_table(self.n_vocab, 1), policy, n_ctx=len(self.text) + spare)
                plan = Plan("it", nodes, depth)
                draft = subject.drafter.propose(ContractLimits().context(self.text), plan, SeededRandom(3))
                self._assert_planned(draft, plan)
                assert spare > 0 or not subject.backends or len(draft) == 0

    def test_a_long_text_outgrows_the_draft(self) -> None:
        """The target's context is larger than the draft's: from some pass on it decodes plainly, to the end."""
        for policy, nodes, depth in self.policies:
            plans = [Plan("it", nodes, depth, Draw.COUPLED)]
            subject = self.make(random_table(self.n_vocab, 2), policy, n_ctx=12)
            tokens = self._run(subject, plans, ContractLimits(max_tokens=30).context(self.text))
            assert len(tokens) == len(self.text) + 30

    def test_caches_hold_a_prefix_after_every_pass(self) -> None:
        """Whatever is accepted, at whatever end: perfect, fair and bad drafts; end token, stop string, limits."""
        for policy, nodes, depth in self.policies:
            for draw in self.draws:
                for distance in (0.0, 1.0, 9.0):
                    for limits in self.ends:
                        subject = self.make(self._near(distance), policy)
                        text = self._run(subject, [Plan("it", nodes, depth, draw)], limits.context(self.text))
                        assert len(text) > len(self.text)

    def test_passes_of_others_are_caught_up(self) -> None:
        """Plain passes, its own or another drafter's, leave gaps that the next proposal fills."""
        drafting, resting, other = Plan("it", 3, 2, Draw.COUPLED), Plan("it"), Plan("other")
        for plans in ([drafting, resting], [other, other, drafting], [drafting, resting, drafting, other, other]):
            for distance in (0.0, 1.0, 9.0):
                subject = self.make(self._near(distance), Static((2, 1)))
                assert len(self._run(subject, plans, ContractLimits(max_tokens=30).context(self.text))) > 30

    def test_text_may_go_back(self) -> None:
        """Another text is drafted for as by a fresh drafter, and what the two share is not evaluated again."""
        plan = Plan("it", 3, 3, Draw.COUPLED)
        for again in (self.text, (*self.text, 0, 3, 3), self.text[:2], (3, 3, 3)):
            used, fresh = (self.make(self._near(1.0), Chain()) for _ in range(2))
            before = self._run(used, [plan], ContractLimits(max_tokens=12).context(self.text))
            shared = next((i for i, (a, b) in enumerate(zip(before, again, strict=False)) if a != b), len(again))
            gone = len(before) - min(shared, len(again) - 1)
            texts = (ContractLimits(max_tokens=12).context(again) for _ in range(2))
            assert self._run(used, [plan], next(texts), gone) == self._run(fresh, [plan], next(texts))

    def _near(self, distance: float) -> Table:
        """Return a table this far from the one that `_run`'s target says."""
        return random_table(self.n_vocab, 6, near=random_table(self.n_vocab, 5), distance=distance)

    def _assert_planned(self, draft: Draft, plan: Plan) -> None:
        assert draft.tokens[0] == self.text[-1]
        assert draft.parents[0] == -1
        assert len(draft) <= plan.max_nodes
        assert draft.depth <= plan.max_depth
        for node in range(1, len(draft) + 1):
            token, dist = int(draft.tokens[node]), draft.dists[node]
            assert 0 <= draft.parents[node] < node
            assert 0 <= token < self.n_vocab
            assert dist is None or dist.prob(token) > 0.0
            assert dist is not None or draft.draws[node] in (Draw.FIXED, Draw.COUPLED)

    def _run(self, subject: DrafterUnderTest, plans: Sequence[Plan], context: Context, forgotten: int = 0) -> list[int]:
        """Generate to the end and check the caches after every pass; return the whole text.

        The verifier is the coupled one: it takes every kind of draft, and a perfect one whole.
        """
        engine = Engine.local(
            target=TableBackend(random_table(self.n_vocab, 5), self.n_vocab),
            drafters={"it": subject.drafter, "other": Plain()},
            verifier=CoupledVerifier(),
            controller=Scripted(plans),
            sampler=Sampler(Sampling()),
            rng=SeededRandom(7),
            clock=lambda: 0.0,
            cancel=lambda: False,
        )
        for index, _ in enumerate(engine.generate(context)):
            if index > 0 or not forgotten:  # until it is asked again, a drafter may hold the earlier text
                subject.check(context.tokens, forgotten)
        return context.tokens
