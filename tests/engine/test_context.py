"""The text under way: what a pass commits, where it is cut, why it ends, and how much room is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.context import Context, Finish, Vocabulary
from localspec.engine.draft import Draft, Source, Step, Times, Verdict
from localspec.engine.protocols import DraftBudget

EOG = 9
PIECES = {0: b"a", 1: b"b", 2: "€".encode()[:2], 3: "€".encode()[2:], 4: b"\n", EOG: b"</s>"}
VOCABULARY = Vocabulary(lambda token: token == EOG, lambda token: PIECES.get(token, b"x"))
TIMES = Times(1.0, 2.0, 3.0, 4.0)


def context(
    prompt: tuple[int, ...] = (5, 6), *, n_ctx: int = 64, max_tokens: int | None = None, stops: tuple[str, ...] = ()
) -> Context:
    return Context(list(prompt), VOCABULARY, n_ctx=n_ctx, max_tokens=max_tokens, stops=stops)


def commit(text: Context, accepted: list[int], token: int, extra: int = 0) -> Step:
    """Commit a pass that accepted `accepted` of a chain with `extra` more tokens, then drew `token`."""
    tokens = [text.pending, *accepted, *[8] * extra]
    draft = Draft.of(tokens, range(-1, len(tokens) - 1))
    return text.commit(draft, draft.verdict(len(accepted), token), TIMES)


def test_a_pass_commits_its_run() -> None:
    text = context()
    step = commit(text, [0, 1], 0, extra=1)
    assert step.tokens == (0, 1, 0)
    assert step.sources == (Source.ACCEPTED, Source.ACCEPTED, Source.CORRECTED)
    assert step.kept == (0, 1, 2)
    assert step.position == 2
    assert step.text == "aba"
    assert step.times is TIMES
    assert (step.n_drafted, step.n_accepted) == (3, 2)
    assert text.tokens == [5, 6, 0, 1, 0]
    assert (text.pending, text.position, text.generated, text.finish) == (0, 5, 3, None)


@pytest.mark.parametrize(
    ("accepted", "extra", "source"),
    [([0, 1], 0, Source.BONUS), ([0], 1, Source.CORRECTED), ([], 2, Source.CORRECTED), ([], 0, Source.PLAIN)],
)
def test_where_the_own_token_is_from(accepted: list[int], extra: int, source: Source) -> None:
    """Bonus after a whole path, corrected after a rejection, plain without a draft."""
    assert commit(context(), accepted, 1, extra).sources[-1] is source


def test_an_accepted_path_of_a_tree_keeps_its_nodes() -> None:
    """Kept nodes are the path's ids in the draft, whatever siblings lie between."""
    text = context()
    draft = Draft.of([6, 0, 1, 0, 1], [-1, 0, 0, 2, 2])
    step = text.commit(draft, draft.verdict(4, 0), TIMES)
    assert step.tokens == (1, 1, 0)
    assert step.kept == (0, 2, 4)
    assert step.sources[-1] is Source.BONUS


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_end_token_cuts_the_run(at: int) -> None:
    """The end token is the last; it is pending, gives no text, and the nodes after it are not kept."""
    text = context()
    accepted = [0, 1, 0]
    accepted[at] = EOG
    step = commit(text, accepted, 1)
    assert step.tokens == (*accepted[:at], EOG)
    assert step.sources == (Source.ACCEPTED,) * (at + 1)
    assert step.kept == tuple(range(at + 1))
    assert step.text == "aba"[:at]
    assert text.finish is Finish.STOP
    assert text.pending == EOG


def test_an_end_token_of_the_targets_own() -> None:
    """The same when the target draws it after accepting everything."""
    text = context()
    step = commit(text, [0], EOG)
    assert step.sources == (Source.ACCEPTED, Source.BONUS)
    assert text.finish is Finish.STOP


def test_a_stop_string_inside_an_accepted_run() -> None:
    """The token that completes it is the last one; the string itself is not shown."""
    text = context(stops=("b\nb",))
    step = commit(text, [0, 1, 4, 1, 0], 0)
    assert step.tokens == (0, 1, 4, 1)
    assert step.text == "a"
    assert step.kept == (0, 1, 2, 3)
    assert text.finish is Finish.STOP
    assert text.tail() == ""


def test_a_stop_string_over_two_passes() -> None:
    """Its beginning waits in one pass, its end cuts the next."""
    text = context(stops=("b\nb",))
    assert commit(text, [0, 1], 4).text == "a"
    step = commit(text, [1, 0], 0)
    assert (step.tokens, step.text, text.finish) == ((1,), "", Finish.STOP)


def test_the_tail_is_what_was_held_back() -> None:
    """The beginning of a stop string is given at the end, that of a character is not."""
    text = context(stops=("b\nb",), max_tokens=2)
    assert commit(text, [0], 1).text == "a"
    assert text.tail() == "b"
    text = context(max_tokens=1)
    assert commit(text, [], 2).text == ""
    assert text.tail() == ""


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_max_tokens_cut_the_run(max_tokens: int) -> None:
    """Exactly max_tokens come out, also when more were accepted."""
    text = context(max_tokens=max_tokens)
    assert len(commit(text, [0, 1, 0], 1).tokens) == max_tokens
    assert text.finish is Finish.LENGTH
    assert text.generated == max_tokens


def test_an_end_token_in_the_last_place_is_a_stop() -> None:
    """Two rules end the text at once: the model's own end is the reason given."""
    text = context(max_tokens=2)
    commit(text, [0], EOG)
    assert text.finish is Finish.STOP


def test_a_full_context_ends_the_text() -> None:
    """The cache holds n_ctx tokens and the pending one stays outside, so n_ctx + 1 tokens fit."""
    text = context(n_ctx=4)
    commit(text, [], 0)
    commit(text, [], 0)
    assert text.finish is None
    assert text.budget == DraftBudget(0, 0)
    commit(text, [], 0)
    assert text.finish is Finish.CONTEXT
    assert len(text.tokens) == 5


def test_interrupting() -> None:
    """An unfinished text was interrupted; a finished one stays what it was."""
    text = context()
    text.interrupt()
    assert text.finish is Finish.INTERRUPTED
    text = context(max_tokens=1)
    commit(text, [], 0)
    text.interrupt()
    assert text.finish is Finish.LENGTH


@given(st.integers(2, 12), st.integers(1, 12) | st.none(), st.lists(st.integers(0, 4), max_size=12))
def test_a_draft_that_fits_the_room_fits_both_limits(n_ctx: int, max_tokens: int | None, lengths: list[int]) -> None:
    """Drafts of room.depth can be committed whole and fill the cache at most; the invariant holds after each pass."""
    text = context((5,), n_ctx=n_ctx, max_tokens=max_tokens)
    cached = 0  # what the target would hold
    for length in lengths:
        if text.finish is not None:
            break
        budget = text.budget
        depth = min(length, budget.depth)
        assert len(text.tokens) + budget.nodes <= n_ctx
        assert budget.depth <= budget.nodes
        step = commit(text, [0] * depth, 0)
        assert len(step.tokens) == depth + 1, "the clamp makes cuts needless"
        cached += len(step.kept)
        assert cached == len(text.tokens) - 1
        assert cached <= n_ctx
    if text.finish is None:
        assert max_tokens is None or text.generated < max_tokens
    else:
        assert text.generated == max_tokens or len(text.tokens) == n_ctx + 1


def test_prompts_that_leave_no_room_are_a_bug_here() -> None:
    """The session refuses them with a message; the context only asserts."""
    for prompt in ((), (1, 2, 3)):
        with pytest.raises(AssertionError):
            context(prompt, n_ctx=3)


def test_a_verdict_names_its_path() -> None:
    """The path leads from below the root to the accepted node."""
    draft = Draft.of([6, 0, 1, 0, 1], [-1, 0, 0, 2, 2])
    assert draft.verdict(4, 7) == Verdict((2, 4), 7, Source.BONUS)
    assert draft.verdict(2, 7) == Verdict((2,), 7, Source.CORRECTED)
    assert draft.verdict(0, 7) == Verdict((), 7, Source.CORRECTED)
    assert Draft.root(6).verdict(0, 7) == Verdict((), 7, Source.PLAIN)
