"""Which row judges a token, what stands before it, and what is told of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.draft import Judged
from localspec.engine.event_stream import logprob_of
from localspec.engine.events import Committed, Logprob, StepMs
from localspec.engine.judge import Judging, log_softmax
from localspec.engine.protocols import Shape
from localspec.engine.sampling import Sampler
from localspec.settings.request import Sampling
from tests.engine.test_loop import PLAIN, PROMPT, TABLE, TREE, context, engine
from tests.worker.wire import crossed

PENALISED = Sampling(top_k=0, top_p=1.0, min_p=0.0, frequency_penalty=0.7)  # each token before counts


@pytest.mark.parametrize("shape", [PLAIN, TREE], ids=["plain", "trees"])
@pytest.mark.parametrize("is_after", [False, True])
def test_each_token_is_judged_by_the_row_of_the_token_before(shape: Shape, is_after: bool) -> None:
    """Also where a run of accepted tokens was drafted, where a limit cuts it, and where penalties see all before."""
    text, parts, sampler = context(max_tokens=19), engine(shape), Sampler(PENALISED)
    judging = Judging(2, sampler if is_after else None)
    parts = replace(parts, judge=replace(parts.judge, sampler=sampler), judging=judging)
    judged = [each for step in parts.generate(text) for each in step.judged]
    assert [each.token for each in judged] == text.tokens[len(PROMPT) :]
    for at, each in enumerate(judged, start=len(PROMPT)):
        before = text.tokens[:at]
        row = TABLE(tuple(before))
        dist = Sampler(PENALISED).dist(row, before)
        law = np.log(dist.probs) if is_after else log_softmax(row)
        assert each.logprob == pytest.approx(law[each.token])
        assert [token for token, _ in each.top] == np.argsort(-law)[:2].tolist()


def test_nothing_is_judged_where_nobody_asked() -> None:
    assert not any(step.judged for step in engine(TREE).generate(context()))


def test_a_token_that_the_sampler_removed_has_none() -> None:
    """A rule that changes the distribution may commit it. JSON has no infinities."""
    (made,) = engine(PLAIN).generate(context(max_tokens=1))
    rows = type("Rows", (), {"logits": lambda self, node: np.eye(4, dtype=np.float32)[(made.tokens[0] + 1) % 4]})()
    (judged,) = Judging(3, Sampler(Sampling(temperature=0.0))).of(made, rows, [*PROMPT, *made.tokens])
    assert judged.logprob == -math.inf
    assert judged.top == (((made.tokens[0] + 1) % 4, 0.0),)
    told = logprob_of(judged, lambda token: "é".encode()[:1])
    assert told.logprob is None
    assert told.text == "\ufffd"


def test_the_likeliest_are_in_order_the_lower_id_first_on_ties() -> None:
    row = np.array([1.0, 3.0, 3.0, -np.inf, 2.0], np.float32)
    top = Judging(4)._top(np.arange(5, dtype=np.int32), log_softmax(row))
    assert [token for token, _ in top] == [1, 2, 4, 0]
    assert sum(math.exp(logprob) for _, logprob in top) == pytest.approx(1.0)


def test_the_wire() -> None:
    likely = Logprob(7, (32, 65), -0.5, (Logprob(7, (32, 65), -0.5), Logprob(9, (), None)))
    event = Committed(
        index=1, position=4, k=0, depth=0, n_accepted=0, out=(), text="", ms=StepMs(0, 0, 0, 0), is_probe=False, why="",
        logprobs=(likely,),
    )  # fmt: skip
    assert crossed(event) == event
    assert likely.text == " A"
    assert Judged(1, -0.5).top == ()
