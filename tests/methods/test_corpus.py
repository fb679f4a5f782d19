"""Texts of other files: the places whose passage is longest are found, and copies end where a file does."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.corpus import BETWEEN, DEPTH, KEY, PLACES, Corpus, CorpusSegment
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.methods.copy import Copy
from localspec.settings.request import Sampling
from localspec.trees.static import Chain
from tests.methods.lookups import drafted

FILES = st.lists(st.lists(st.integers(0, 3), max_size=40), max_size=6)


def corpus_of(*segments: Sequence[Sequence[int]]) -> Corpus:
    corpus = Corpus()
    for n, files in enumerate(segments):
        corpus.add(str(n), CorpusSegment.of(files))
    return corpus


def copier(corpus: Corpus | None, prediction: tuple[int, ...] = ()) -> Copy:
    sampler = Sampler(Sampling())
    return Copy(DrafterContext(None, sampler, Chain(), lambda: False, 4096, prediction=prediction, corpus=corpus))


def passage(text: Sequence[int], file: Sequence[int], at: int) -> int:
    """Count the tokens before `at` of a file that end the text, as the definition has it."""
    n = 0
    while n < min(at, len(text)) and file[at - 1 - n] == text[-1 - n]:
        n += 1
    return n


@given(FILES, st.lists(st.integers(0, 3), min_size=KEY, max_size=30))
def test_the_places_are_those_of_the_longest_passages(files: list[list[int]], text: list[int]) -> None:
    """Up to the depth to which they are sorted; shorter passages than KEY are none."""
    found = [
        (min(DEPTH, passage(text, tokens[:at].tolist(), at)), int(tokens[at]))
        for tokens, at in corpus_of(files).places(text, len(text))
    ]
    lengths = sorted((min(DEPTH, passage(text, file, at)) for file in files for at in range(len(file))), reverse=True)
    wanted = [length for length in lengths if length >= KEY]
    assert len(found) == min(len(wanted), len(found)) <= PLACES
    assert all(length >= KEY and token != BETWEEN for length, token in found)
    assert max((length for length, _ in found), default=0) == max(wanted, default=0)
    if len(wanted) <= PLACES:
        assert sorted((length for length, _ in found), reverse=True) == wanted


def test_what_stands_in_another_file_is_copied_to_its_end() -> None:
    corpus = corpus_of([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10]])
    assert (corpus.n_files, corpus.n_tokens) == (2, 10)
    assert drafted(copier(corpus), [50, 51, 2, 3, 4], 8) == [5, 6]
    assert drafted(copier(corpus), [50, 5, 6, 7, 8, 9], 8) == [10], "no passage reaches into the file before"
    assert drafted(copier(corpus), [50, 51, 4, 5, 6], 8) == [], "nothing follows the end of a file"
    assert drafted(copier(corpus), [50, 51, 3, 4], 8) == [], "two tokens stand in every text"
    assert drafted(copier(None), [50, 51, 2, 3, 4], 8) == []


def test_a_longer_passage_of_the_text_itself_goes_before() -> None:
    corpus = corpus_of([[11, 12, 13, 14, 70, 71]])
    text = [10, 11, 12, 13, 14, 80, 81, 5, 10, 11, 12, 13, 14]
    assert drafted(copier(corpus), text, 2) == [80, 81]
    assert drafted(copier(corpus), text[6:], 2) == [70, 71]


def test_after_an_edit_the_same_file_goes_on() -> None:
    """One name was changed: no three tokens lead on, but the source is near."""
    file = list(range(100, 140))
    drafter, text = copier(corpus_of([file])), [1, 2, *file[:12]]
    for token in file[12:20]:
        assert drafted(drafter, text, 1) == [token]
        text.append(token)
    text.append(999)  # in place of file[20]
    assert drafted(drafter, text, 3) == []
    text.append(file[21])
    assert drafted(drafter, text, 3) == file[22:25]


def test_segments_come_and_go_while_a_text_is_written() -> None:
    corpus = corpus_of([[1, 2, 3, 4, 5, 6, 7, 8]])
    drafter = copier(corpus)
    assert drafted(drafter, [60, 2, 3, 4], 9) == [5, 6, 7, 8]
    corpus.add("new", CorpusSegment.of([[20, 21, 22, 23]]))
    corpus.keep(["new"])
    assert drafted(drafter, [60, 2, 3, 4, 5], 9) == [6, 7, 8], "a copy that was begun goes on"
    assert drafted(drafter, [60, 2, 3, 4, 5, 20, 21, 22], 9) == [23]
    assert drafted(copier(corpus), [60, 2, 3, 4], 9) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda numbers: numbers[:0],
        lambda numbers: numbers[:-1],
        lambda numbers: np.append(numbers[:-1], np.uint32(2**31)),
        lambda numbers: np.full_like(numbers, 7),
    ],
)
def test_a_damaged_segment_is_refused(damage: object) -> None:
    numbers = CorpusSegment.of([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10]]).numbers
    assert CorpusSegment(numbers).tokens.tolist() == [1, 2, 3, 4, 5, 6, BETWEEN, 7, 8, 9, 10, BETWEEN]
    with pytest.raises(ValueError, match="segment"):
        CorpusSegment(damage(numbers))
