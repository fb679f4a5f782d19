"""Models that keep a state: taken back to every length, the same text as plain decoding, and no pass beyond its own.

Rows are compared bit for bit where the passes have equal shapes. llama.cpp sums in another order where a pass has other
rows, so against a text that was read in one piece they are compared within NOISE.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pytest

from localspec.backends import llama_cpp, state_cache
from localspec.backends.head_backend import HeadBackend
from localspec.backends.lib import api
from localspec.backends.llama_cpp import LlamaBackend, LoadOptions, Model
from localspec.backends.memory import context_bytes, rollback_for
from localspec.backends.state_cache import NO_SNAPSHOT, StateCache
from localspec.backends.tap import Tap
from localspec.engine.draft import Draw
from localspec.engine.events import Committed, Prefilled, Warned
from localspec.engine.protocols import Cancel, Cancelled, Drafter, Logits, Shape
from localspec.engine.sampling import Sampler
from localspec.errors import IncompatibleError
from localspec.methods.draft_model import DraftModel
from localspec.methods.plain import Plain
from localspec.models.gguf.architectures import TAPPABLE, UNTOLD_LAST
from localspec.models.gguf.layer_sizes import anatomy
from localspec.models.plan.memory import ContextPlan, n_states
from localspec.models.plan.memory_use import ON_CPU, MemoryUse
from localspec.session.loaded_model import inspect_model
from localspec.session.loaded_pair import LoadedPair
from localspec.session.placement import PairFiles
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.trees.static import Chain
from localspec.tuning import ROLLBACK
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from tests.integration import pair
from tests.integration.adversaries import AlwaysWrong, Guesser, Oracle
from tests.integration.gguf_models import EXACT, never
from tests.integration.heads import told_states
from tests.integration.stateful_models import ARCHS, ROLLING, STATES, WIDTH, stateful_gguf

NOISE = 1e-3
K = 4
OPTIONS = replace(EXACT, keeps_prompt=True)
PROMPT = [100 + 37 * i % 900 for i in range(40)]
SEEDED = Sampling(temperature=0.8, seed=5)
NO_END: frozenset[int] = frozenset()
FEW = tuple((token, 50.0) for token in range(300, 306))  # of so few tokens a text repeats itself, so that it is copied


def options_of(arch: str, rollback: int = K) -> LoadOptions:
    return replace(OPTIONS, rollback=rollback if arch in ROLLING else 0)


@pytest.fixture(scope="module", params=ARCHS)
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    with Model(stateful_gguf(request.param), options_of(request.param)) as opened:
        yield opened


@pytest.fixture
def backend(model: Model) -> Iterator[LlamaBackend]:
    with LlamaBackend(model) as opened:
        yield opened


@pytest.fixture
def fresh(model: Model) -> Iterator[LlamaBackend]:
    with LlamaBackend(model) as opened:
        yield opened


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    rows: list[int] = []
    run = LlamaBackend._run

    def counted(backend: LlamaBackend, is_stopped: Cancel | None) -> int:
        rows.append(backend._batch.struct.n_tokens)
        return run(backend, is_stopped)

    monkeypatch.setattr(LlamaBackend, "_run", counted)
    return rows


def draft_pass(backend: LlamaBackend, tokens: list[int], kept: int) -> Logits:
    """Evaluate a pending token and a draft in one pass, keep the first and `kept` more; return the last kept row."""
    rows = backend.extend(tokens, range(-1, len(tokens) - 1))
    row = rows.logits(kept).copy()
    backend.keep(tuple(range(1 + kept)))
    backend.check()
    return row


def test_what_the_models_can(model: Model, backend: LlamaBackend) -> None:
    is_rolling = model.architecture in ROLLING
    assert model.is_stateful
    assert backend.capabilities.can_rollback
    assert backend.capabilities.max_leaves == 1
    assert backend.capabilities.replays is not is_rolling
    assert api.llama_n_rs_seq(backend._growing.context) == (K if is_rolling else 0)
    assert backend.capabilities.max_rows == (1 + K if is_rolling else EXACT.n_batch)


@pytest.mark.parametrize("k", [1, 2, K])
def test_every_accepted_length_twice_in_a_row(
    backend: LlamaBackend, fresh: LlamaBackend, passes: list[int], k: int
) -> None:
    backend.prefill(PROMPT, never)
    for kept in [length for length in range(k + 1) for _ in range(2)]:
        text, draft = list(backend.tokens), [7 + kept, *range(2000, 2000 + k)]
        del passes[:]
        draft_pass(backend, draft, kept)
        to_replay = backend.to_replay
        assert to_replay == (1 + kept if backend.capabilities.replays and kept < k else 0)
        row = draft_pass(backend, [31], 0)
        assert passes == [1 + k, to_replay + 1]
        assert backend.to_replay == 0
        assert list(backend.tokens) == [*text, *draft[: 1 + kept], 31]
        fresh.truncate(0)
        assert np.abs(row - fresh.prefill(backend.tokens, never).logits(0)).max() <= NOISE


@pytest.mark.parametrize("kept", range(K))
def test_after_a_rejection_the_bits_are_those_of_a_fresh_context(
    backend: LlamaBackend, fresh: LlamaBackend, kept: int
) -> None:
    """Of the row and of the state, in passes of equal shapes.

    Owed tokens: the fresh context reads them and the pending one in one pass. In place: it rejects other tokens.
    """
    backend.prefill(PROMPT, never)
    fresh.prefill(PROMPT, never)
    draft_pass(backend, [7, 8, 9, 10, 11], kept)
    row = draft_pass(backend, [31], 0)
    if backend.capabilities.replays:
        is_last = np.arange(2 + kept) > kept
        expected = fresh.extend([*range(7, 8 + kept), 31], range(-1, 1 + kept), is_last).logits(1 + kept)
    else:
        draft_pass(fresh, [*range(7, 8 + kept), *[99] * (K - kept)], kept)
        expected = draft_pass(fresh, [31], 0)
    assert np.array_equal(row, expected)
    assert state_of(backend) == state_of(fresh)


def state_of(backend: LlamaBackend) -> bytes:
    data = np.empty(api.llama_state_seq_get_size_ext(backend._growing.context, 0, 1), np.uint8)
    pointer = np.ctypeslib.as_ctypes(data)
    assert api.llama_state_seq_get_data_ext(backend._growing.context, pointer, len(data), 0, 1) == len(data)
    return data.tobytes()


def test_a_pass_that_leads_back_further_than_its_own_tokens(
    backend: LlamaBackend, fresh: LlamaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint or the empty context lead there; the next pass reads the rest. Twice before it, too."""
    monkeypatch.setattr("localspec.backends.state_cache.MOST_CHECKPOINTS", 1)
    backend.prefill(PROMPT, never)
    for token in (5, 6, 7):
        draft_pass(backend, [token], 0)
    for length in (len(PROMPT) + 2, len(PROMPT) + 1, 10):
        backend.truncate(length)
        backend.check()
        assert list(backend.tokens) == [*PROMPT, 5, 6][:length]
    fresh.truncate(0)
    expected = fresh.prefill([*PROMPT[:10], 9], never).logits(0)
    assert np.abs(draft_pass(backend, [9], 0) - expected).max() <= NOISE
    backend.truncate(0)
    long = [3 + i % 50 for i in range(200)]
    backend.prefill(long, never)
    backend.truncate(150)
    fresh.truncate(0)
    assert backend.to_replay > backend._n_batch, "more than a pass takes"
    expected = fresh.prefill([*long[:150], 9, 10], never).logits(0)
    assert np.abs(draft_pass(backend, [9, 10], 1) - expected).max() <= NOISE


def test_another_answer_reads_nothing_of_the_prompt(backend: LlamaBackend) -> None:
    """Not even its last token: its row is kept, and the answer goes on from it as before, bit for bit."""
    row = backend.prefill(PROMPT, never).logits(0).copy()
    first = [draft_pass(backend, [token, 4, 4], 0) for token in (5, 6, 7)]
    for _ in range(2):
        before = backend.evaluated
        assert np.array_equal(backend.prefill(PROMPT, never).logits(0), row)
        assert backend.evaluated == before
        backend.check()
        for token, expected in zip((5, 6, 7), first, strict=True):
            assert np.array_equal(draft_pass(backend, [token, 4, 4], 0), expected)
    before = backend.evaluated
    backend.prefill([*PROMPT, 5, 99, 98], never)  # another turn, whose text left the answer's
    assert backend.evaluated - before == 3
    backend.prefill([*PROMPT[:20], 1], never)
    assert backend.evaluated - before == 3 + 21


def test_a_changed_prompt_drops_the_copy_of_the_old_ones_state(model: Model, fresh: LlamaBackend) -> None:
    """A prompt that shares all but two tokens, stopped while it is read, and one that goes on from its beginning."""
    with LlamaBackend(model, replace(model.options, n_batch=32)) as backend:
        backend.prefill(PROMPT, never)
        other = [*PROMPT[:-2], *(200 + 31 * i % 700 for i in range(90))]
        with pytest.raises(Cancelled):
            backend.prefill(other, lambda: backend.length >= len(PROMPT) + 20)
        assert len(PROMPT) + 20 <= backend.length < len(other)
        longer = [*other[: len(PROMPT) + 5], 7, 8, 9]
        row = backend.prefill(longer, never).logits(0).copy()
    assert np.abs(row - fresh.prefill(longer, never).logits(0)).max() <= NOISE


def test_a_stopped_pass_loses_the_answer_and_not_the_prompt(
    backend: LlamaBackend, fresh: LlamaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp, "SLOW", -1.0)
    backend.prefill(PROMPT, never)
    draft_pass(backend, [5], 0)
    asked: list[int] = []
    backend.cancel = lambda: bool(asked.append(1) or len(asked) > 5)
    with pytest.raises(Cancelled):
        backend.extend([6, 7], [-1, 0])
    backend.check()
    assert list(backend.tokens) == [*PROMPT, 5][: backend.length]
    assert backend.length >= len(PROMPT)
    backend.cancel = never
    expected = fresh.prefill([*PROMPT, 8], never).logits(0)
    assert np.abs(backend.prefill([*PROMPT, 8], never).logits(0) - expected).max() <= NOISE


def test_an_edited_prompt_reads_a_chunk_again_at_most(backend: LlamaBackend, fresh: LlamaBackend) -> None:
    """States are kept after each chunk of 64 tokens, and where another message began."""
    long = [100 + 37 * i % 900 for i in range(300)]
    backend.prefill(long, never)
    changed = [*long[:250], *range(20, 30)]
    before = backend.evaluated
    row = backend.prefill(changed, never).logits(0)
    backend.check()
    assert backend.evaluated - before == 260 - 192
    assert np.abs(row - fresh.prefill(changed, never).logits(0)).max() <= NOISE
    answered = [*changed, 5]
    draft_pass(backend, [5], 0)
    backend.prefill([*answered, *range(40, 70)], never)
    edited = [*answered, *range(80, 90)]
    before = backend.evaluated
    row = backend.prefill(edited, never).logits(0)
    backend.check()
    assert backend.evaluated - before == 10
    assert np.abs(row - fresh.prefill(edited, never).logits(0)).max() <= NOISE


@pytest.mark.parametrize("n_draft", [0, 2])
def test_a_stop_string_leads_back_by_a_chunk_at_most(backend: LlamaBackend, fresh: LlamaBackend, n_draft: int) -> None:
    """Its tokens are no part of what the next turn sends. States are kept after each 64 tokens of the answer."""
    backend.prefill(PROMPT, never)
    while backend.length < len(PROMPT) + 150:
        draft_pass(backend, [5 + backend.length, *range(40, 40 + n_draft)], n_draft)
    follows = [*backend.tokens[:-2], 300, 301]
    before = backend.evaluated
    row = backend.prefill(follows, never).logits(0)
    backend.check()
    assert backend.evaluated - before <= 64
    assert np.abs(row - fresh.prefill(follows, never).logits(0)).max() <= NOISE


def test_a_prompt_that_is_stopped_keeps_its_whole_chunks(backend: LlamaBackend, fresh: LlamaBackend) -> None:
    long = [100 + 37 * i % 900 for i in range(300)]
    asked: list[int] = []

    def stop() -> bool:
        asked.extend([1] if backend.length >= 128 else [])
        return len(asked) > 3

    with pytest.raises(Cancelled):
        backend.prefill(long, stop)
    backend.check()
    assert backend.length == 128
    assert list(backend.tokens) == long[:128]
    assert np.abs(backend.prefill(long, never).logits(0) - fresh.prefill(long, never).logits(0)).max() <= NOISE


def test_few_copies_are_kept_and_far_apart(backend: LlamaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.backends.state_cache.MOST_CHECKPOINTS", 3)
    prompt = [100 + 37 * i % 900 for i in range(300)]
    backend.prefill(prompt, never)
    assert isinstance(backend._cache, StateCache)
    assert [each.length for each in backend._cache.checkpoints] == [128, 256, 300]
    while backend.length < 300 + 150:
        draft_pass(backend, [5], 0)
    assert [each.length for each in backend._cache.checkpoints] == [256, 300, 428]
    before = backend.evaluated
    backend.prefill(prompt, never)
    assert backend.evaluated == before, "the prompt's own stays, however long the answer is"


@pytest.mark.parametrize(("free", "most"), [(None, 8), (0, 1), (79, 1), (80, 2), (319, 7), (10_000, 8)])
def test_checkpoints_take_a_quarter_of_the_memory_that_is_free(
    monkeypatch: pytest.MonkeyPatch, free: int | None, most: int
) -> None:
    monkeypatch.setattr(state_cache, "available_memory", lambda: free)
    assert state_cache._most(10) == most


def test_times_leave_the_text(backend: LlamaBackend) -> None:
    backend.prefill(PROMPT, never)
    expected = draft_pass(backend, [5], 0)
    backend.prefill(PROMPT, never)
    for rows in (1, 3, 3):
        backend.time_rows(rows)
        backend.check()
    assert np.array_equal(draft_pass(backend, [5], 0), expected)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("k", [1, 2, 3, K])
@pytest.mark.parametrize("kind", [Oracle, Guesser, AlwaysWrong])
@pytest.mark.parametrize("sampling", [pair.GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_the_text_of_plain_decoding(
    backend: LlamaBackend, passes: list[int], kind: type, k: int, sampling: Sampling
) -> None:
    """For drafts that are right at times, never, or by chance. After a rejection the next pass reads what was kept."""
    rule = MatchVerifier() if sampling.temperature == 0.0 else CoupledVerifier()
    expected = pair.generate(backend, Plain(), rule, prompt=PROMPT, sampling=sampling, max_tokens=60, eog=NO_END)
    backend.truncate(0)
    drafter: Drafter = kind() if kind is Guesser else kind(expected.tokens, len(PROMPT))
    del passes[:]
    got = pair.generate(
        backend, drafter, rule, prompt=PROMPT, shape=Shape(k, k, 1), draw=Draw.FIXED, sampling=sampling, max_tokens=60,
        eog=NO_END,
    )  # fmt: skip
    backend.check()
    assert got.tokens == expected.tokens
    assert passes[1:] == [step.rows for step in got.steps[1:]], "one pass of llama.cpp each"
    drafted = [step for step in got.steps if len(step.draft)]
    accepted = sum(step.n_accepted for step in drafted)
    assert (accepted > 0) == (kind is Oracle)
    rejections = sum(step.n_accepted < len(step.draft) for step in drafted[:-1])
    assert rejections > 3
    if backend.capabilities.replays:
        assert sum(step.replayed > 0 for step in got.steps) >= rejections
        assert all(not len(step.draft) for step in got.steps if step.replayed)
    else:
        assert not any(step.replayed for step in got.steps)


def test_a_recurrent_draft_model(backend: LlamaBackend, fresh: LlamaBackend) -> None:
    """It decodes its draft token by token, keeps a part, and reads on: never a row of another text."""
    if backend.model.architecture in NO_SNAPSHOT:
        pytest.skip("it has no way back beyond a pass")
    tokens = list(PROMPT)
    with LlamaBackend(backend.model, EXACT) as draft:
        for kept in (0, 2, 1, 3, 3, 0):
            row = draft.prefill([*tokens, 9], never).logits(0).copy()
            draft.check()
            fresh.truncate(0)
            assert np.abs(row - fresh.prefill([*tokens, 9], never).logits(0)).max() <= NOISE
            for node in range(3):
                draft.extend([40 + node], [node - 1])
            draft.keep(tuple(range(kept)))
            draft.check()
            tokens += [9, 40, 41, 42][: 1 + kept]
    sampler = Sampler(SEEDED)
    with LlamaBackend(backend.model, EXACT) as draft:
        drafter = DraftModel(draft, sampler, Chain(), never)
        got = pair.generate(
            backend, drafter, BlockVerifier(), prompt=PROMPT, shape=Shape(3, 3, 1), sampling=SEEDED, max_tokens=60,
            eog=NO_END,
        )  # fmt: skip
    assert sum(step.n_accepted for step in got.steps) > 30, "a model accepts its own guesses"


@pytest.mark.parametrize(("method", "is_refused"), [("draft-model", True), ("auto", False)])
def test_a_draft_that_llama_cpp_cannot_copy_is_refused(method: str, is_refused: bool) -> None:
    """Its cache is copied whole or the process ends. It drafts nothing, and the line is one."""
    file = str(stateful_gguf("deepseek4"))
    loaded, _ = pair.load_pair(LoadSettings(str(pair.TARGET), file, ctx=512, threads=1))
    with closing(loaded):
        assert loaded.draft is not None
        assert not loaded.draft.backend.capabilities.can_rollback
        request = Request(prompt="Once", max_tokens=20, sampling=pair.GREEDY, speculation=Speculation(method=method))
        why = "the draft model cannot draft: deepseek4 models keep a state that cannot be rolled back"
        if is_refused:
            with pytest.raises(IncompatibleError, match=why):
                list(loaded.answer(request))
        else:
            drafted = [event.k for event in loaded.answer(request) if isinstance(event, Committed)]
            assert drafted


@pytest.mark.parametrize("layers", [(), (1,)], ids=["last norm", "layer"])
def test_a_listener_is_told_the_states_of_what_is_kept(
    backend: LlamaBackend, fresh: LlamaBackend, layers: tuple[int, ...]
) -> None:
    """Of every committed token once, also in passes that read others again before their own rows."""
    if layers and backend.model.architecture not in TAPPABLE:
        pytest.skip("llama.cpp does not tell its layers")
    if not layers and backend.model.architecture in UNTOLD_LAST:
        pytest.skip("llama.cpp does not tell its last state")
    told = {one: told_states(one, Tap(WIDTH, layers)) for one in (backend, fresh)}
    backend.prefill(PROMPT, never)
    for tokens, kept in (([7, 8, 9, 10], 1), ([31], 0), ([32, 33, 34], 2), ([35, 36], 0), ([37], 0)):
        draft_pass(backend, tokens, kept)
    fresh.prefill(backend.tokens, never)
    assert told[backend].keys() == told[fresh].keys() == set(range(backend.length))
    for position, state in told[fresh].items():
        assert np.abs(state).max() > 0.1
        assert np.abs(told[backend][position] - state).max() <= NOISE * np.abs(state).max()


@pytest.mark.parametrize("arch", STATES)
def test_the_memory_of_all_states_is_counted(arch: str) -> None:
    """By the backend, by the plan, and before the load; of a state where llama.cpp's own copy has as many bytes."""
    looked = inspect_model(str(stateful_gguf(arch)))
    shape, parts = looked.context_shape(), anatomy(looked.header)
    assert shape.state == STATES[arch]
    options = PairFiles(LoadSettings(str(looked.info.path)), looked).target_options()
    assert options.rollback == (ROLLBACK if arch in ROLLING else 0)
    assert options.n_states == n_states(parts) == (ROLLBACK + 2 if arch in ROLLING else 3)
    assert LoadOptions().n_states == n_states(parts, is_draft=True) == 2
    few, many = (replace(options, keeps_prompt=keeps) for keeps in (False, True))
    assert shape.kv_bytes(512, many) - shape.kv_bytes(512, few) == STATES[arch]
    caches = [MemoryUse(parts, ContextPlan(512, n_states=n)).use(ON_CPU)["CPU"].cache for n in (1, options.n_states)]
    assert caches[1] - caches[0] == (options.n_states - 1) * STATES[arch]
    with Model(looked.info.path, EXACT, shape=shape) as model, LlamaBackend(model, options) as backend:
        backend.prefill(PROMPT, never)
        assert STATES[arch] <= len(state_of(backend)) <= STATES[arch] + 128


@pytest.mark.parametrize(("missing", "rollback"), [(0, 8), (1, 4), (4, 4), (5, 2), (7, 1), (100, 1)])
def test_no_more_rollback_than_memory_holds(missing: int, rollback: int) -> None:
    """`missing` states less than 8 tokens take."""
    looked = inspect_model(str(stateful_gguf("qwen35")))
    shape, options = looked.context_shape(), replace(EXACT, rollback=8)
    available = context_bytes(shape, 512, options) - missing * shape.state
    assert rollback_for(shape, 512, options, available).rollback == rollback


@pytest.fixture(scope="module", params=ARCHS)
def session(request: pytest.FixtureRequest) -> Iterator[LoadedPair]:
    """Yield a loaded target; that with a block for further tokens drafts with it."""
    file = str(stateful_gguf(request.param))
    own = file if request.param == "qwen35" else None
    loaded, _ = pair.load_pair(LoadSettings(file, own, ctx=512, threads=1, kv_type="f32"))
    with closing(loaded):
        yield loaded


@dataclass(frozen=True)
class Answer:
    """The text, the tokens that were drafted, and those of the prompt that were evaluated."""

    text: str
    drafted: int
    read: int


def answer(session: LoadedPair, method: str, sampling: Sampling, k: int | None = None) -> Answer:
    """Return what an answer of 60 tokens came to."""
    speculation = Speculation(method=method, k=k)
    request = Request(prompt="Once upon a time", max_tokens=60, sampling=sampling, speculation=speculation)
    told = list(session.answer(request))
    passes = [event for event in told if isinstance(event, Committed)]
    (read,) = (event for event in told if isinstance(event, Prefilled))
    session.target.backend.check()
    return Answer("".join(one.text for one in passes), sum(one.k for one in passes), read.prompt_n - read.cache_n)


@pytest.mark.parametrize("sampling", [pair.GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_every_method_of_chains_writes_the_text_of_plain_decoding(session: LoadedPair, sampling: Sampling) -> None:
    """Copies without branches, the model's own block, and the planner. The prompt is read once for all answers."""
    sampling = replace(sampling, logit_bias=FEW)
    plain = answer(session, "plain", sampling)
    methods: list[tuple[str, int | None]] = [("prompt-lookup", 3), ("suffix", None), ("auto", None)]
    if session.draft is not None:
        methods += [("mtp", k) for k in (1, 2, 3, ROLLBACK)]
    for method, k in methods:
        one = answer(session, method, sampling, k)
        assert one.text == plain.text, method
        assert one.read == 0
        assert one.drafted > 0 or method == "auto"


def test_a_tree_is_refused(session: LoadedPair) -> None:
    tree = Speculation(method="mtp", tree="static:2,2")
    asked = Speculation(method="suffix", options=(("branch", "on"),)) if session.draft is None else tree
    with pytest.raises(IncompatibleError) as caught:
        list(session.answer(Request(prompt="Once", max_tokens=8, sampling=pair.GREEDY, speculation=asked)))
    assert "their state follows one path: only chains can be drafted" in caught.value.message
    assert "\n" not in caught.value.message


def test_a_chain_is_no_longer_than_what_can_be_taken_back(session: LoadedPair) -> None:
    if session.target.info.architecture not in ROLLING:
        pytest.skip("nothing limits it")
    speculation = Speculation(method="prompt-lookup", k=20)
    told = list(session.answer(Request(prompt="Once", max_tokens=20, sampling=pair.GREEDY, speculation=speculation)))
    assert max(event.k for event in told if isinstance(event, Committed)) <= ROLLBACK
    (warning,) = (event.message for event in told if isinstance(event, Warned))
    assert warning == f"-k 20 is limited to {ROLLBACK}, which is what one pass takes"


def test_too_little_memory_for_all_states_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line; drafts are shorter then."""
    looked = inspect_model(str(stateful_gguf("qwen35")))
    settings = LoadSettings(str(looked.info.path), ctx=512, threads=1, kv_type="f32")
    options = replace(PairFiles(settings, looked).target_options(), flash_attn="off")
    room = context_bytes(looked.context_shape(), 512, options) - 4 * looked.context_shape().state
    for place in ("backends.context", "session.placement"):
        monkeypatch.setattr(f"localspec.{place}.available_memory", lambda: room)
    loaded, told = pair.load_pair(replace(settings, mmap=False))
    with closing(loaded):
        assert loaded.target.backend.capabilities.max_rows == 1 + ROLLBACK // 2
    warnings = [event.message for event in told if isinstance(event, Warned)]
    assert "memory holds the states of 4 drafted tokens instead of 8: drafts are no longer than that" in warnings


def test_the_own_block_reads_the_states_of_the_text(session: LoadedPair) -> None:
    """Its row after a part of a draft was kept is that of a block that was told the whole text at once."""
    if session.draft is None:
        pytest.skip("no block")
    session.forget()
    target, block = session.target.backend, session.draft.backend
    assert isinstance(block, HeadBackend)
    rows = []
    for is_whole in (False, True):
        target.truncate(0)
        if is_whole:
            block.truncate(0)
            target.prefill([*PROMPT, 7, 8], never)
        else:
            target.prefill(PROMPT, never)
            block.prefill([*PROMPT, 7], never)
            block.extend([8], [-1])
            draft_pass(target, [7, 8, 9, 10], 1)
            block.keep((0,))
        rows.append(block.prefill([*PROMPT, 7, 8, 31], never).logits(0).copy())
    assert rows[0].std() > 1
    assert np.abs(rows[0] - rows[1]).max() <= NOISE
