"""`--reproducible`: what is refused, how drafts are shortened, and that no pass is wider than allowed."""

from typing import Any

import pytest

from localspec.engine.protocols import DraftBudget, History, Plan, Shape
from localspec.errors import UsageError
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.speculation.capabilities import Fitted
from localspec.speculation.reproducible import Narrow, exact, fit_widths
from localspec.speculation.resolve import resolve_axes
from localspec.ui.settings import check

WARM, COLD = Sampling(temperature=0.8), Sampling(temperature=0.0)
SETTINGS = LoadSettings("/t.gguf", "/d.gguf", reproducible=True)


def fitted(widest: int, *, has_draft: bool = True, sampling: Sampling = WARM, **asked: Any) -> Fitted:
    speculation = exact(Speculation(**asked), sampling)
    axes = resolve_axes(speculation, has_draft=has_draft, is_seeded=False, is_greedy=sampling.temperature == 0.0)
    return fit_widths(Fitted(axes), speculation, range(1, widest + 1))


@pytest.mark.parametrize(
    ("asked", "sampling", "words", "hint"),
    [
        ({"approximate": True, "verify": "typical"}, WARM, "--approximate changes", "leave out --approximate"),
        ({"tree": "static:2,2"}, WARM, "--tree static:2,2 has branches", "--tree chain"),
        ({"verify": "block"}, WARM, "--verify block draws", "--verify coupled"),
        ({"verify": "token"}, COLD, "--verify token draws", "--verify coupled"),
        ({"verify": "match"}, WARM, "--verify match draws", "--verify coupled"),
        ({"method": "suffix", "options": (("branch", "on"),)}, WARM, "drafts branches", "-o branch=off"),
    ],
)
def test_what_gives_another_text_is_refused_before_a_model_loads(
    asked: dict[str, Any], sampling: Sampling, words: str, hint: str
) -> None:
    request = Request(prompt="x", sampling=sampling, speculation=Speculation(**asked))
    with pytest.raises(UsageError, match=words) as caught:
        check(request, SETTINGS)
    assert caught.value.hint == hint
    with pytest.raises(UsageError, match=words):
        exact(request.speculation, sampling)


@pytest.mark.parametrize("sampling", [WARM, COLD])
@pytest.mark.parametrize("method", ["auto", "draft-model", "suffix", "plain", "prompt-lookup"])
def test_the_seed_decides_the_text(method: str, sampling: Sampling) -> None:
    assert fitted(3, method=method, sampling=sampling).axes.verify == "coupled"


def test_match_stays_at_temperature_0() -> None:
    assert fitted(3, sampling=COLD, verify="match").axes.verify == "match"


@pytest.mark.parametrize("method", ["auto", "draft-model", "suffix", "prompt-lookup"])
@pytest.mark.parametrize("widest", [2, 3, 16])
def test_drafts_are_chains_that_fit(method: str, widest: int) -> None:
    found = fitted(widest, method=method)
    n = found.axes.shape.nodes
    assert 0 < n < widest
    assert found.axes.shape == Shape(n, n, 1)
    assert found.axes.method == ("draft-model" if method == "auto" else method)
    assert found.warnings == ()


@pytest.mark.parametrize("method", ["auto", "draft-model", "suffix"])
def test_a_length_that_was_asked_for_is_refused_where_it_does_not_fit(method: str) -> None:
    assert fitted(3, method=method, k=2).axes.shape.nodes == 2
    with pytest.raises(UsageError, match="-k 3 needs passes of 4 rows, and up to 3") as caught:
        fitted(3, method=method, k=3)
    assert caught.value.hint == "-k 2"


@pytest.mark.parametrize(
    ("widest", "options", "why"),
    [(16, (), "drafts branches"), (2, (("W", "1"), ("N", "4"), ("G", "1")), "drafts")],
)
def test_a_method_that_cannot_draft_so_decodes_plainly(widest: int, options: Any, why: str) -> None:
    found = fitted(widest, method="lookahead", options=options)
    assert (found.axes.method, found.axes.shape.nodes) == ("plain", 0)
    assert why in found.warnings[0]
    assert found.warnings[0].endswith("so decoding is plain")


@pytest.mark.parametrize("has_draft", [True, False])
@pytest.mark.parametrize("asked", [{}, {"method": "suffix"}, {"method": "suffix", "k": 4}])
def test_where_one_row_alone_is_exact_decoding_is_plain_and_says_why(has_draft: bool, asked: dict[str, Any]) -> None:
    found = fitted(1, has_draft=has_draft, **asked)
    assert (found.axes.method, found.axes.is_automatic, found.axes.is_guarded) == ("plain", False, False)
    assert found.warnings == ("no pass of several rows gives the bits of one row here, so decoding is plain",)
    assert fitted(1, method="plain").warnings == ()


def test_copies_stay_possible_without_a_draft() -> None:
    assert fitted(3, has_draft=False).axes.is_automatic


class Greedy:
    """A controller that takes more than it is given."""

    def __init__(self, plan: Plan) -> None:
        self.made = plan
        self.budgets: list[DraftBudget] = []
        self.steps: list[Any] = []

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        self.budgets.append(budget)
        return self.made

    def observe(self, step: Any, seconds: float) -> None:
        self.steps.append((step, seconds))


@pytest.mark.parametrize(
    ("plan", "widths"),
    [
        (Plan("x", 8, 8), [1, 2, 3]),
        (Plan("x", 2, 2, widths=(1, 4, 4)), [1, 2, 3]),
        (Plan("x", 2, 2, widths=(1, 3, 3)), [1, 3, 3]),
    ],
)
def test_no_pass_is_wider_than_allowed(plan: Plan, widths: list[int]) -> None:
    inner = Greedy(plan)
    nobody: Any = None
    step: Any = "step"
    narrow = Narrow(inner, 3)
    found = narrow.plan(nobody, DraftBudget(20, 30))
    assert inner.budgets == [DraftBudget(20, 2)]
    assert [found.width(n) for n in range(found.max_nodes + 1)] == widths
    narrow.observe(step, 1.0)
    assert inner.steps == [("step", 1.0)]
