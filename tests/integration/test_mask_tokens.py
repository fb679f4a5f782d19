"""Mask tokens on the real llama.cpp: rows of the text bit for bit, rows of the masks as in numpy, the target's text."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from localspec.backends import growing_context
from localspec.backends.lib import api
from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine.draft import Draw, Step
from localspec.engine.events import Committed
from localspec.engine.protocols import Rows, TreePolicy, Verifier
from localspec.engine.sampling import Sampler
from localspec.errors import LocalspecError
from localspec.heads.mask_file import with_masks
from localspec.methods.mask_tokens import MaskTokens
from localspec.models.gguf.header import read_header
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.trees.eagle2 import Eagle2
from localspec.trees.static import Chain
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from tests.heads.masks import Floats, mask_rows, write_random_masks
from tests.heads.reference import read_weights
from tests.integration import pair
from tests.integration.gguf_models import never, random_gguf
from tests.weights.random_gguf import Shape

K = 4
V = 4096
PROMPT = tuple(range(100, 124))
TREE = [-1, 0, 1, 2, 0, 4]  # the pending token, a draft below it, and a branch
TOKENS = [7, 30, 31, 32, 40, 41]
WARM = Sampling(temperature=0.8, seed=3)


@dataclass(frozen=True)
class Rig:
    """The storyteller in F32, the same with masks, and the weights of both files."""

    plain: LlamaBackend
    masked: LlamaBackend
    weights: dict[str, Floats]
    lora: dict[str, Floats]

    @property
    def masks(self) -> tuple[int, ...]:
        return self.masked.model.masks

    def expected(self, text: tuple[int, ...]) -> Floats:
        return mask_rows(self.weights, self.lora, text, K)


@pytest.fixture(scope="module")
def rig(f32_pair: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("masks")
    target = f32_pair["target"]
    file = write_random_masks(folder / "masks.gguf", K, target=target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(folder))
        path = with_masks(read_header(target), read_header(file))
    with pair.backend(target) as plain, pair.backend(path, replace(pair.EXACT, n_masks=K)) as masked:
        yield Rig(plain, masked, read_weights(target), read_weights(file))


def tree_with_masks(rig: Rig, parents: list[int], tokens: list[int]) -> tuple[list[int], list[int]]:
    n = len(tokens)
    for node in range(n):
        first = len(tokens)
        tokens = [*tokens, *rig.masks]
        parents = [*parents, node, *range(first, first + K - 1)]
    assert len(tokens) == n * (1 + K)
    return tokens, parents


def test_the_masks_are_no_tokens_of_text(rig: Rig) -> None:
    model = rig.masked.model
    assert (model.n_vocab, model.row_width, model.masks) == (V, V + K, tuple(range(V, V + K)))
    assert rig.plain.model.masks == ()
    assert rig.masked.capabilities.n_vocab == V
    assert V not in model.tokenize("<|mask_1|> and")


def test_rows_of_the_text_are_those_of_the_target(rig: Rig) -> None:
    """Bit for bit: a prompt, a tree, and the tree with masks below each node. Then numpy for the masks themselves."""
    rows = [backend.prefill(PROMPT, never).logits(0).copy() for backend in (rig.plain, rig.masked)]
    assert np.array_equal(*rows)
    alone = rig.plain.extend(TOKENS, TREE)
    plain = np.stack([alone.logits(node) for node in range(len(TOKENS))])
    found = rig.masked.extend(TOKENS, TREE)
    assert np.array_equal(plain, np.stack([found.logits(node) for node in range(len(TOKENS))]))
    rig.masked.truncate(len(PROMPT))
    rig.plain.truncate(len(PROMPT))
    tokens, parents = tree_with_masks(rig, TREE, TOKENS)
    found = rig.masked.extend(tokens, parents)
    assert np.abs(plain - np.stack([found.logits(node) for node in range(len(TOKENS))])).max() == 0.0
    for node in range(len(TOKENS)):
        path, at = [], node
        while at >= 0:
            path, at = [TOKENS[at], *path], TREE[at]
        rows = [found.logits(len(TOKENS) + K * node + mask) for mask in range(K)]
        assert np.abs(np.stack(rows) - rig.expected((*PROMPT, *path))).max() < 1e-4
    rig.masked.truncate(0)


def test_after_a_partial_acceptance(rig: Rig) -> None:
    """The kept path stays, and nothing of the masks: rows go on as if there had been none."""
    rig.masked.prefill(PROMPT, never)
    tokens, parents = tree_with_masks(rig, TREE, TOKENS)
    rig.masked.extend(tokens, parents)
    rig.masked.keep((0, 4))
    rig.masked.check()
    text = (*PROMPT, TOKENS[0], TOKENS[4])
    chain = [50, *rig.masks]
    rows = rig.masked.extend(chain, range(-1, K))
    assert np.abs(np.stack([rows.logits(1 + mask) for mask in range(K)]) - rig.expected((*text, 50))).max() < 1e-4
    found = rows.logits(0).copy()
    rig.plain.prefill(text, never)
    assert np.abs(rig.plain.extend([50], [-1]).logits(0) - found).max() < 1e-3  # pieces of other widths
    rig.masked.truncate(0)


class Checked(MaskTokens):
    """Looks at the cache after every pass: the text is there, and no sequence holds a mask."""

    backend: LlamaBackend
    rows = 0

    def observe(self, step: Step, rows: Rows) -> None:
        super().observe(step, rows)
        self.rows += len(step.draft.tokens)
        backend = self.backend
        length = step.position + len(step.tokens) - 1
        assert backend.length == length
        assert api.llama_memory_seq_pos_max(backend._cache.memory, 0) == length - 1
        for sequence in range(1, backend.capabilities.max_leaves):
            assert api.llama_memory_seq_pos_max(backend._cache.memory, sequence) < length
        assert set(backend.tokens).isdisjoint(backend.model.masks)
        backend.check()


@pytest.mark.parametrize(
    ("policy", "k", "rule", "sampling", "draw"),
    [
        (Chain(), 3, MatchVerifier(), pair.GREEDY, Draw.FIXED),
        (Eagle2(6), 6, MatchVerifier(), pair.GREEDY, Draw.FIXED),
        (Chain(), 3, CoupledVerifier(), WARM, Draw.COUPLED),
        (Chain(), 2, BlockVerifier(), pair.GREEDY, Draw.IID),
    ],
    ids=["chain", "tree", "coupled", "block"],
)
def test_the_text_is_the_targets(
    rig: Rig, policy: TreePolicy, k: int, rule: Verifier, sampling: Sampling, draw: Draw
) -> None:
    """The masks of this test guess at random: what they hit is accepted, and the text stays."""
    expected = pair.plain(rig.plain, CoupledVerifier(), sampling=sampling, max_tokens=60)
    drafter = Checked(rig.masks, Sampler(sampling, temperature=1.0), policy)
    drafter.backend = rig.masked
    shape = MaskTokens.pass_shape(policy.shape(k))
    got = pair.generate(rig.masked, drafter, rule, sampling=sampling, shape=shape, draw=draw, max_tokens=60)
    assert max(step.draft.depth for step in got.steps) == min(k, K, shape.depth)
    pair.assert_same(rig.plain, pair.OPENINGS[0], expected, got, sampling)


@pytest.mark.parametrize("missing", [1, 2, 9, 30])
def test_context_full(rig: Rig, missing: int) -> None:
    """Masks and drafts leave when the context has no room for them; `missing` + 1 tokens come."""
    prompt = rig.masked.model.tokenize(" and then" * 2000)[: 1024 - missing]
    drafter = MaskTokens(rig.masks, Sampler(pair.GREEDY), Chain())
    run = pair.generate(
        rig.masked, drafter, MatchVerifier(), prompt=prompt, shape=MaskTokens.pass_shape(Chain().shape(3)),
        draw=Draw.FIXED, max_tokens=100, eog=frozenset(),
    )  # fmt: skip
    assert (run.finish, len(run.tokens)) == ("context", missing + 1)


def test_after_the_context_grew(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer context holds what tells the rows that see a mask, too."""
    monkeypatch.setattr(growing_context, "FIRST_CONTEXT", 256)
    monkeypatch.setattr(growing_context, "SMALL_MODEL", 0)
    text = tuple(int(token) for token in np.random.default_rng(1).integers(100, V, 254))
    with LlamaBackend(rig.masked.model, rig.masked.options) as backend:
        backend.prefill(text, never)
        assert backend._growing.size == 256
        rows = backend.extend([50, *rig.masks], range(-1, K))
        assert backend._growing.size == 512
        assert np.abs(np.stack([rows.logits(1 + mask) for mask in range(K)]) - rig.expected((*text, 50))).max() < 1e-4


def test_a_loaded_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-d MASKS.gguf` drafts by the method's name; `auto` decodes plainly. The target is told as its own file."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    file = write_random_masks(tmp_path / "masks.gguf", 2, matrices="Q8_0")
    settings = LoadSettings(str(pair.TARGET), str(file), ctx=512, threads=1)
    loaded, _ = pair.load_pair(settings)
    with closing(loaded):
        facts = loaded.target.facts()
        assert (facts.path, facts.n_vocab, facts.arch) == (str(pair.TARGET), V, "llama")
        assert loaded.target.model.path.parent == tmp_path / "cache" / "mask-tokens"
        answers: dict[str, list[Committed]] = {}
        for method in ("plain", "mask-tokens", "auto"):
            asked = Speculation(method=method)
            request = Request(prompt="Once", max_tokens=40, sampling=pair.GREEDY, speculation=asked)
            answers[method] = [event for event in loaded.answer(request) if isinstance(event, Committed)]
        texts = {method: "".join(event.text for event in told) for method, told in answers.items()}
    assert texts["plain"] == texts["mask-tokens"] == texts["auto"]
    n_drafted = {method: sum(event.k for event in told) for method, told in answers.items()}
    assert n_drafted["mask-tokens"] > 0 == n_drafted["plain"]


def test_masks_on_another_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says which architecture it needs."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    file = write_random_masks(tmp_path / "masks.gguf", 2, matrices="Q8_0")
    other = random_gguf(Shape(arch="gemma3", vocab=V, width=192, layers=1, heads=3, kv_heads=1, ff=128))
    with pytest.raises(LocalspecError, match="mask tokens need a target of the architecture llama, not gemma3"):
        pair.load_pair(LoadSettings(str(other), str(file), ctx=512, threads=1))
