"""Prompt lookup: the latest place of the longest n-gram, and the copy that runs into itself."""

from typing import ClassVar

import pytest

from localspec.errors import UsageError
from localspec.settings.request import Speculation
from localspec.speculation.resolve import resolve_axes
from tests.methods.lookups import LookupContract, drafted


class TestPromptLookup(LookupContract):
    name: ClassVar[str] = "prompt-lookup"

    def test_the_latest_place_wins(self) -> None:
        """Both places match equally long; the later one is copied."""
        assert drafted(self.fresh(), [1, 2, 5, 6, 1, 2, 7, 8, 1, 2], 2) == [7, 8]

    def test_the_longest_match_wins(self) -> None:
        """An earlier place where more tokens match beats a later one."""
        text = [1, 2, 3, 5, 9, 2, 3, 6, 8, 3, 7, 1, 2, 3]
        assert drafted(self.fresh(n=3), text, 1) == [5]
        assert drafted(self.fresh(n=2), text, 1) == [6]
        assert drafted(self.fresh(n=1), text, 1) == [7]

    def test_short_matches_can_be_refused(self) -> None:
        """`min_n`: fewer tokens than that are no reason to draft."""
        text = [1, 2, 3, 9, 8, 2, 3]
        assert drafted(self.fresh(min_n=2), text, 2) == [9, 8]
        assert drafted(self.fresh(min_n=3), text, 2) == []

    def test_contradicting_lengths_are_refused(self) -> None:
        """Before anything is loaded, with an option to type."""
        spoken = Speculation(method="prompt-lookup", options=(("min_n", "4"),))
        with pytest.raises(UsageError, match="min_n=4 is more than the 3") as caught:
            resolve_axes(spoken, has_draft=False, is_seeded=False)
        assert caught.value.hint == "-o n=4"

    @pytest.mark.parametrize("n", range(1, 6))
    def test_a_copy_runs_into_itself(self, n: int) -> None:
        """Where the copy reaches the end of the text it goes on with what it copied."""
        assert drafted(self.fresh(n=n), [1, 2, 3, 3], 4) == [3, 3, 3, 3]
        assert drafted(self.fresh(n=n), [9, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]

    def test_a_text_that_went_back_is_read_again(self) -> None:
        """An edited turn: what stood after the edit is not known any more."""
        drafter = self.fresh()
        assert drafted(drafter, [1, 2, 3, 4, 1, 2, 5, 6, 1, 2], 2) == [5, 6]
        assert drafted(drafter, [1, 2, 3, 4, 1, 2], 2) == [3, 4]
        assert drafted(drafter, [6, 1, 6], 2) == [1, 6]
