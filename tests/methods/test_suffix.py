"""Suffix decoding: the counted tree, its limits, and the text that went back."""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

from localspec.engine.draft import Draft
from localspec.engine.protocols import DraftState
from localspec.errors import UsageError
from localspec.methods.suffix import LEAVES
from localspec.settings.request import Speculation
from localspec.speculation.resolve import resolve_axes
from tests.methods.lookups import LookupContract, drafted, propose


def paths(draft: Draft) -> set[tuple[int, ...]]:
    return {tuple(draft.path(node)) for node in range(1, len(draft) + 1)}


def followers(text: Sequence[int], seen: tuple[int, ...]) -> Counter[int]:
    """Return what followed `seen`, and how often."""
    n = len(seen)
    return Counter(text[at + n] for at in range(len(text) - n) if tuple(text[at : at + n]) == seen)


def counted(text: Sequence[int], context: Sequence[int], path: Sequence[int]) -> float:
    """Return the product of count(child) / count(node) along `path`, by looking at every place of the text.

    At the end of the text, where nothing has followed yet, `context` stands for it.
    """
    prob, seen = 1.0, tuple(context)
    for token in path:
        follows = followers(text, seen)
        if not follows:
            seen = tuple(context)
            follows = followers(text, seen)
        prob *= follows[token] / follows.total()
        seen += (token,)
    return prob


class TestSuffix(LookupContract):
    name: ClassVar[str] = "suffix"

    def test_it_branches_where_continuations_differ(self) -> None:
        """Both continuations are drafted, the more frequent first; a chain takes that one alone."""
        text = [1, 2, 5, 1, 2, 6, 1, 2, 5, 9, 1, 2]
        draft = propose(self.fresh(trust=False, min_prob=0.0), text)
        assert draft.tokens[1:3].tolist() == [5, 6]
        assert draft.parents[1:3].tolist() == [0, 0]
        chain = propose(self.fresh(trust=False, branch=False), text)
        assert chain.is_chain
        assert chain.tokens[1] == 5

    @pytest.mark.parametrize("seed", range(20))
    def test_the_most_probable_paths_are_drafted(self, seed: int) -> None:
        """No path outside the tree, as long as it may be, is more probable than one inside, by naive counting."""
        text = np.random.default_rng(seed).integers(0, 3, 40).tolist()
        match = next(n for n in range(32, -1, -1) if any(text[at : at + n] == text[-n:] for at in range(len(text) - n)))
        draft = propose(self.fresh(trust=False, min_prob=0.0, factor=0.0, offset=2), text, nodes=5)
        inside = paths(draft)
        known = [(x,) for x in range(3)] + [(x, y) for x in range(3) for y in range(3)]
        probs = {path: counted(text, text[-match:], path) for path in known if path[:-1] in inside or len(path) == 1}
        assert len(draft) == min(5, sum(prob > 0 for prob in probs.values()))
        outside = [prob for path, prob in probs.items() if path not in inside]
        assert min(probs[path] for path in inside) >= max(outside, default=0.0)

    def test_unlikely_paths_are_left_out(self) -> None:
        """`min_prob` holds for whole paths."""
        text = [1, 5, 1, 5, 1, 5, 1, 6, 1]
        assert (6,) in paths(propose(self.fresh(trust=False, min_prob=0.25, min_match=1), text))
        assert (6,) not in paths(propose(self.fresh(trust=False, min_prob=0.26, min_match=1), text))

    def test_a_long_match_gives_a_long_draft(self) -> None:
        """Levels are factor * match + offset."""
        text = [*range(20), 50, *range(10, 14)]  # four tokens match, six follow before the 50
        assert drafted(self.fresh(trust=False, factor=1.0), text) == [14, 15, 16, 17]
        assert drafted(self.fresh(trust=False, factor=0.5), text) == [14, 15]
        assert drafted(self.fresh(trust=False, factor=0.0, offset=3), text) == [14, 15, 16]
        assert drafted(self.fresh(trust=False, factor=0.0), text) == []
        assert drafted(self.fresh(min_match=5), text) == []

    def test_a_tree_has_no_more_leaves_than_it_says(self) -> None:
        """The shape tells the session how many sequences the target needs; the draft keeps to it."""
        text = [token for after in range(1, 13) for token in (0, after)] + [0]
        draft = propose(self.fresh(trust=False, min_prob=0.0, factor=3.0), text, nodes=40)
        assert draft.n_leaves == LEAVES == self.fresh().shape(40, {"branch": True}).leaves
        assert propose(self.fresh(trust=False, min_prob=0.0, branch=False), text, nodes=40).n_leaves == 1

    def test_a_rule_sees_relative_frequencies(self) -> None:
        """The distribution that `go_on` sees is what followed the match, counted."""
        asked: list[DraftState] = []
        text = [1, 5, 1, 5, 1, 5, 1, 6, 1]
        propose(self.fresh(trust=False), text, go_on=lambda state: bool(asked.append(state)))
        assert asked[0].dist.ids.tolist() == [5, 6]
        assert asked[0].dist.probs.tolist() == [0.75, 0.25]

    def test_accidental_matches_are_soon_not_drafted_from(self) -> None:
        """Tokens drawn at random match by one now and then, and what followed says nothing of what follows."""
        text = np.random.default_rng(1).integers(0, 60, 1200).tolist()
        used, trusting = self.fresh(), self.fresh(trust=False)
        n_drafted = [sum(len(propose(one, text[:end])) for end in range(900, 1200)) for one in (used, trusting)]
        assert n_drafted[0] < 0.02 * n_drafted[1]

    def test_a_copy_is_trusted_at_once(self) -> None:
        """A passage that comes again after much noise: drafted from the second matching token or so on."""
        noise = np.random.default_rng(2).integers(0, 60, 600).tolist()
        passage = list(range(100, 140))
        text = [*passage, *noise, *passage[:10]]
        assert drafted(self.fresh(), text)[:4] == passage[10:14]

    @pytest.mark.parametrize("again", [[], [0], [0, 1, 2, 0], [0, 1, 2, 0, 1, 2, 0, 3, 3, 0], [2, 2, 2]])
    def test_a_text_that_went_back(self, again: list[int]) -> None:
        """A regenerated answer, an edited turn, another conversation: drafted for as by a fresh drafter."""
        before = [0, 1, 2, 0, 1, 2, 0, 1, 1, 0, 1]
        for tail in ([], [2], [0, 1]):
            text = [*again, *tail] or [0]
            used = self.fresh()
            propose(used, before)
            left, right = propose(used, text), propose(self.fresh(), text)
            assert left.tokens.tolist() == right.tokens.tolist()
            assert left.parents.tolist() == right.parents.tolist()

    def test_the_axes_know_its_shape(self) -> None:
        """Branching needs a rule for trees; as a chain it goes with every rule; --tree does not apply."""
        spoken = Speculation(method="suffix")
        axes = resolve_axes(spoken, has_draft=False, is_seeded=False)
        assert (axes.shape.nodes, axes.shape.leaves, axes.verify) == (16, LEAVES, "coupled")
        with pytest.raises(UsageError, match="chains"):
            resolve_axes(Speculation(method="suffix", verify="block"), has_draft=False, is_seeded=False)
        chain = Speculation(method="suffix", verify="block", options=(("branch", "off"),), k=5)
        assert resolve_axes(chain, has_draft=False, is_seeded=False).shape.leaves == 1
        with pytest.raises(UsageError, match="its own tree shape"):
            resolve_axes(Speculation(method="suffix", tree="static:2,1"), has_draft=False, is_seeded=False)
        with pytest.raises(UsageError, match="min_prob"):
            resolve_axes(Speculation(method="suffix", options=(("min_prob", "2"),)), has_draft=False, is_seeded=False)
