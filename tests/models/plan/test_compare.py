"""Drafts beside each other: each by the bytes that its guesses read and by the tokens that stand.

Llama 70B on 24 GiB at 936 GB/s, the rest in main memory at 60 GB/s, as in test_examples.py. The head is one layer of
the target's shape with an output of 32 000 tokens: 481 361 920 + 4096 x 4096 / 4 bytes of cache + 147 456 000.
"""

from dataclasses import replace

import pytest

from localspec.control.chain import Worth
from localspec.errors import ResourceError
from localspec.models.gguf.layer_sizes import Anatomy
from localspec.models.plan.compare import PlannedDraft, compare
from localspec.models.plan.layout_search import PlacementRequest, Search, best
from localspec.models.plan.machine import Machine, MachineDevice
from localspec.models.plan.memory_use import ON_CPU, Layout
from localspec.models.plan.models import Guessing, ModelPart, Models, with_own_block
from tests.models.hollow import LLAMA_70B
from tests.models.plan.examples import GIB, gbps, of_70b, parts

GOOD = (0.86, 0.74, 0.64, 0.53)  # the first k guesses all stand
POOR = (0.3, 0.1, 0.03, 0.01)
MACHINE = Machine(64 * GIB, 8, (MachineDevice("CUDA0", 24 * GIB, gbps(936)),), gbps(60))
OUTPUT = 147_456_000


def head_of_70b() -> Anatomy:
    whole = parts(LLAMA_70B)
    return replace(whole, layers=whole.layers[:1], embedding=0, output=OUTPUT, n_vocab=32_000)


def with_head(accepted: tuple[float, ...], *, at_once: bool = False, borrowed: int = 0) -> Models:
    return Models(parts(LLAMA_70B), head_of_70b(), 131_072, 131_072, Guessing(accepted, at_once, borrowed))


def compared(**drafts: Models) -> list[PlannedDraft]:
    return compare(MACHINE, {"": Models(parts(LLAMA_70B), n_ctx_train=131_072), **drafts}, PlacementRequest())


def test_drafts_by_what_they_cost_and_what_stands() -> None:
    """A head of good guesses, then the draft model, which is assumed at 0.7, then a head of poor guesses."""
    rows = compared(draft=of_70b(), good=with_head(GOOD), poor=with_head(POOR))
    assert list(dict.fromkeys(row.name for row in rows)) == ["good", "draft", "poor", ""]
    assert [row.plan.seconds for row in rows] == sorted(row.plan.seconds for row in rows)
    assert [row.plan.draft for row in rows if row.name == "good"][:2] == [Layout(("CUDA0",), (2,)), ON_CPU]


def test_no_draft_is_first_where_none_is_accepted() -> None:
    rows = compared(head=with_head((0.0,)), draft=replace(of_70b(), guessing=Guessing((0.001,))))
    assert (rows[0].name, rows[0].plan.draft) == ("", None)


def test_a_head_reads_its_layer_and_output_for_each_guess() -> None:
    """The pass of the target takes 0.3223643 s: see test_examples.py. A head that guesses at once is read once."""
    plan = best(MACHINE, with_head(GOOD))
    assert (plan.target, plan.draft, plan.k) == (Layout(("CUDA0",), (44,)), Layout(("CUDA0",), (2,)), 4)
    guess = (481_361_920 + 16_777_216 / 4 + OUTPUT) / 936e9
    assert plan.seconds == pytest.approx((4 * guess + 0.3223643) / 3.77, rel=1e-6)
    once = Search(MACHINE, with_head(GOOD, at_once=True)).predict(plan.context, plan.target, plan.draft)
    assert once is not None
    assert once.seconds == pytest.approx((guess + 0.3223643) / 3.77, rel=1e-6)


def test_a_head_without_an_output_matrix_reads_the_targets() -> None:
    """591 036 416 bytes for each of the four guesses, on the device."""
    own, borrowing = best(MACHINE, with_head(GOOD)), best(MACHINE, with_head(GOOD, borrowed=591_036_416))
    assert borrowing.seconds - own.seconds == pytest.approx(4 * 591_036_416 / 936e9 / 3.77)


def own_block() -> Models:
    """The last of the 80 layers is a block for further tokens."""
    return with_own_block(ModelPart(replace(parts(LLAMA_70B), n_next=1), 131_072))


def test_the_targets_own_block_is_where_its_head_is_and_takes_no_weights() -> None:
    models = own_block()
    search = Search(MACHINE, models)
    context = best(MACHINE, models).context
    on_device, device = Layout(("CUDA0",), (40,)), Layout(("CUDA0",), (2,))
    together, apart = search.predict(context, on_device, device), search.predict(context, on_device, ON_CPU)
    assert (together is not None, apart) == (True, None)
    alone = search.predict(context, on_device, None)
    assert together is not None
    assert alone is not None
    more = together.use["CUDA0"]
    assert (more.weights, more.cache - alone.use["CUDA0"].cache) == (alone.use["CUDA0"].weights, 16_777_216)


def test_a_pass_for_the_next_token_does_not_read_the_block_for_further_ones() -> None:
    """40 of 81 layers are on the device: 38 of the 79 that are read, and the head."""
    models = own_block()
    plan = Search(MACHINE, models).predict(best(MACHINE, models).context, Layout(("CUDA0",), (40,)), None)
    assert plan is not None
    read = 481_361_920 + 16_777_216 // 4
    assert plan.seconds == pytest.approx((38 * read + 591_036_416) / 936e9 + 41 * read / 60e9)


def test_what_does_not_fit_with_any_draft_is_refused() -> None:
    tiny = Machine(GIB // 8, 8, (), gbps(60))
    with pytest.raises(ResourceError, match="no way to place"):
        compare(tiny, {"": Models(parts(LLAMA_70B)), "draft": of_70b()}, PlacementRequest(is_mapped=False))


def test_what_was_measured_goes_before_what_is_predicted() -> None:
    """A draft with a gain of 2 takes half of the seconds of no draft, and so its tokens a second are twice as many."""
    drafts = {"": Models(parts(LLAMA_70B), n_ctx_train=131_072), "draft": of_70b()}
    worth = Worth(3, 3.0, 1.5, 0.9, "measured here", "measured here", is_timed=True)
    rows = compare(MACHINE, drafts, PlacementRequest(), {"draft": worth})
    draft, none = rows[0].plan, next(row.plan for row in rows if not row.name)
    assert rows[0].name == "draft"
    assert draft.k == 3
    assert draft.tokens_per_s is not None
    assert none.tokens_per_s is not None
    assert draft.seconds == pytest.approx(none.seconds / worth.gain)
    assert draft.tokens_per_s == pytest.approx(none.tokens_per_s * worth.gain)


def test_a_plain_pass_that_was_timed_gives_the_speeds() -> None:
    """Also without bandwidths, and in each place; a draft that nothing was measured of has none."""
    drafts = {"": Models(parts(LLAMA_70B), n_ctx_train=131_072), "draft": of_70b(), "other": of_70b()}
    worth = Worth(3, 3.0, 1.5, 0.9, "measured here", "measured here", is_timed=True, plain=0.25)
    rows = compare(Machine(MACHINE.ram, 8), drafts, PlacementRequest(), {"draft": worth})
    speeds = {row.name: (row.plan.tokens_per_s, row.plan.basis) for row in rows}
    assert speeds == {"draft": (pytest.approx(8.0), "measured here"), "": (pytest.approx(4.0), "measured here"),
                      "other": (None, "not measured")}  # fmt: skip
