"""Under a constraint the text has the target's masked distribution: every rule, shape, drafter and filter, enumerated.

The reference masks the target's row first and knows nothing of matchers. The shipped constraint walks a matcher
forwards and backwards through the same language.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from localspec.engine import constraint as shipped
from localspec.engine.constraint import Constraint, Matched
from localspec.engine.distribution import Distribution, Ids
from localspec.engine.draft import Draw
from localspec.engine.protocols import Drafter, Logits, TreePolicy, Verifier
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Intersection
from localspec.errors import UsageError
from localspec.methods import DrafterContext
from localspec.methods.draft_model import DraftModel, Eagle3, Medusa
from localspec.methods.lookahead import Lookahead
from localspec.methods.mask_tokens import MaskTokens
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.testing.contract import TableBackend, random_table
from localspec.trees.dyspec import DySpec
from localspec.trees.eagle2 import Eagle2
from localspec.trees.sequoia import Sequoia
from localspec.trees.specinfer import SpecInfer
from localspec.trees.spectr import SpecTr as Drafts
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.spectr import SpecTrVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import (
    OPEN,
    PROMPT,
    Setup,
    Table,
    answers,
    assert_exact,
    assert_texts_are_plain,
    first_tokens,
    passes,
    target_answers,
    total_variation,
    watched,
)
from tests.exact.test_heads import ToyHead, ToyMarginals
from tests.lexicons import lexicon

IID, WOR, FIXED = Draw.IID, Draw.WITHOUT_REPLACEMENT, Draw.FIXED
V, END = 5, 4
FILTERS: dict[str, Sampling] = {
    "open": OPEN,
    "top-k": replace(OPEN, top_k=2),
    "top-p min-p": replace(OPEN, top_p=0.8, min_p=0.1),
    "typical-p": replace(OPEN, typical_p=0.7),
    "xtc": replace(OPEN, xtc_probability=0.4, xtc_threshold=0.2),
    "penalties": replace(OPEN, repeat_penalty=1.25, presence_penalty=0.5, frequency_penalty=0.25, penalty_last_n=3),
    "all": Sampling(1.0, 3, 0.95, 0.02, 0.95, 1.25, 0.5, 0.25, -1, logit_bias=((1, 0.5),)),
}


def language(answer: Sequence[int]) -> tuple[int, ...]:
    """Return what may follow `answer`: 3 is forced after 2, and more may follow where a 0 came before."""
    if not answer:
        return (0, 2)
    if 0 in answer[:-1]:
        return {0: (1, 2), 1: (0, 1, END), 2: (3,), 3: (1, 2, 3, END), END: ()}[answer[-1]]
    return {0: (1, 2, 3), 1: (0, END), 2: (3,), 3: (0, 2, END), END: ()}[answer[-1]]


class Slow:
    """The constraint as its definition says."""

    language = staticmethod(language)

    def allowed(self, text: Sequence[int]) -> Ids:
        answer = tuple(text[len(PROMPT) :])
        for n, token in enumerate(answer):
            if token not in self.language(answer[:n]):
                return np.empty(0, np.int32)
        return np.array(self.language(answer), np.int32)


class Steps:
    """A matcher of the language."""

    language = staticmethod(language)

    def __init__(self) -> None:
        self.at: list[int] = []

    def mask(self) -> Ids:
        return np.array(self.language(self.at), np.int32)

    def consume(self, token: int) -> None:
        assert token in self.language(self.at), "only tokens of the mask are consumed"
        assert token != END, "no end token is consumed"
        self.at.append(token)

    def rollback(self, n: int) -> None:
        assert 0 < n <= len(self.at)
        del self.at[-n:]


def matched(matcher: Steps | None = None) -> Matched:
    made = Matched(matcher or Steps(), lambda token: token == END)
    made.begin = len(PROMPT)
    return made


def under(setup: Setup, constraint: Constraint | None = None) -> Setup:
    return replace(setup, n_vocab=V, eog=frozenset({END}), constraint=constraint or matched())


def truth(setup: Setup) -> dict[tuple[int, ...], float]:
    return target_answers(replace(setup, constraint=Slow()))


@dataclass(frozen=True)
class Form:
    """A rule with a shape and a way of drawing that it takes."""

    rule: Verifier
    policy: TreePolicy
    nodes: int
    depth: int
    draw: Draw

    def __str__(self) -> str:
        return f"{self.rule.name}-{type(self.policy).__name__}{self.nodes}-{self.draw.value}"

    def setup(self, **settings: Any) -> Setup:
        return under(Setup(self.rule, self.policy, self.nodes, self.depth, self.draw, **settings))


FORMS = [
    *(Form(rule, Chain(), 2, 2, draw) for rule in (TokenVerifier(), BlockVerifier()) for draw in (IID, FIXED, WOR)),
    *(Form(rule, Chain(), 3, 3, IID) for rule in (TokenVerifier(), BlockVerifier(), TraversalVerifier())),
    *(Form(TreeVerifier(), Static((2, 1)), 4, 2, draw) for draw in (IID, WOR, FIXED)),
    *(Form(TraversalVerifier(), Static((2, 1)), 4, 2, draw) for draw in (IID, WOR, FIXED)),
    *(Form(MatchVerifier(), Static((2, 1)), 4, 2, draw) for draw in (IID, FIXED)),
    Form(SpecTrVerifier(), Drafts(drafts=2), 4, 2, IID),
    Form(SpecTrVerifier(), Static((3,)), 3, 1, IID),
    Form(TreeVerifier(), SpecInfer((2, 1)), 4, 2, IID),
    Form(TraversalVerifier(), Sequoia(accept="0.5/0.3/0.1"), 4, 3, WOR),
    Form(TraversalVerifier(), DySpec(), 4, 3, WOR),
    Form(TreeVerifier(), DySpec(calibrated=False), 4, 3, WOR),
    Form(MatchVerifier(), Eagle2(top=2), 4, 3, FIXED),
    Form(TraversalVerifier(), Eagle2(top=3), 4, 3, FIXED),
]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_one_pass(form: Form, filters: str, temperature: float) -> None:
    """Every rule on every shape, with filters that see a masked row."""
    sampling = replace(FILTERS[filters], temperature=temperature)
    setup = form.setup(sampling=sampling, draft_temperature=1.0, max_tokens=form.depth + 1, seed=3)
    assert_exact(first_tokens(setup, passes(setup)), truth(setup))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("filters", ["open", "penalties"])
@pytest.mark.parametrize("seed", range(3))
def test_whole_generations(form: Form, filters: str, seed: int) -> None:
    """From the prompt on to the end token or the fourth, so that the matcher goes forwards and back between passes."""
    setup = form.setup(sampling=replace(FILTERS[filters], top_k=2), max_tokens=4, seed=seed)
    assert_exact(answers(setup), truth(setup))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_draft_that_is_not_masked(form: Form) -> None:
    """Any q is exact: chosen tokens that are not allowed are cut, drawn ones are judged and rejected."""

    class Anything:
        def allowed(self, text: Sequence[int]) -> Ids:
            return np.arange(V, dtype=np.int32)

    setup = replace(form.setup(max_tokens=3, seed=5), draft_constraint=Anything())
    assert_exact(first_tokens(setup, passes(setup)), truth(setup))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_draft_that_lacks_the_allowed_tokens(form: Form) -> None:
    """A draft whose row gives no allowed token a chance drafts as without the constraint."""
    poor = random_table(3, 8)

    def drafter(_target: Table) -> Drafter:
        drafting = Sampler(OPEN, constraint=constraint, drafts=True)
        return DraftModel(TableBackend(poor, 3), drafting, form.policy, lambda: False)

    constraint = matched()
    setup = replace(form.setup(max_tokens=3, seed=6), constraint=constraint, drafter=drafter)
    assert_exact(first_tokens(setup, passes(setup)), truth(setup))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("form", [form for form in FORMS if form.policy.draws >= {Draw.COUPLED}], ids=str)
@pytest.mark.parametrize("filters", FILTERS)
def test_coupled_noise_keeps_the_text(form: Form, filters: str) -> None:
    """A race on a masked distribution: one text a seed, with drafts and without."""
    setup = form.setup(sampling=FILTERS[filters], max_tokens=20)
    assert_texts_are_plain(replace(setup, verifier=CoupledVerifier(), draw=Draw.COUPLED), seeds=20)


# Drafters that are no draft model.


def parts(sampler: Sampler, policy: TreePolicy, options: dict[str, Any]) -> DrafterContext:
    return DrafterContext(None, sampler, policy, lambda: False, V, options, lambda token: token == END)


def head(kind: type[Any], backend: type[ToyHead], policy: TreePolicy) -> Any:
    class Wide(backend):
        def _row(self, tokens: tuple[int, ...]) -> Logits:
            return np.random.default_rng([9, *tokens]).normal(size=V).astype(np.float32)

    def made(target: Table, sampler: Sampler) -> Drafter:
        table = Wide(target)
        table.capabilities = replace(table.capabilities, n_vocab=V)
        return kind(table, sampler, policy, lambda: False)

    return made


def other_vocabulary(target: Table, sampler: Sampler) -> Drafter:
    theirs = lexicon([b"a", b"b", b"c", b"ab", b""], specials={b"<end>": END}, ends=(END,))
    own = lexicon([b"b", b"<eos>", b"c", b"a", b"x"], specials={b"<eos>": 1, b"<s>": 5}, ends=(1,), bos=5)
    backend = TableBackend(random_table(6, 500), 6)
    return DraftModel(backend, sampler, Chain(), lambda: False, translation=Intersection(theirs, own))


DRAFTERS: dict[str, tuple[Form, Any]] = {
    **{
        f"{method} {rule.name}": (
            Form(rule, Chain(), 3, 3, FIXED),
            lambda _, sampler, method=method, options=options: registered("method")[method].build(
                parts(sampler, Chain(), options)
            ),
        )
        for method, options in {
            "copy": {},
            "suffix": {"factor": 2.0, "min_prob": 0.05},
            "prompt-lookup": {},
        }.items()
        for rule in (BlockVerifier(), TreeVerifier(), MatchVerifier(), TraversalVerifier())
        if method != "suffix" or rule.trees
    },
    "lookahead": (
        Form(TraversalVerifier(), Chain(), 9, 3, FIXED),
        lambda _, sampler: Lookahead.build(parts(sampler, Chain(), {"W": 2, "N": 3, "G": 2})),
    ),
    "mask-tokens block": (
        Form(BlockVerifier(), Chain(), MaskTokens.pass_shape(Chain().shape(2)).nodes, 2, IID),
        lambda _, sampler: MaskTokens((V, V + 1), sampler, Chain()),
    ),
    "mask-tokens tree": (
        Form(TraversalVerifier(), Static((2, 1)), MaskTokens.pass_shape(Static((2, 1)).shape(2)).nodes, 4, WOR),
        lambda _, sampler: MaskTokens((V, V + 1), sampler, Static((2, 1))),
    ),
    "a head": (Form(BlockVerifier(), Chain(), 2, 2, IID), head(Eagle3, ToyHead, Chain())),
    "a head's tree": (Form(TreeVerifier(), DySpec(4), 4, 2, WOR), head(Eagle3, ToyHead, DySpec(4))),
    "a head that guesses at once": (
        Form(TraversalVerifier(), Static((2, 1)), 4, 2, WOR),
        head(Medusa, ToyMarginals, Static((2, 1))),
    ),
    "another vocabulary": (Form(BlockVerifier(), Chain(), 2, 2, IID), other_vocabulary),
}


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("filters", ["open", "penalties"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_drafter(name: str, filters: str, temperature: float) -> None:
    form, make = DRAFTERS[name]
    sampling = replace(FILTERS[filters], temperature=temperature)
    constraint = matched()
    drafting = Sampler(sampling, temperature=1.0, constraint=constraint, drafts=True)
    n = 5 if form.draw is FIXED else 4 if isinstance(form.policy, Chain) else 3
    setup = replace(
        form.setup(sampling=sampling, max_tokens=n, seed=3),
        constraint=constraint,
        drafter=lambda target: make(target, drafting),
    )
    assert_exact(answers(setup), truth(setup))


# Wrong forms, each caught by the comparisons above.


def bias(setup: Setup) -> float:
    return max(total_variation(answers(one), truth(one)) for one in (replace(setup, seed=seed) for seed in range(4)))


WRONG = Form(BlockVerifier(), Chain(), 2, 2, IID).setup(sampling=FILTERS["top-k"], max_tokens=3)


def test_a_mask_after_the_filters_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters and mask do not commute: top-k counts tokens that are then taken away."""

    def late(self: Sampler, logits: Logits, history: Sequence[int] = (), *, with_belief: bool = False) -> Distribution:
        assert self.constraint is not None
        law = self._filtered(self.adjusted(logits, history), with_belief=with_belief)
        allowed = self.constraint.allowed(history)
        held = np.isin(law.ids, allowed)
        if not held.any():
            return right(self, logits, history)
        return Distribution.of(law.ids[held], law.probs[held])

    assert bias(WRONG) < 1e-9
    right = Sampler.dist
    monkeypatch.setattr(Sampler, "dist", late)
    assert bias(WRONG) > 0.01


def test_a_matcher_that_is_not_rolled_back_is_caught() -> None:
    class Forward(Steps):
        def consume(self, token: int) -> None:
            self.at.append(token)

        def rollback(self, n: int) -> None:
            pass

    assert bias(replace(WRONG, constraint=matched(Forward()))) > 0.01


def test_a_rollback_of_one_token_too_many_is_caught() -> None:
    class TooFar(Steps):
        def consume(self, token: int) -> None:
            self.at.append(token)

        def rollback(self, n: int) -> None:
            del self.at[-n - 1 :]

    assert bias(replace(WRONG, constraint=matched(TooFar()))) > 0.01


def test_the_mask_of_the_parent_is_caught() -> None:
    class Late(Slow):
        def allowed(self, text: Sequence[int]) -> Ids:
            return super().allowed(text[: max(len(PROMPT), len(text) - 1)])

    assert bias(replace(WRONG, constraint=Late())) > 0.01


def test_drawn_tokens_that_are_dropped_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drawn token that is not allowed must be rejected by the rule, which then draws from the residual."""

    class Anything:
        def allowed(self, text: Sequence[int]) -> Ids:
            return np.arange(V, dtype=np.int32)

    setup = replace(WRONG, draft_constraint=Anything(), sampling=OPEN)
    assert bias(setup) < 1e-9
    monkeypatch.setattr(shipped, "CHOSEN", tuple(Draw))
    assert bias(setup) > 0.01


def test_a_language_that_may_not_end_is_caught() -> None:
    class Endless(Slow):
        def allowed(self, text: Sequence[int]) -> Ids:
            found = super().allowed(text)
            return found[found != END]

    assert bias(replace(WRONG, constraint=Endless())) > 0.01


def test_forced_tokens_are_drafted_with_certainty() -> None:
    """Where one token is allowed, p and q are that token: it is never rejected."""
    kind = watched(DraftModel)

    class Forced(Slow):
        def allowed(self, text: Sequence[int]) -> Ids:
            return np.array([len(text) % 3], np.int32)

    sampler = Sampler(OPEN, constraint=Forced(), drafts=True)
    setup = replace(
        WRONG,
        constraint=Forced(),
        max_tokens=7,
        drafter=lambda _: kind(TableBackend(random_table(V, 1), V), sampler, Chain(), lambda: False),
    )
    assert len(answers(setup)) == 1
    assert kind.seen == {(2, 2)}


def test_a_target_that_cannot_write_what_is_allowed_is_an_error() -> None:
    sampler = Sampler(replace(OPEN, logit_bias=((0, -np.inf), (2, -np.inf))), constraint=Slow())
    with pytest.raises(UsageError, match="cannot write"):
        sampler.dist(np.zeros(V, np.float32), PROMPT)


def test_a_sampler_without_a_constraint_asks_for_no_history() -> None:
    assert not Sampler(OPEN).needs_history
    assert Sampler(OPEN, constraint=Slow()).needs_history
