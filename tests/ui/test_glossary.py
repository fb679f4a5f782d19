"""The terms of the glossary: complete, short, and without two meanings for a name."""

import pytest

from localspec.ui.explain import AXES, explain, pages
from localspec.ui.glossary import FIGURES, TERMS, Term, find, key, names
from tests.test_docs import LONGEST_PARAGRAPH, LONGEST_SENTENCE, sentences, words

AXIS_NAMES = {entry.name for axis in AXES for entry in pages(axis)}


def test_the_verdict_says_where_it_stands() -> None:
    """F1 has this line, and a narrow chat has no figures with the sentence."""
    assert "/stats" in TERMS["verdict"].short


@pytest.mark.parametrize("term", TERMS.values(), ids=lambda term: term.name)
def test_a_term_is_short_and_leads_on(term: Term) -> None:
    """One line for a list, a few sentences, and related names that exist."""
    assert term.short[0].islower()
    assert len(term.short) <= 72
    assert not term.short.endswith(".")
    assert words(term.text) <= LONGEST_PARAGRAPH
    assert not [each for each in sentences(term.text) if words(each) > LONGEST_SENTENCE]
    assert all(name in TERMS or name in AXIS_NAMES for name in term.see)


def test_a_name_means_one_term() -> None:
    assert len(names()) == len(set(names()))


@pytest.mark.parametrize("typed", ["ttft", "TTFT", "time to first token", "time-to-first-token"])
def test_spellings(typed: str) -> None:
    term = find(typed)
    assert term is not None
    assert term.name == "time to first token"
    assert key("KV cache") in TERMS


def test_the_figures_are_terms() -> None:
    """The eight lines of the help screen, and the words that people meet first."""
    assert len(FIGURES) == 8
    assert set(FIGURES) <= TERMS.keys()
    for word in ("acceptance", "speedup", "baseline", "target", "draft-model", "pair", "k", "tree", "chain", "token"):
        assert find(word) is not None, word
    words = "distribution lossless reproducible prefill ttft context kv-cache auto head tli"
    for word in words.split():
        assert find(word) is not None, word


def test_a_term_that_is_also_a_method_has_its_page() -> None:
    found = explain("draft model")
    assert found.term is TERMS["draft-model"]
    assert [page.usage for page in found.pages] == ["--method draft-model"]
    assert explain("acceptance").pages == ()
    assert explain("eagle2").term is None
