"""How a pass is told."""

from localspec.engine.context import Vocabulary
from localspec.engine.draft import Draft, Source, Step, Times
from localspec.engine.event_stream import _committed, _drafted
from localspec.engine.protocols import Plan
from localspec.engine.text import Parts


def test_rows_that_only_fill_a_pass_are_no_drafts() -> None:
    """Padding costs nothing and is never accepted: to show it as refused would slander the draft."""
    draft = Draft.of([5, 6, 7], [-1, 0, 1]).padded(8)
    verdict = draft.verdict(1, 9)
    sources, plan = (Source.ACCEPTED, Source.CORRECTED), Plan("draft-model", 1, 1)
    step = Step(draft, verdict, (6, 9), sources, (0, 1), 1, Times(), plan)
    words = Vocabulary(lambda token: False, lambda token: b" %d" % token)
    told = _committed(1, step, Parts(), words, details=True)
    assert [(piece.id, piece.source) for piece in told.drafted] == [(6, "accepted"), (7, "rejected")]
    assert (told.k, told.depth, told.n_accepted) == (2, 2, 1)
    assert told.rows == 8, "they are part of the pass that was timed"


def test_a_drafted_token_behind_a_cut_is_neither_accepted_nor_rejected() -> None:
    """A stop string or an end token cuts an accepted run: its last token is accepted, whatever stays in the cache."""
    draft = Draft.of([1, 5, 6, 7, 8], range(-1, 4))
    step = Step(
        draft, draft.verdict(3, 9), (5, 6), (Source.ACCEPTED, Source.ACCEPTED), (0, 1), 1, Times(), Plan("d", 4, 4)
    )
    told = _drafted(step, Vocabulary(lambda _: False, lambda _: b"w"))
    assert [piece.source for piece in told] == ["accepted", "accepted", "cut", "cut"]
    whole = Step(
        draft,
        draft.verdict(2, 9),
        (5, 6, 9),
        (*[Source.ACCEPTED] * 2, Source.CORRECTED),
        (0, 1, 2),
        1,
        Times(),
        Plan("d", 4, 4),
    )
    told = _drafted(whole, Vocabulary(lambda _: False, lambda _: b"w"))
    assert [piece.source for piece in told] == ["accepted", "accepted", "rejected", "rejected"]
