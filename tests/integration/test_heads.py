"""Heads on the real llama.cpp, beside the same arithmetic in numpy: after every way in which their cache can change.

Traps of llama.cpp that would bias a head without an error are tested one by one.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from localspec.backends import growing_context, head_backend
from localspec.backends.head_backend import HeadBackend
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.tap import PROMPT_STATES, StateListener, States, Tap
from localspec.engine.events import Committed
from localspec.engine.protocols import Cancelled
from localspec.heads.head_file import Kind
from localspec.heads.target_file import read_tensor
from localspec.heads.writer import write_gguf
from localspec.models.gguf.header import read_architecture, read_header
from localspec.models.gguf.values import KeyValue
from localspec.models.store import PairRef, parse_pair, reference
from localspec.settings.request import LoadSettings, Request, Speculation
from tests.heads.reference import Reference, read_weights, storyteller_shape, write_random_head
from tests.integration import pair
from tests.integration.gguf_models import EXACT, never
from tests.integration.heads import TOLERANCE, assert_rows, head_on, opened_head, told_states, with_own_block

WIDTH = 192
PROMPT = tuple(range(100, 120))
KINDS: tuple[Kind, ...] = ("eagle3", "eagle1", "mtp")


@dataclass
class Rig:
    """A target with F32 weights, a head of random weights on it, and all that the target told, by position."""

    kind: Kind
    file: Path
    target: LlamaBackend
    head: HeadBackend
    told: dict[int, States]

    def states(self, tokens: Sequence[int]) -> States:
        """Return the target's states of a text: as told, which are those of one pass over it but for rounding."""
        with LlamaBackend(self.target.model, EXACT) as backend:
            whole = told_states(backend, self.head.model.traits.tap)
            backend.prefill(tokens, never)
        expected = np.stack(list(whole.values()))
        told = np.stack([self.told[len(tokens) - len(expected) + row] for row in range(len(expected))])
        assert np.abs(told - expected).max() < 1e-3 * np.abs(expected).max()
        return told

    def reference(self, tokens: Sequence[int]) -> tuple[Reference, np.ndarray, np.ndarray]:
        """Return the reference after a text with its pending token, the last row's logits and the state passed on.

        It begins where the states are known from.
        """
        states = self.states(tokens[:-1])
        n = len(states)
        reference = Reference(storyteller_shape(self.kind), read_weights(self.file), first=len(tokens) - n)
        logits, passed = reference.feed(tokens[-n:], reference.encode(states), range(-1, n - 1))
        return reference, logits[-1], passed[-1]

    def commit(self, tokens: Sequence[int]) -> None:
        """Let the target commit a run, as the passes of an answer do."""
        self.target.extend(tokens, range(-1, len(tokens) - 1))
        self.target.keep(tuple(range(len(tokens))))


@pytest.fixture(scope="module", params=KINDS)
def head(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Kind, Path]:
    return request.param, write_random_head(tmp_path_factory.mktemp(request.param) / "head.gguf", request.param)


@pytest.fixture
def rig(head: tuple[Kind, Path], f32_pair: dict[str, Path]) -> Iterator[Rig]:
    kind, file = head
    with opened_head(f32_pair["target"], file) as (target, backend):
        yield Rig(kind, file, target, backend, told_states(target, backend.model.traits.tap, backend))


def test_the_first_row(rig: Rig) -> None:
    rig.target.prefill(PROMPT, never)
    row = rig.head.prefill((*PROMPT, 7), never).logits(0)
    assert_rows(row, rig.reference((*PROMPT, 7))[1])


def test_five_steps(rig: Rig) -> None:
    """Each takes the state that the one before passed on."""
    rig.target.prefill(PROMPT, never)
    rig.head.prefill((*PROMPT, 7), never)
    reference, _, vector = rig.reference((*PROMPT, 7))
    last = len(PROMPT) - 1
    for step, token in enumerate((30, 31, 32, 33, 34)):
        row = rig.head.extend([token], [step - 1]).logits(step)
        logits, passed = reference.feed([token], vector[None], [last + step])
        vector = passed[0]
        assert_rows(row, logits[0])


def test_a_tree(rig: Rig) -> None:
    """Siblings share their parent's state; each level is one decode."""
    rig.target.prefill(PROMPT, never)
    rig.head.prefill((*PROMPT, 7), never)
    reference, _, vector = rig.reference((*PROMPT, 7))
    last = len(PROMPT) - 1
    rows = rig.head.extend([30, 40, 50], [-1, -1, -1])
    logits, first = reference.feed([30, 40, 50], np.repeat(vector[None], 3, 0), [last] * 3)
    for node in range(3):
        assert_rows(rows.logits(node), logits[node])
    rows = rig.head.extend([31, 41, 42], [0, 1, 1])
    logits, _ = reference.feed([31, 41, 42], first[[0, 1, 1]], [last + 1, last + 2, last + 2])
    for node in range(3):
        assert_rows(rows.logits(3 + node), logits[node])
    rig.head.check()


def test_after_a_part_of_the_draft_was_accepted(rig: Rig) -> None:
    """Accepted tokens are read again with the target's states: with the head's own they would give another row.

    The next draft takes the state of the last one.
    """
    rig.target.prefill(PROMPT, never)
    rig.head.prefill((*PROMPT, 7), never)
    rig.head.extend([30], [-1])
    guessed = rig.head.extend([31], [0]).logits(1).copy()
    rig.commit([7, 30])
    rig.head.keep((0,))
    row = rig.head.prefill((*PROMPT, 7, 30, 31), never).logits(0)
    reference, expected, vector = rig.reference((*PROMPT, 7, 30, 31))
    assert_rows(row, expected)
    is_finite = np.isfinite(expected)
    assert np.abs(guessed[is_finite] - expected[is_finite]).max() > 100 * TOLERANCE
    row = rig.head.extend([32], [-1]).logits(0)
    assert_rows(row, reference.feed([32], vector[None], [len(PROMPT) + 1])[0][0])
    rig.head.check()


def test_after_passes_that_were_not_drafted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """More states wait than the encoder takes at once, and more tokens than are read with all their logits."""
    rig.target.prefill(PROMPT, never)
    rig.head.prefill((*PROMPT, 7), never)
    text = [7, *range(200, 230)]
    monkeypatch.setattr(head_backend, "ENCODED", 8)
    for token in text:
        rig.commit([token])
    assert len(text) > head_backend.WHOLE
    row = rig.head.prefill((*PROMPT, *text, 31), never).logits(0)
    assert_rows(row, rig.reference((*PROMPT, *text, 31))[1])
    assert rig.head._unencoded.first == rig.head._unencoded.end, "each state is encoded once"


def test_after_the_text_went_back(rig: Rig) -> None:
    """An edited prompt: states of the old text are not taken for those of the new."""
    rig.target.prefill((*PROMPT, *range(300, 330)), never)
    rig.head.prefill((*PROMPT, *range(300, 330), 7), never)
    edited = (*PROMPT[:10], *range(400, 420))
    rig.target.prefill(edited, never)
    row = rig.head.prefill((*edited, 7), never).logits(0)
    assert_rows(row, rig.reference((*edited, 7))[1])


def test_after_the_targets_context_grew(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer context is another one: the taps are set anew, and the head's cache moves with its own."""
    monkeypatch.setattr(growing_context, "FIRST_CONTEXT", 32)
    monkeypatch.setattr(growing_context, "SMALL_MODEL", 0)
    with LlamaBackend(rig.target.model, EXACT) as target, head_on(target, rig.file) as backend:
        rig.told = told_states(target, backend.model.traits.tap, backend)
        target.prefill(PROMPT, never)
        backend.prefill((*PROMPT, 7), never)
        text = [7, *range(200, 230)]
        for token in text:
            target.extend([token], [-1])
            target.keep((0,))
        row = backend.prefill((*PROMPT, *text, 31), never).logits(0)
        assert target._growing.size == backend._growing.size == 64
        assert_rows(row, rig.reference((*PROMPT, *text, 31))[1])


def test_a_long_prompt(rig: Rig) -> None:
    """All layer inputs are read; of the states after the last norm those of the last tokens, and the head begins there.

    Reading all of them would take the logits of the whole prompt, and more than fit would end the process.
    """
    prompt = tuple(int(token) for token in np.random.default_rng(0).integers(100, 4000, 3 * PROMPT_STATES))
    rig.target.prefill(prompt, never)
    row = rig.head.prefill((*prompt, 7), never).logits(0)
    assert len(rig.told) == (len(prompt) if rig.kind == "eagle3" else PROMPT_STATES)
    assert_rows(row, rig.reference((*prompt, 7))[1])


def test_states_are_those_of_the_model(rig: Rig, f32_pair: dict[str, Path]) -> None:
    """The first layer reads the embedding, and the output matrix reads the state after the last norm."""
    weights = read_weights(f32_pair["target"])
    tap = Tap(WIDTH, (0,)) if rig.kind == "eagle3" else Tap(WIDTH)
    with LlamaBackend(rig.target.model, EXACT) as backend:
        told = told_states(backend, tap)
        logits = backend.prefill(PROMPT, never).logits(0)
        states = np.stack(list(told.values()))
        assert np.abs(states).min(axis=0).max() > 0, "llama.cpp gives zeros for states that it does not keep"
        if rig.kind == "eagle3":
            assert np.allclose(states, weights["token_embd.weight"][list(PROMPT)])
        else:
            assert np.abs(states[-1] @ weights["output.weight"].T - logits).max() < TOLERANCE


def test_rows_with_logits_and_without_are_not_mixed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp gives the first rows of such a pass for those that were asked for."""
    asked: list[tuple[int, int]] = []
    decode = HeadBackend._decode

    def noted(backend: HeadBackend, n: int, *rest: object) -> None:
        outputs = backend._batch._outputs[: backend._batch.struct.n_tokens]
        asked.append((len(outputs), int(outputs.sum())))
        decode(backend, n, *rest)

    monkeypatch.setattr(HeadBackend, "_decode", noted)
    prompt = tuple(range(100, 100 + 2 * head_backend.WHOLE))
    rig.target.prefill(prompt, never)
    rig.head.prefill((*prompt, 7), never)
    rig.head.extend([30, 40], [-1, -1], np.array([True, False]))
    assert {some for _, some in asked} >= {0, 1, 2}
    assert all(some in (0, n) for n, some in asked)


def test_a_tree_of_several_decodes_tells_no_stale_states(rig: Rig) -> None:
    """The states of its first level are gone; the head begins anew behind them."""
    rig.target.prefill(PROMPT, never)
    rig.head.prefill((*PROMPT, 7), never)
    rig.target.extend([7], [-1])
    rig.target.extend([30], [0])
    rig.target.keep((0, 1))
    rig.commit([31])
    row = rig.head.prefill((*PROMPT, 7, 30, 31, 32), never).logits(0)
    reference = Reference(storyteller_shape(rig.kind), read_weights(rig.file), first=len(PROMPT) + 3)
    assert set(range(len(PROMPT), len(PROMPT) + 3)) & set(rig.told) == {len(PROMPT) + 2}
    vectors = reference.encode(rig.told[len(PROMPT) + 2][None])
    assert_rows(row, reference.feed([32], vectors, [-1])[0][0])


def test_a_head_without_an_embedding_borrows_the_targets(
    tmp_path: Path, f32_pair: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not through the target's own context, which is freed when it grows."""
    monkeypatch.setattr(growing_context, "FIRST_CONTEXT", 32)
    monkeypatch.setattr(growing_context, "SMALL_MODEL", 0)
    whole = write_random_head(tmp_path / "whole.gguf", "eagle3")
    header = read_header(whole)
    tensors = [read_tensor(header, one.name) for one in header.tensors if one.name != "token_embd.weight"]
    file = tmp_path / "head.gguf"
    pairs = [KeyValue(key, header.types[key], value) for key, value in header.metadata.items()]
    write_gguf(file, pairs, [one for one in tensors if one is not None])
    embedding = {"token_embd.weight": read_weights(f32_pair["target"])["token_embd.weight"]}
    with opened_head(f32_pair["target"], file) as (target, backend):
        assert backend.model.traits.borrows
        told = told_states(target, backend.model.traits.tap, backend)
        target.prefill(range(100, 160), never)
        assert target._growing.size > 32
        row = backend.prefill([*range(100, 160), 7], never).logits(0)
        reference = Reference(storyteller_shape("eagle3"), read_weights(whole) | embedding, first=1)
        vectors = reference.encode(np.stack(list(told.values())))
        assert_rows(row, reference.feed([*range(101, 160), 7], vectors, range(-1, 59))[0][-1])


def test_a_block_in_the_targets_own_file_is_the_draft_where_none_is_named(tmp_path: Path) -> None:
    """Of a damaged file nothing is said here: its loading says what is wrong."""
    file = with_own_block(tmp_path / "own.gguf")
    assert read_architecture(file) == "hy_v3"
    assert parse_pair(str(file)) == PairRef(file, file, "own.gguf")
    assert parse_pair(f"{file}+mtp").draft == file
    assert parse_pair(f"{file}+none").draft is None
    assert parse_pair(f"{file}+storyteller").draft == pair.DRAFT
    settings = LoadSettings(str(file), str(file), "own.gguf")
    assert parse_pair(reference(settings)) == PairRef(file, file, f"{file.name}+{file.name}")
    for length in (3, 20, 100, 2000):
        file.write_bytes(file.read_bytes()[:length])
        assert parse_pair(str(file)).draft is None


def test_a_block_in_the_targets_own_file(tmp_path: Path) -> None:
    """It reads the state that the model passes to it, and takes no logits for that. The weights are loaded once."""
    file = with_own_block(tmp_path / "own.gguf")
    weights = {name.replace("blk.2.", "blk.0."): array for name, array in read_weights(file).items()}
    loaded, _ = pair.load_pair(LoadSettings(str(file), str(file), ctx=512, threads=1, kv_type="f32"))
    with closing(loaded):
        assert loaded.draft is not None
        assert loaded.draft.kind == "mtp"
        target, backend = loaded.target.backend, loaded.draft.backend
        assert isinstance(backend, HeadBackend)
        told = told_states(target, backend.model.traits.tap, backend)
        prompt = tuple(range(100, 100 + 2 * PROMPT_STATES))
        target.prefill(prompt, never)
        row = backend.prefill((*prompt, 7), never).logits(0)
        states = np.stack(list(told.values()))
        assert states.shape == (len(prompt), WIDTH)
        assert np.abs(states).min(axis=0).max() > 0
        reference = Reference(storyteller_shape("mtp"), weights, first=1)
        logits, passed = reference.feed((*prompt[1:], 7), states, range(-1, len(prompt) - 1))
        assert_rows(row, logits[-1])
        row = backend.extend([30], [-1]).logits(0)
        assert_rows(row, reference.feed([30], passed[-1:], [len(prompt) - 1])[0][0])
        texts = {
            method: [
                event.text
                for event in loaded.answer(
                    Request(prompt="Once", max_tokens=40, sampling=pair.GREEDY, speculation=Speculation(method=method))
                )
                if isinstance(event, Committed)
            ]
            for method in ("plain", "mtp", "auto")
        }
    assert "".join(texts["plain"]) == "".join(texts["mtp"]) == "".join(texts["auto"])


def test_a_prompt_that_is_read_in_part_after_another_text(rig: Rig) -> None:
    """States of the old text lie before those that are told of the new one, at positions that were not told again."""
    rng = np.random.default_rng(0)
    old, new = (tuple(int(token) for token in rng.integers(100, 4000, 3 * PROMPT_STATES)) for _ in range(2))
    rig.target.prefill(old, never)
    rig.head.prefill((*old, 7), never)
    edited = (*old[:10], *new)
    rig.target.prefill(edited, never)
    row = rig.head.prefill((*edited, 7), never).logits(0)
    assert_rows(row, rig.reference((*edited, 7))[1])


def test_a_prompt_after_one_that_was_stopped(f32_pair: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a context that grew meanwhile: with the logits of a whole chunk llama.cpp would end the process."""
    monkeypatch.setattr(growing_context, "FIRST_CONTEXT", 256)
    monkeypatch.setattr(growing_context, "SMALL_MODEL", 0)
    options = replace(EXACT, n_ctx=1024, n_batch=256)
    told: list[int] = []
    with Model(f32_pair["target"], options) as model, LlamaBackend(model, options) as target:
        target.listen(StateListener(Tap(WIDTH), lambda start, states: told.append(len(states))))
        asked = iter([False, True])
        with pytest.raises(Cancelled):
            target.prefill(range(100, 500), lambda: next(asked))
        target.prefill(range(1000, 1900), never)
        assert target._growing.size == 1024
    assert sum(told) == PROMPT_STATES
