"""What the drafters that read the text have in common, tested once: a contract beyond `DrafterContract`."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import pytest

from localspec.control.lengths import Fixed
from localspec.engine.draft import Draft, Draw, Step
from localspec.engine.loop import Engine
from localspec.engine.protocols import DraftState, Plan, Shape, TreePolicy, no_stop_rule
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.methods._lookup import LookupDrafter
from localspec.settings.declaration import Value
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.testing.contract import ContractLimits, DrafterContract, DrafterUnderTest, Table, TableBackend
from localspec.trees.static import Chain
from localspec.verify.match import MatchVerifier

FREE = ContractLimits(n_ctx=4096)


def propose(
    drafter: LookupDrafter,
    tokens: Sequence[int],
    nodes: int = 8,
    draw: Draw = Draw.FIXED,
    go_on: Callable[[DraftState], bool] = no_stop_rule,
) -> Draft:
    """Ask for a draft after `tokens`, a text that may have nothing to do with the last one."""
    context = FREE.context(tokens)
    drafter.begin(context)
    return drafter.propose(context, Plan("it", nodes, nodes, draw, go_on), SeededRandom(1))


def drafted(drafter: LookupDrafter, tokens: Sequence[int], nodes: int = 8) -> list[int]:
    return propose(drafter, tokens, nodes).tokens[1:].tolist()


def scripted(truth: Sequence[int], n_vocab: int) -> Table:
    """Return a model that is certain of `truth`."""

    def table(tokens: tuple[int, ...]) -> np.ndarray:
        row = np.full(n_vocab, -np.inf, np.float32)
        row[truth[len(tokens)]] = 0.0
        return row

    return table


def replay(drafter: LookupDrafter, truth: Sequence[int], prompt_n: int, k: int) -> list[Step]:
    """Generate the rest of `truth` with the shipped engine; return the passes, that of the prompt left out."""
    n_vocab = max(truth) + 1
    engine = Engine.local(
        TableBackend(scripted(truth, n_vocab), n_vocab, n_ctx=4096),
        {"it": drafter},
        MatchVerifier(),
        Fixed("it", Shape(k, k, 1), Draw.FIXED),
        Sampler(Sampling(temperature=0.0)),
        SeededRandom(0),
        lambda: 0.0,
        lambda: False,
    )
    context = ContractLimits(max_tokens=len(truth) - prompt_n, n_ctx=4096).context(truth[:prompt_n])
    steps = list(engine.generate(context))
    assert context.tokens == list(truth)
    return steps[1:]


class LookupContract(DrafterContract):
    """Subclass it with the method's name."""

    name: ClassVar[str]

    def fresh(self, **options: Value) -> LookupDrafter:
        """Build the drafter as a session does, without a draft model; token 99 ends a text."""
        parts = DrafterContext(
            None, Sampler(Sampling()), Chain(), lambda: False, 4096, options, lambda token: token == 99
        )
        drafter = registered("method")[self.name].build(parts)
        assert isinstance(drafter, LookupDrafter)
        return drafter

    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        return DrafterUnderTest(self.fresh())

    @pytest.mark.parametrize("period", [1, 2, 3, 7, 20])
    @pytest.mark.parametrize("k", [1, 4, 12])
    def test_a_loop_is_drafted_whole(self, period: int, k: int) -> None:
        """A repetitive prompt gives k + 1 tokens a pass, also where the loop is shorter than the draft."""
        truth = [*range(period)] * (300 // period)
        steps = replay(self.fresh(), truth, max(3 * period, 30), k)
        assert len(steps) > 10
        assert all(step.n_accepted == k for step in steps[:-1])

    def test_a_passage_of_the_prompt_is_copied(self) -> None:
        """A target that quotes its prompt: at least four tokens a pass, and nothing is drafted before the quotation."""
        rng = np.random.default_rng(1)
        prompt = rng.permutation(1000).tolist()
        steps = replay(self.fresh(), [*prompt, *range(1000, 1020), *prompt[300:420]], len(prompt), 16)
        committed = [len(step.tokens) for step in steps]
        assert sum(committed) / len(steps[19:]) >= 4.0
        assert sum(len(step.draft) for step in steps[:19]) == 0

    def test_nothing_repeats_nothing_is_drafted(self) -> None:
        """A prompt without repetition, and a text that goes on without one."""
        truth = np.random.default_rng(2).permutation(400).tolist()
        assert all(len(step.draft) == 0 for step in replay(self.fresh(), truth, 300, 8))

    @pytest.mark.parametrize("text", [[5], [5, 6], [1, 2, 3, 4], [7, 8, 9] * 1])
    def test_the_end_of_the_text_does_not_match_itself(self, text: list[int]) -> None:
        """What was said once was never followed by anything."""
        drafter = self.fresh()
        assert drafted(drafter, text) == []
        assert drafted(drafter, text) == []  # nor does a second reading make it twice

    @pytest.mark.parametrize("draw", Draw)
    def test_every_node_is_a_point_mass(self, draw: Draw) -> None:
        """Whatever the plan says of draws: no distribution but a point mass would be true."""
        draft = propose(self.fresh(), [1, 2, 3] * 5, draw=draw)
        assert len(draft) == 8
        assert draft.dists == (None,) * 9
        assert set(draft.draws) == {Draw.FIXED}

    def test_it_sees_what_others_committed(self) -> None:
        """Passes that it did not draft are read when it is next asked, whether or not `begin` came between."""
        drafter = self.fresh()
        context = FREE.context([1, 2, 3])
        plan = Plan("it", 4, 4)
        drafter.begin(context)
        assert len(drafter.propose(context, plan, SeededRandom(1))) == 0
        context.tokens += [9, 8, 7, 1, 2, 3]
        draft = drafter.propose(context, plan, SeededRandom(1))
        assert draft.tokens[1:3].tolist() == [9, 8]

    def test_a_rule_may_end_the_draft(self) -> None:
        """`go_on` is asked before each node, with what followed the context so far as a distribution."""
        asked: list[DraftState] = []
        text = [1, 2, 3, 4] * 4
        draft = propose(self.fresh(), text, go_on=lambda state: asked.append(state) is None and len(asked) < 4)
        assert draft.tokens[1:].tolist() == [1, 2, 3]
        assert [(state.n_nodes, state.depth) for state in asked] == [(0, 0), (1, 1), (2, 2), (3, 3)]
        assert [state.chance for state in asked] == [1.0] * 4
        assert all(state.dist.prob(token) == 1.0 for state, token in zip(asked, [1, 2, 3, 4], strict=True))

    def test_nothing_is_drafted_after_the_end(self) -> None:
        """In a chat the last turn's end token is followed by something, but the answer will not be."""
        assert drafted(self.fresh(), [6, 7, 1, 2, 99, 4, 5, 8, 6, 7, 1]) == [2, 99]
