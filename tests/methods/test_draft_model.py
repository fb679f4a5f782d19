"""The draft model: the contract, and that its reported distributions are those its tokens were really drawn from."""

from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draw, Source, Step
from localspec.engine.protocols import DraftState, Plan, Rows, TreePolicy
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.engine.translation import SameTokens
from localspec.methods import DrafterContext
from localspec.methods.draft_model import DraftModel
from localspec.settings.request import Sampling
from localspec.testing.contract import (
    ContractLimits,
    DrafterContract,
    DrafterUnderTest,
    Table,
    TableBackend,
    random_table,
)
from localspec.trees.eagle2 import Eagle2
from localspec.trees.static import Chain, Static

TEXT = (0, 1, 2, 1)
PENALTIES = Sampling(temperature=0.7, top_k=3, repeat_penalty=1.25, presence_penalty=0.5)


class Recording(DraftModel):
    """A draft model that keeps the passes it saw."""

    steps: list[Step]

    def observe(self, step: Step, rows: Rows) -> None:
        self.steps.append(step)
        super().observe(step, rows)


class TestDraftModel(DrafterContract):
    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        backend = TableBackend(table, self.n_vocab, n_ctx)
        return DrafterUnderTest(DraftModel(backend, Sampler(Sampling()), policy, lambda: False), (backend,))

    def test_the_contract_meets_every_outcome(self) -> None:
        """The contract's runs are not idle: drafts are accepted whole, in part and not at all, and cut at the end."""
        seen = set()
        for distance in (0.0, 1.0, 9.0):
            for limits in self.ends:
                backend = TableBackend(self._near(distance), self.n_vocab)
                drafter = Recording(backend, Sampler(Sampling()), Chain(), lambda: False)
                drafter.steps = []
                self._run(
                    DrafterUnderTest(drafter, (backend,)), [Plan("it", 4, 4, Draw.COUPLED)], limits.context(self.text)
                )
                for step in drafter.steps:
                    accepted, drafted = step.n_accepted, len(step.draft)
                    seen.add("none" if accepted == 0 else "all" if accepted == drafted else "some")
                    seen.add("cut" if step.sources[-1] is Source.ACCEPTED else "uncut")
        assert seen == {"none", "some", "all", "cut", "uncut"}


def propose(sampling: Sampling, policy: TreePolicy, plan: Plan, n_target: int = 4):
    table, translation = random_table(4, 3), SameTokens(n_target, 4)
    drafter = DraftModel(TableBackend(table, 4), Sampler(sampling), policy, lambda: False, translation=translation)
    return table, drafter.propose(ContractLimits().context(TEXT), plan, SeededRandom(1))


@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT])
def test_dists_are_those_of_the_nodes_own_text(draw: Draw) -> None:
    """Each node's distribution is the sampler's, after the text with the drafted tokens of its own path, penalties
    included.
    """
    table, draft = propose(PENALTIES, Static((2, 2)), Plan("it", 6, 2, draw))
    sampler = Sampler(PENALTIES)
    assert len(draft) >= 5  # a distribution's support may be smaller than the width
    for node in range(1, len(draft) + 1):
        parent = int(draft.parents[node])
        history = (*TEXT, *draft.path(parent))
        dist: Distribution | None = sampler.dist(table(history), history)
        if draw is Draw.WITHOUT_REPLACEMENT:
            for sibling in range(1, node):
                if draft.parents[sibling] == parent:
                    dist = dist.without(int(draft.tokens[sibling]))
        assert np.array_equal(draft.dist(node).ids, dist.ids)
        assert draft.dist(node).probs == pytest.approx(dist.probs, abs=1e-12)
        assert draft.draws[node] is draw


def test_fixed_drafts_are_the_most_probable_tokens() -> None:
    """Chosen tokens come greatest first and are reported as point masses."""
    table, draft = propose(Sampling(), Static((3,)), Plan("it", 3, 1, Draw.FIXED))
    assert draft.tokens[1:].tolist() == np.argsort(-table(TEXT))[:3].tolist()
    assert draft.dists == (None,) * 4


def test_coupled_drafts_win_the_targets_races() -> None:
    """A coupled chain is what the noise of each position makes of the draft's own distributions."""
    table, draft = propose(PENALTIES, Chain(), Plan("it", 4, 4, Draw.COUPLED))
    sampler, rng, text = Sampler(PENALTIES), SeededRandom(1), TEXT
    for _ in range(4):
        text += tuple(rng.gumbel_top_k(len(text), sampler.dist(table(text), text)))
    assert tuple(draft.tokens[1:].tolist()) == text[len(TEXT) :]


def test_padding_tokens_are_never_drafted() -> None:
    """A draft whose vocabulary is longer than the target's proposes only what the target knows."""
    _, draft = propose(Sampling(temperature=50.0), Static((4,)), Plan("it", 4, 1, Draw.WITHOUT_REPLACEMENT), 2)
    assert sorted(draft.tokens[1:].tolist()) == [0, 1]


def test_a_session_builds_it_from_its_parts() -> None:
    """`build` passes on the draft's backend, sampler, policy and the target's vocabulary."""
    backend = TableBackend(random_table(4, 3), 4)
    drafter = DraftModel.build(DrafterContext(backend, Sampler(Sampling()), Chain(), lambda: False, 3))
    draft = drafter.propose(ContractLimits().context(TEXT), Plan("it", 3, 3), SeededRandom(1))
    assert len(draft) == 3
    assert backend.evaluated == len(TEXT) + 2
    assert max(draft.tokens) < 3


def test_a_rule_may_end_the_draft_early() -> None:
    """`go_on` is asked with the distribution at hand before every draw, and no row is evaluated for nothing."""
    asked = []
    plan = replace(Plan("it", 4, 4), go_on=lambda state: asked.append(state) or len(asked) < 3)
    _, draft = propose(Sampling(), Chain(), plan)
    assert len(draft) == 2
    assert [(state.n_nodes, state.depth) for state in asked] == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("policy", [Chain(), Static((2, 1)), Eagle2(4)], ids=["chain", "tree", "pool"])
def test_a_rule_sees_how_sure_the_model_is(temperature: float, policy: TreePolicy) -> None:
    """Beside the distribution that is drawn from: the distribution at temperature 1, and what it gave the token that
    led there.
    """
    asked: list[DraftState] = []
    plan = replace(Plan("it", 3, 2, Draw.FIXED), go_on=lambda state: asked.append(state) or True)
    table, draft = propose(replace(PENALTIES, temperature=temperature), policy, plan)
    drawing, sure = (Sampler(PENALTIES, temperature=t) for t in (temperature, 1.0))
    first = {state.depth: state for state in reversed(asked)}
    child = int(draft.tokens[1])  # the likeliest, so it is the first one asked about
    for depth, text in enumerate((TEXT, (*TEXT, child))):
        state = first[depth]
        assert state.dist.probs == pytest.approx(drawing.dist(table(text), text).probs)
        assert state.dist.belief.probs == pytest.approx(sure.dist(table(text), text).probs)
        assert state.chance == pytest.approx(sure.dist(table(TEXT), TEXT).prob(child) if depth else 1.0)


def test_nobody_pays_for_what_nobody_asks() -> None:
    """Without a rule a distribution is the drawing distribution alone."""
    _, draft = propose(replace(PENALTIES, temperature=0.3), Static((2, 1)), Plan("it", 4, 2, Draw.IID))
    assert all(draft.dist(node).untempered is None for node in range(1, len(draft) + 1))


def test_how_far_behind_it_is_depends_on_the_text_and_not_on_its_length() -> None:
    """Another conversation may be shorter than the last: what its cache does not share has to be read."""
    drafter = DraftModel(TableBackend(random_table(4, 3), 4), Sampler(Sampling()), Chain(), lambda: False)
    first, second = ContractLimits().context((0, 1, 2, 1, 3, 2, 1)), ContractLimits().context((0, 1, 3, 3, 1))
    for text, unread in ((first, 7), (second, 3), (first, 5)):
        drafter.begin(text)
        assert drafter.behind(text) == unread
        drafter.propose(text, Plan("it", 1, 1, Draw.IID), SeededRandom(1))
        assert drafter.behind(text) == 0


def test_there_is_no_room_where_its_context_ends_or_a_token_is_unknown() -> None:
    def drafter(n_ctx: int, n_vocab: int) -> DraftModel:
        backend = TableBackend(random_table(4, 3), n_vocab, n_ctx)
        return DraftModel(
            backend,
            Sampler(Sampling()),
            Chain(),
            lambda: False,
            translation=SameTokens(4, backend.capabilities.n_vocab),
        )

    text = ContractLimits().context(TEXT)
    assert drafter(n_ctx=len(TEXT) + 3, n_vocab=4).tokens_left(text) == 3
    assert drafter(n_ctx=len(TEXT), n_vocab=4).tokens_left(text) == 0
    assert drafter(n_ctx=2, n_vocab=4).tokens_left(text) == 0
    assert drafter(n_ctx=64, n_vocab=2).tokens_left(text) == 0
