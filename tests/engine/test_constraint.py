"""Constraints: where a matcher walks, what is cut off a draft, runs of forced tokens, whether a text is whole."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.constraint import NOTHING, Ahead, Matched, cut, forced_run, is_allowed, is_whole
from localspec.engine.distribution import Distribution, Ids
from localspec.engine.draft import Draft
from tests.exact.harness import PROMPT
from tests.exact.test_constraint import END, FIXED, IID, Slow, Steps, V, matched


class Told(Steps):
    """Tells what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def mask(self) -> Ids:
        self.told.append("mask")
        return super().mask()

    def consume(self, token: int) -> None:
        self.told.append(f"+{token}")
        super().consume(token)

    def rollback(self, n: int) -> None:
        self.told.append(f"-{n}")
        super().rollback(n)


def after(constraint: Matched, *answer: int) -> list[int]:
    return constraint.allowed([*PROMPT, *answer]).tolist()


def test_a_matcher_walks_no_further_than_it_must() -> None:
    matcher = Told()
    one = matched(matcher)
    assert after(one, 0, 1) == [0, 1, END]
    assert matcher.told == ["mask", "+0", "mask", "+1", "mask"]
    assert [after(one, 0), after(one), after(one, 0, 1)] == [[1, 2, 3], [0, 2], [0, 1, END]], "masks are remembered"
    assert len(matcher.told) == 5
    assert after(one, 0, 2) == [3]
    assert matcher.told[5:] == ["-1", "+2", "mask"]
    assert after(one, 2) == [3]
    assert matcher.told[8:] == ["-2", "+2", "mask"]


def test_no_end_and_no_token_that_is_not_allowed_is_consumed() -> None:
    """A draft may go on behind either; the next question finds the matcher at a place of the language."""
    matcher = Told()
    one = matched(matcher)
    for answer in ([0, 1, END], [0, 1, END, 0], [0, 1, 3], [0, 1, 3, 0], [END], [3]):
        assert after(one, *answer) == []
    assert [told for told in matcher.told if told[0] == "+"] == ["+0", "+1"]
    assert after(one, 0, 1) == [0, 1, END]


def test_the_last_64_masks_are_remembered() -> None:
    matcher = Told()
    one = matched(matcher)
    answer = [0, 1] * 34
    after(one, *answer)
    assert sorted(one._masks) == list(range(5, 69))
    told = len(matcher.told)
    after(one, *answer[:5])
    assert len(matcher.told) == told
    after(one, *answer[:4])
    assert matcher.told[told:] == ["-64", "mask"]


def test_what_comes_before_the_answer_is_no_part_of_it() -> None:
    one = Matched(Steps(), lambda token: token == END)
    assert one.allowed([2]).tolist() == [3]
    one.begin_at(3)
    assert one.allowed([9, 9, 9, 2]).tolist() == [3]
    one.begin_at(1)
    assert one.allowed([9, 2, 3]).tolist() == [0, 2, END]


def test_chosen_drafts_are_cut_at_the_first_token_that_is_not_allowed() -> None:
    chain = Draft.of([1, 0, 2, 3, 0, 1], range(-1, 5), shares=[1.0] * 6)
    assert cut(chain, Slow(), PROMPT).tokens.tolist() == [1, 0, 2, 3]
    tree = Draft.of([1, 1, 0, 2, 3, 1], [-1, 0, 0, 2, 1, 2], shares=[1.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    left = cut(tree, Slow(), PROMPT)
    assert (left.tokens.tolist(), left.parents.tolist()) == ([1, 0, 2, 1], [-1, 0, 1, 1])
    assert left.shares == (1.0, 0.2, 0.3, 0.5)


def test_every_draft_is_cut_at_its_end() -> None:
    law = Distribution.of(np.arange(V, dtype=np.int32), np.ones(V))
    for draw, dists in ((IID, [None, law, law, law, law]), (FIXED, ())):
        chain = Draft.of([1, 0, 1, END, 0], range(-1, 4), dists, draw)
        assert cut(chain, Slow(), PROMPT).tokens.tolist() == [1, 0, 1, END]


def test_a_drawn_token_stays_and_what_follows_it_goes() -> None:
    law = Distribution.of(np.arange(V, dtype=np.int32), np.ones(V))
    chain = Draft.of([1, 0, 0, 1], range(-1, 3), [None, law, law, law], IID)
    assert cut(chain, Slow(), PROMPT).tokens.tolist() == [1, 0, 0]


def test_an_allowed_draft_is_itself() -> None:
    chain = Draft.of([1, 0, 2, 3], range(-1, 3))
    assert cut(chain, Slow(), PROMPT) is chain


def test_scratch_nodes_keep_their_numbers_when_a_draft_is_cut() -> None:
    """Lookahead and mask tokens know their nodes by number: what may not follow becomes scratch in its place."""
    draft = Draft.of([1, 0, 3, 1, 2, 3], [-1, 0, 1, 2, 1, 4], draw=FIXED)
    draft = draft.with_scratch(np.array([7, 8], np.int32), np.array([0, 6], np.int32), outputs=True)
    left = cut(draft, Slow(), PROMPT)
    assert left.tokens.tolist() == draft.tokens.tolist()
    assert left.scratch.tolist() == [False, False, False, False, False, False, True, True]
    assert cut(left, Slow(), PROMPT) is left, "there is nothing to cut"
    draft = replace(draft, tokens=np.array([1, 0, 0, 0, 2, 1, 2, 8], np.int32))  # node 6 would be allowed
    left = cut(draft, Slow(), PROMPT)
    assert left.scratch.tolist() == [False, False, True, True, False, True, True, True]
    assert left.children == ((1,), (4,), (), (), (), (), (), ())


def test_a_constraint_is_asked_once_for_the_children_of_a_node() -> None:
    asked: list[int] = []

    class Counted(Slow):
        def allowed(self, text: Sequence[int]) -> Ids:
            asked.append(len(text) - len(PROMPT))
            return super().allowed(text)

    tree = Draft.of([1, 0, 2, 1, 2, 3], [-1, 0, 0, 1, 1, 2])
    assert cut(tree, Counted(), PROMPT) is tree
    assert asked == [0, 1, 1]


def test_a_run_is_of_tokens_that_alone_are_allowed() -> None:
    def run(*answer: int, most: int) -> tuple[int, ...]:
        return forced_run(Run(), (*PROMPT, *answer), most)

    class Run(Slow):
        """2 forces 3 and then 1; after 0 and 1 the answer ends."""

        @staticmethod
        def language(answer: Sequence[int]) -> tuple[int, ...]:
            last = tuple(answer[-2:])
            return {(2,): (3,), (2, 3): (1,), (0, 1): (END,), (1, END): ()}.get(last, (0, 1, 2))

    assert run(2, most=9) == (3, 1)
    assert run(2, most=2) == (3, 1)
    assert run(2, most=1) == (3,)
    assert run(2, most=0) == ()
    assert run(0, 1, most=9) == (END,)
    assert run(0, 1, END, most=9) == ()


def test_a_run_without_an_end_is_as_long_as_there_is_room() -> None:
    class Endless:
        def allowed(self, text: Sequence[int]) -> Ids:
            return np.array([1], np.int32)

    assert forced_run(Endless(), PROMPT, 127) == (1,) * 127


def test_a_text_is_whole_where_it_may_end() -> None:
    ends = np.array([END], np.int32)
    assert is_whole(Slow(), [*PROMPT, 0, 1], ends)
    assert is_whole(Slow(), [*PROMPT, 0, 1, END], ends)
    assert not is_whole(Slow(), [*PROMPT, 0], ends)
    assert not is_whole(Slow(), PROMPT, ends)
    assert is_whole(Slow(), [*PROMPT, 0, 1], np.array([END, 9], np.int32)), "any of the ends will do"


@pytest.mark.parametrize("ids", [[], [3], [0, 3, 7]])
def test_which_tokens_are_allowed(ids: list[int]) -> None:
    allowed = np.array(ids, np.int32)
    assert [token for token in range(9) if is_allowed(allowed, token)] == ids


def test_the_text_ahead_ends_behind_the_forced_tokens() -> None:
    assert Ahead([1, 2, 3]).position == 3


def test_nothing_is_a_mask_like_others() -> None:
    assert (NOTHING.size, NOTHING.dtype) == (0, np.int32)
