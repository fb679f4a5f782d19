"""Early exit: which layers its options name, that it drafts like any model, and that the text stays the target's."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from localspec.backends.lib import api
from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine import events
from localspec.engine.draft import Draw
from localspec.engine.protocols import Drafter, Shape, TreePolicy
from localspec.engine.sampling import Sampler
from localspec.errors import IncompatibleError, LocalspecError, UsageError
from localspec.methods.early_exit import EarlyExit
from localspec.models.derived_files import KEPT
from localspec.models.exit_files import Exits, Layers, Tuned
from localspec.models.gguf.header import read_header
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.speculation.resolve import resolve_axes
from localspec.testing.contract import DrafterContract, DrafterUnderTest, Table, TableBackend, random_table
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from tests.exact.harness import EXACT, OPEN, Setup, answers, assert_exact, target_answers
from tests.integration import pair
from tests.integration.gguf_models import MAMBA, TINY, random_gguf
from tests.integration.near_ties import assert_same_text
from tests.integration.pair import GREEDY, OPENINGS
from tests.recorded import recorded_expressions

SEEDED = Sampling(temperature=0.8, seed=11)


class TestEarlyExit(DrafterContract):
    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        backend = TableBackend(table, self.n_vocab, n_ctx)
        return DrafterUnderTest(EarlyExit(backend, Sampler(Sampling()), policy, lambda: False), (backend,))


@pytest.mark.parametrize("policy", [Chain(), Static((2, 1))], ids=["chain", "tree"])
def test_the_dist_is_the_targets(policy: TreePolicy) -> None:
    """Every branch of chance replayed through the shipped engine, to 1e-9."""

    def drafter(target: Table) -> Drafter:
        shallow = random_table(3, 5, near=target, distance=1.2)
        return EarlyExit(TableBackend(shallow, 3), Sampler(OPEN), policy, lambda: False)

    rule = BlockVerifier() if isinstance(policy, Chain) else MatchVerifier()
    draw = Draw.IID if isinstance(policy, Chain) else Draw.FIXED
    setup = Setup(rule, policy, policy.shape(2).nodes, 2, draw, drafter=drafter, max_tokens=3)
    assert EXACT == 1e-9
    assert_exact(answers(setup), target_answers(setup))


def chosen(exit: str = "auto", skip: str = "none", n: int = 8, tuned: Layers | None = None) -> Layers:
    return EarlyExit.layers({"exit": exit, "skip": skip}, n, tuned)


def test_options_name_layers() -> None:
    """First layers, any but some, both; a quarter without a word, or what was tuned."""
    assert chosen() == (0, 1)
    assert chosen(n=2) == (0,)
    assert chosen(n=32) == tuple(range(8))
    assert chosen(tuned=(0, 1, 5)) == (0, 1, 5)
    assert chosen(exit="3", tuned=(0, 1, 5)) == (0, 1, 2)
    assert chosen(skip="1,3,5") == (0, 2, 4, 6, 7)
    assert chosen(exit="4", skip="1,7") == (0, 2, 3)


@pytest.mark.parametrize("text", ["exit=0", "exit=-1", "exit=x", "exit=2.5", "exit=", "exit=²", "skip=", "skip=a",
                                  "skip=1,", "skip=1;2", "skip=-1", "exits=2"])  # fmt: skip
def test_options_that_no_model_could_obey(text: str) -> None:
    """Told before anything loads."""
    name, _, value = text.partition("=")
    with pytest.raises(UsageError, match=f"-o {name}|no option"):
        resolve_axes(Speculation("early-exit", options=((name, value),)), has_draft=False, is_seeded=False)


def test_it_needs_nothing_but_the_target() -> None:
    """No draft model, and any tree."""
    axes = resolve_axes(Speculation("early-exit", tree="static:2,2"), has_draft=False, is_seeded=True)
    assert axes.method == "early-exit"
    assert axes.shape.nodes == 6


@pytest.fixture(scope="module")
def f32_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storyteller's target in F32, where a batch's rows agree with single ones to 1e-3."""
    path = tmp_path_factory.mktemp("f32") / "target.gguf"
    params = api.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = api.LLAMA_FTYPE_ALL_F32, True
    assert api.llama_model_quantize(str(pair.TARGET).encode(), str(path).encode(), params) == 0
    return path


@pytest.fixture(scope="module")
def target(f32_target: Path) -> Iterator[LlamaBackend]:
    with pair.backend(f32_target) as opened:
        yield opened


SETS: dict[str, Callable[[int], Iterable[int]]] = {
    "first": lambda n: (0,),
    "half": lambda n: range(n // 2),
    "all but the last": lambda n: range(n - 1),
    "without two": lambda n: (layer for layer in range(n) if layer not in (n // 4, n // 2 + 1)),
    "odd": lambda n: range(1, n, 2),
}


@pytest.mark.parametrize("name", SETS)
def test_the_text_is_plain_decodings(target: LlamaBackend, f32_target: Path, tmp_path: Path, name: str) -> None:
    """At temperature 0 with every draw, at 0.8 with coupled noise; chains and trees; whatever the layers are worth."""
    exits = Exits(read_header(f32_target), tmp_path)
    file = exits.file(tuple(SETS[name](exits.n_layers)))
    prompt = target.model.tokenize(OPENINGS[0], add_bos=True)
    runs = (
        (GREEDY, Chain(), BlockVerifier(), Draw.IID),
        (GREEDY, Static((2, 2)), CoupledVerifier(), Draw.COUPLED),
        (SEEDED, Chain(), CoupledVerifier(), Draw.COUPLED),
        (SEEDED, Static((3, 1)), CoupledVerifier(), Draw.COUPLED),
    )
    with pair.backend(file) as draft:
        for sampling, policy, rule, draw in runs:
            expected = pair.plain(target, rule, sampling=sampling, max_tokens=120)
            drafter = EarlyExit(draft, Sampler(sampling), policy, lambda: False)
            shape: Shape = policy.shape(4)
            got = pair.generate(target, drafter, rule, shape=shape, draw=draw, sampling=sampling, max_tokens=120)
            assert_same_text(target, prompt, expected.tokens, got.tokens, sampling, shape.nodes + 1)
            if name == "all but the last":
                assert sum(step.n_accepted for step in got.steps) > 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path / "cache" / "early-exit"


def answer(session: LoadedPair, *options: tuple[str, str], method: str = "early-exit") -> list[events.Event]:
    request = Request(
        prompt="abc", max_tokens=12, sampling=GREEDY, speculation=Speculation(method, verify="match", options=options)
    )
    return list(session.answer(request))


def text(told: list[events.Event]) -> list[int]:
    return [piece.id for event in told if isinstance(event, events.Committed) for piece in event.out]


def derived(told: list[events.Event]) -> events.ModelFacts | None:
    (started,) = (event for event in told if isinstance(event, events.Started))
    return started.derived


def test_a_session_makes_its_own_draft(home: Path) -> None:
    """Loaded at the first request that needs it, kept, replaced where other layers are asked for; facts are told."""
    path = random_gguf(TINY)  # three layers
    session, loading = pair.load_pair(LoadSettings(str(path), ctx=128, threads=1))
    loaded = [event for event in loading if _is_loaded(event)]
    assert len(loaded) == 1
    plain = answer(session, method="plain")
    assert derived(plain) is None
    assert not home.exists()
    for options, n_layer in (((), 1), ((("exit", "2"),), 2), ((("skip", "1"),), 2)):
        told, again = answer(session, *options), answer(session, *options)
        assert text(told) == text(again) == text(plain)
        facts = derived(told)
        assert facts is not None
        assert facts == derived(again)
        assert facts.n_layer == n_layer
        assert facts.bytes < path.stat().st_size
        assert facts.kv_bytes > 0
        assert any(isinstance(event, events.Loading) for event in told)
        assert not any(isinstance(event, events.Loading) for event in again)
    assert len(list(home.glob("*.gguf"))) == KEPT
    session.close()


def _is_loaded(event: events.Event) -> bool:
    return isinstance(event, events.Loaded)


def test_a_session_uses_what_was_tuned(home: Path) -> None:
    """Unless the options say otherwise."""
    path = random_gguf(TINY)
    Exits(read_header(path), home).store(Tuned((0, 2), 0.9))
    session, _ = pair.load_pair(LoadSettings(str(path), ctx=128, threads=1))
    answer(session)
    assert list(home.glob("*.gguf")) == [Exits(read_header(path), home).path((0, 2))]
    session.close()


def test_a_refusal_leaves_the_session_usable(home: Path) -> None:
    """Layers out of range, then a folder that cannot be made; the next request is answered."""
    session, _ = pair.load_pair(LoadSettings(str(random_gguf(TINY)), ctx=128, threads=1))
    with pytest.raises(UsageError, match="3 layers"):
        answer(session, ("exit", "3"))
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text("in the way")
    with pytest.raises(LocalspecError, match="cannot be kept"):
        answer(session)
    home.unlink()
    assert derived(answer(session)) is not None
    session.close()


def test_recurrent_models_are_refused(home: Path) -> None:
    """Nothing is made of their layers."""
    session, _ = pair.load_pair(LoadSettings(str(random_gguf(MAMBA)), ctx=128, threads=1))
    with pytest.raises(IncompatibleError, match="no early exit is made of those"):
        answer(session)
    assert not home.exists()
    session.close()


test_what_is_recorded = recorded_expressions(__file__, chosen)
