"""Copies of the text: which passage is gone on with, how an edit is survived, and how likely a copy is right."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

from localspec.engine.acceptance import CopyAcceptance, CopyKind
from localspec.errors import UsageError
from localspec.methods.copy import MAX_PASSAGE, PLACES, Copy
from localspec.settings.request import Speculation
from localspec.speculation.resolve import resolve_axes
from tests.methods.lookups import FREE, LookupContract, drafted

PASSAGE = list(range(100, 160))
NEWS = list(range(1000, 1010))  # tokens that stand nowhere else


def follow(drafter: Copy, prompt: Sequence[int], answer: Sequence[int], n: int = 4) -> list[list[int]]:
    drafts = [drafted(drafter, prompt, n)]
    text = list(prompt)
    for token in answer:
        text.append(token)
        drafts.append(drafted(drafter, text, n))
    return drafts


class TestCopy(LookupContract):
    name: ClassVar[str] = "copy"

    def copier(self) -> Copy:
        drafter = self.fresh()
        assert isinstance(drafter, Copy)
        return drafter

    def test_the_longest_passage_is_gone_on_with(self) -> None:
        """A later place that fewer tokens lead to is not copied from."""
        assert drafted(self.copier(), [1, 2, 3, 4, 70, 8, 2, 3, 4, 71, 9, 1, 2, 3, 4], 1) == [70]
        assert drafted(self.copier(), [1, 2, 3, 4, 70, 1, 2, 3, 4, 71, 9, 1, 2, 3, 4], 1) == [71], (
            "the latest of equals"
        )

    def test_of_passages_longer_than_are_compared_the_latest_is_copied(self) -> None:
        """The text goes on after a passage that is compared to its end, and no further."""
        text = [*range(MAX_PASSAGE), 900, *range(MAX_PASSAGE), 901, *range(1, MAX_PASSAGE)]
        assert drafted(self.copier(), text, 1) == [901]
        assert drafted(
            self.copier(), [5, *text[: MAX_PASSAGE + 1], 6, *text[: MAX_PASSAGE + 1], 5, *range(MAX_PASSAGE)], 1
        ) == [900]

    def test_of_many_places_only_the_latest_are_compared(self) -> None:
        """A common word stands in more places than there is time to compare."""
        text = [token for place in range(PLACES) for token in (1, 2, 3, 200 + place)]
        longer = [7, 8, 9, 1, 2, 3, 70, *text[4:], 8, 9, 1, 2, 3]
        assert drafted(self.copier(), longer, 1) == [70]
        assert drafted(self.copier(), [7, 8, 9, 1, 2, 3, 70, *text, 8, 9, 1, 2, 3], 1) == [200 + PLACES - 1]

    @pytest.mark.parametrize(
        ("edit", "goes_on"),
        [
            ([1000], PASSAGE[31:]),
            ([1000, PASSAGE[30]], PASSAGE[31:]),
            ([PASSAGE[33]], PASSAGE[34:]),
            ([1000, 1001, 1002, PASSAGE[33]], PASSAGE[34:]),
        ],
        ids=["a substitution", "an insertion", "a deletion", "three tokens for three"],
    )
    def test_after_an_edit_the_rest_is_copied(self, edit: list[int], goes_on: list[int]) -> None:
        """The copy leaves the passage for the edit and comes back to it, with the first token known again at latest."""
        answer = [*PASSAGE[:30], *edit, *goes_on]
        drafts = follow(self.copier(), [*PASSAGE, *NEWS], answer)
        at = 30 + len(edit) + 1  # a token after the edit was seen
        assert drafts[at] == goes_on[1:5]
        assert all(drafts[n] == answer[n : n + 4] for n in range(at, len(answer) - 4))

    def test_of_places_near_an_edit_the_nearest_is_gone_on_with(self) -> None:
        """The word after the edit stands at three of them, after other words each time."""
        passage = [*range(100, 112), 50, 60, 51, 60, 52, 60, 53]
        drafts = follow(self.copier(), [*passage, *NEWS], [*range(100, 112), 1500, 60], 1)
        assert drafts[-1] == [51]

    def test_an_edit_keeps_to_the_passage_though_its_words_stand_elsewhere(self) -> None:
        """After an edit the place near the last source is copied, not the latest one with the same token before it."""
        prompt = [*PASSAGE, PASSAGE[31], 700, 701, 702]
        answer = [*PASSAGE[:30], 1000, PASSAGE[31]]
        assert follow(self.copier(), prompt, answer)[-1] == PASSAGE[32:36]
        assert drafted(self.copier(), [*prompt, 1000, PASSAGE[31]], 3) == [700, 701, 702], "the copy remembers"

    @pytest.mark.parametrize("period", [1, 2, 3, 5])
    def test_a_copy_runs_into_itself(self, period: int) -> None:
        """As in LZ77: a copy longer than its distance to the end of the text repeats what it copied."""
        loop = list(range(period))
        assert drafted(self.copier(), [*NEWS, *loop, *loop], 12) == [loop[n % period] for n in range(12)]

    def test_a_text_that_went_back_is_read_again(self) -> None:
        """What stood after an edited turn is forgotten, and the source with it."""
        drafter = self.copier()
        assert drafted(drafter, [*PASSAGE, 5, *PASSAGE[:9]], 2) == PASSAGE[9:11]
        assert drafted(drafter, [*PASSAGE[:9], 6, 5], 2) == []
        used, fresh = drafter, self.copier()
        text = [*PASSAGE[:9], 6, *PASSAGE[2:4]]
        assert drafted(used, text, 3) == drafted(fresh, text, 3) == PASSAGE[4:7]

    @pytest.mark.parametrize("seed", range(5))
    def test_chances_are_those_of_the_table_for_the_source(self, seed: int) -> None:
        """The copier reports for every token what an observer of all earlier tokens knows."""
        rng = np.random.default_rng(seed)
        prompt = rng.integers(0, 30, 60).tolist()
        answer = [*prompt[10:30], *rng.integers(0, 30, 10).tolist(), *prompt[20:45], *prompt[12:40]]
        drafter, known = self.copier(), CopyAcceptance()
        text = list(prompt)
        n_judged = 0
        for token in answer:
            found = drafter.chances(FREE.context(text), 6)
            source = drafter._source
            if source is None:
                assert not len(found)
            else:
                kinds = [source.kind] + [CopyKind.NEAR if source.kind is CopyKind.NEAR else CopyKind.ONLY] * 5
                lengths = range(source.length, source.length + 6)
                assert found.tolist() == [known.chance(*one) for one in zip(kinds, lengths, strict=True)]
                known.observe(source.kind, source.length, drafted_first(drafter, text) == token)
                n_judged += 1
            text.append(token)
        assert n_judged > 60

    def test_chances_do_not_depend_on_what_comes(self) -> None:
        """Two texts that part have the same chances before the token at which they part."""
        rng = np.random.default_rng(3)
        text = rng.integers(0, 12, 80).tolist()
        for n in range(40, 79):
            one, other = self.copier(), self.copier()
            for end in range(30, n + 1):
                left = one.chances(FREE.context(text[:end]), 8)
                right = other.chances(FREE.context(text[:end]), 8)
            assert left.tolist() == right.tolist()
            ahead = self.copier()
            ahead.chances(FREE.context(text[:30]), 8)
            ahead.chances(FREE.context(text[:n]), 8)
            assert ahead.chances(FREE.context(text[:n]), 8).tolist() == left.tolist(), "read token by token or at once"

    def test_only_the_answer_teaches(self) -> None:
        """A prompt that repeats itself says nothing of what the model will repeat."""
        drafter = self.copier()
        before = drafter.acceptance.to_wire()
        drafter.chances(FREE.context(PASSAGE * 4), 4)
        assert drafter.acceptance.to_wire() == before
        drafter.chances(FREE.context([*PASSAGE * 4, PASSAGE[0]]), 4)
        assert drafter.acceptance.to_wire() != before

    def test_a_text_that_began_short_has_no_passage_of_no_tokens(self) -> None:
        """Nothing repeats, so nothing is judged, also where the first tokens were read before the others."""
        drafter = self.copier()
        for end in (1, 8):
            drafter.chances(FREE.context(NEWS[:end]), 4)
        assert drafter.acceptance.to_wire() == CopyAcceptance().to_wire()

    def test_the_axes_know_its_shape(self) -> None:
        """It drafts chains, so every rule may judge them; --tree does not apply."""
        axes = resolve_axes(Speculation(method="copy", verify="block", k=5), has_draft=False, is_seeded=False)
        assert (axes.shape.nodes, axes.shape.leaves) == (5, 1)
        with pytest.raises(UsageError, match="its own tree shape"):
            resolve_axes(Speculation(method="copy", tree="static:2,1"), has_draft=False, is_seeded=False)


def drafted_first(drafter: Copy, text: Sequence[int]) -> int:
    """Return the first token that is copied after `text`, which was read already."""
    (token,) = drafted(drafter, text, 1)
    return token
