"""What is told of methods, trees, length rules and verifiers: complete, and read off the declarations."""

import json
import re
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.speculation import registered
from localspec.ui.explain import AXES, PAGES, Page, explain, pages, spelled
from tests.exact.test_approximate import CASES

EVERY = [page for axis in AXES for page in pages(axis)]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", EVERY, ids=lambda page: f"{page.axis}-{page.name}")
def test_a_page_is_complete(page: Page) -> None:
    """A new method, policy or rule comes with its page; its facts are sentences and not holes."""
    for text in (page.idea, page.formula, page.helps, page.hurts, page.summary, page.usage):
        assert text.strip()
    assert f"--{page.axis} {page.name}" in page.usage
    assert json.loads(json.dumps(page.to_wire(), allow_nan=False)) is not None


def test_no_page_is_left_over() -> None:
    """A page without a class is one that nobody can read."""
    there = {(Path(str(path)).parent.name, Path(str(path)).stem) for path in Path(str(PAGES)).glob("*/*.md")}
    assert there == {(page.axis, page.name) for page in EVERY}


def test_everyday_is_what_has_a_measurement() -> None:
    """Each names a gain or what gains are told by; what `auto` takes without a seed is among them."""
    everyday = {(page.axis, page.name) for page in EVERY if page.mark_of_use == "everyday"}
    assert {("method", "plain"), ("method", "copy"), ("tree", "chain"), ("verify", "block")} <= everyday
    assert ("method", "lookahead") not in everyday
    for page in EVERY:
        assert (page.measured != "") == ((page.axis, page.name) in everyday)
        told = page.measured
        assert not told or re.search(r"\d times plain|\bwith it\b|gains", told), told


def test_lossless_is_what_the_classes_say() -> None:
    """One rule changes the output, and shows by how much, at every temperature that was enumerated."""
    lossy = [page for page in EVERY if not page.is_lossless]
    assert [page.name for page in lossy] == ["typical"]
    shown = [tuple(bias["total_variation"].values()) for page in lossy for bias in page.bias]
    assert sorted(shown) == sorted(case.bias for case in CASES)
    assert not any(page.bias for page in EVERY if page.is_lossless)


def test_what_a_rule_takes_is_asked_of_the_rule() -> None:
    """The spelling and the range come from the refusal of a wrong argument."""
    arguments = {entry.name: (entry.usage, entry.argument) for entry in pages("length")}
    assert arguments["confidence"] == ("--length confidence:0.4", "from 0 to 1 (default 0.4)")
    assert arguments["adaptive"] == ("--length adaptive:0.8", "from 0 to 1 (default 0.8)")
    assert arguments["fixed"] == ("--length fixed -k 4", "")
    usage = {entry.name: entry.usage for entry in pages("tree")}
    assert usage["chain"] == "--tree chain -k 4"
    assert usage["static"] == "--tree static:3,2,1"
    assert usage["dyspec"] == "--tree dyspec:16"


def test_papers() -> None:
    """Every paper that a module names, the method's own first; a neighbour's does not count."""
    papers = {(page.axis, page.name): page.papers for page in EVERY}
    assert papers["method", "early-exit"] == ("2404.16710", "2309.08168")
    assert papers["length", "adaptive"] == ("2309.08168",)
    assert papers["length", "confidence"] == ()
    assert papers["tree", "sequoia"] == ("2402.12374",)
    assert papers["tree", "chain"] == papers["method", "plain"] == ()


def test_a_name_on_two_axes_has_two_pages() -> None:
    """spectr is a shape and a rule."""
    assert [page.axis for page in explain("spectr").pages] == ["tree", "verify"]


@pytest.mark.parametrize(
    ("name", "meant"), [("sufix", "suffix"), ("eagle", "eagle3"), ("blok", "block"), ("acceptence", "acceptance")]
)
def test_a_misspelt_name(name: str, meant: str) -> None:
    """The nearest name is offered."""
    with pytest.raises(UsageError, match=f"did you mean '{meant}'") as caught:
        explain(name)
    assert caught.value.hint == f"localspec explain {meant}"


def test_nothing_like_it() -> None:
    with pytest.raises(UsageError, match=r"there is no method, rule, term, option or field called 'zzzzzz'$") as caught:
        explain("zzzzzz")
    assert caught.value.hint == "localspec methods"


def test_a_plug_in_without_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's method is explained by its docstring."""
    monkeypatch.setitem(registered("method"), "mine", registered("method")["suffix"])
    (page,) = explain("mine").pages
    assert "Suffix decoding" in page.idea
    assert page.formula


def test_parameters_are_told_as_they_are_typed() -> None:
    """A rule's follow its colon, a tree's the number of nodes, a method's stand alone."""
    found = {
        (entry.axis, entry.name): [entry.mark + spelled(one) for one in entry.options]
        for axis in AXES
        for entry in pages(axis)
    }
    assert found["verify", "typical"] == ["--verify typical:epsilon=0.09", "--verify typical:delta=0.3"]
    assert found["verify", "spectr"] == ["--verify spectr:rho=1"]
    assert "--tree eagle2:16,top=4" in found["tree", "eagle2"]
    assert "-o G=4" in found["method", "lookahead"]
