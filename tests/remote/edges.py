"""An edge and a verifier in one process, with all that they say encoded, and a way between them that may be bad."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Step
from localspec.engine.loop import Engine
from localspec.engine.protocols import RandomSource
from localspec.engine.sampling import Sampler
from localspec.engine.stopwatch import Stopwatch
from localspec.errors import from_wire
from localspec.methods.draft_model import DraftModel
from localspec.remote.judge import RemoteJudge
from localspec.remote.messages import (
    Bye,
    Error,
    Hello,
    MessageError,
    Prefix,
    ToEdge,
    ToVerifier,
    Verify,
    Welcome,
    encode,
    reply_of,
    request_of,
)
from localspec.remote.modes import MODES, QuantisedSampler
from localspec.remote.verifier import Served, VerifyingSessions
from localspec.testing.contract import TableBackend
from tests.exact import harness
from tests.exact.harness import PROMPT, Setup, Table


@dataclass
class Far:
    """The verifier's machine. `die` forgets every session, as a process does that is killed."""

    make: Callable[[], VerifyingSessions]
    names: int = 0

    def __post_init__(self) -> None:
        self.verifier = self.make()

    def die(self) -> None:
        self.verifier = self.make()


@dataclass
class Line:
    """The verifier's end of one connection, as the server keeps it."""

    far: Far
    name: str = ""
    hello: Hello | None = None
    prefixes: list[Prefix] = field(default_factory=list)

    def hear(self, data: bytes) -> list[bytes]:
        reply: ToEdge | None = None
        try:
            message = request_of(data)
        except MessageError as error:
            answer = 0 if self.hello is None else self.hello.answer
            return [encode(Error("usage", str(error), "pip install -U localspec", answer))]
        match message:
            case Hello():
                self.far.names += not message.session
                self.name = message.session or f"session {self.far.names}"
                self.hello, self.prefixes = message, []
                reply = Welcome(self.name, n_ctx=64, max_rows=64)
            case Prefix():
                self.prefixes.append(message)
            case Verify() if self.hello is None:
                reply = Error("usage", "a round belongs to a session", "say hello first")
            case Verify():
                assert self.hello is not None
                reply = self.far.verifier.answer(self.name, self.hello, self.prefixes, message, lambda: False)
                self.prefixes = []
            case Bye():
                self.far.verifier.forget(self.name)
        return [] if reply is None else [encode(reply)]


class Wire:
    """A channel without faults: every message crosses as bytes. `up` and `down` keep them."""

    def __init__(self, far: Far) -> None:
        self.line = Line(far)
        self.up: list[bytes] = []
        self.down: list[bytes] = []
        self.queue: list[bytes] = []

    def has_come(self) -> bool:
        return False  # however long it is waited for: what is read on is told by the one who reads

    def send(self, message: ToVerifier) -> None:
        data = encode(message)
        self.up.append(data)
        self.queue += self.line.hear(data)

    def receive(self) -> ToEdge:
        data = self.queue.pop(0)
        self.down.append(data)
        reply = reply_of(data)
        if isinstance(reply, Error):
            raise from_wire({"kind": reply.code, "message": reply.message, "hint": reply.hint})
        return reply


@dataclass(frozen=True)
class Remote:
    """A setup of tests/exact whose target is elsewhere, in a mode."""

    setup: Setup
    mode: str
    seed: int = 0
    served: Callable[[Served], Served] = lambda served: served
    judge: type[RemoteJudge] = RemoteJudge
    drafter: type[DraftModel] = DraftModel
    reads_on: Callable[[DraftModel, RandomSource], Any] | None = None  # what is done while a verdict is under way

    @property
    def hello(self) -> Hello:
        verify = self.setup.verifier.name
        return Hello(1, "v", mode=self.mode, verify=verify, seed=self.seed, sampling=self.setup.sampling)

    def far(self, target: Table, chance: Callable[[Hello, int], RandomSource]) -> Far:
        setup = self.setup
        backend = TableBackend(target, setup.n_vocab, setup.n_ctx)
        sampler = Sampler(setup.sampling, constraint=setup.constraint)
        vocabulary = Vocabulary(lambda token: token in setup.eog, lambda token: b"x")
        return Far(
            lambda: VerifyingSessions(
                lambda hello: self.served(Served(backend, sampler, vocabulary)), chance, lambda: 0.0
            )
        )

    def engine(self, channel, draft: Table, rng: RandomSource, capabilities) -> tuple[Engine, Context]:
        setup = self.setup
        local, context = harness.build(setup, draft, draft, rng)
        has_laws = MODES[self.mode].has_laws and self.mode != "laws"
        sampler = (QuantisedSampler if has_laws else Sampler)(
            setup.draft_sampling or setup.sampling, temperature=setup.draft_temperature,
            constraint=setup.draft_constraint or setup.constraint, drafts=True,
        )  # fmt: skip
        drafter = self.drafter(TableBackend(draft, setup.n_vocab), sampler, setup.policy, lambda: False)
        meantime = self.reads_on(drafter, rng) if self.reads_on and not setup.drafter else None
        judge = self.judge(channel, self.hello, capabilities, setup.verifier, rng, setup.draft_constraint, meantime)
        drafters = local.drafters if setup.drafter else {**local.drafters, "d": drafter}
        return replace(local, judge=judge, drafters=drafters), context


def one_pass(remote: Remote, target: Table, draft: Table, rng: RandomSource) -> Step:
    """Return one pass behind the prompt, which the verifier asks for as it has forgotten it."""
    wire = Wire(remote.far(target, lambda hello, number: rng))
    can = TableBackend(target, remote.setup.n_vocab, remote.setup.n_ctx).capabilities
    engine, context = remote.engine(wire, draft, rng, can)
    wire.send(msgspec.structs.replace(remote.hello, prompt_n=len(PROMPT)))
    engine.judge.length = len(PROMPT) - 1
    return engine.step(context, Stopwatch(engine.clock))


def run(remote: Remote, target: Table, draft: Table, rng: RandomSource, chance=None) -> tuple[list[int], Wire]:
    """Generate one answer through the wire; `rng` is that of both sides, or `chance` that of the verifier."""
    far = remote.far(target, chance or (lambda hello, number: rng))
    wire = Wire(far)
    can = TableBackend(target, remote.setup.n_vocab, remote.setup.n_ctx).capabilities
    engine, context = remote.engine(wire, draft, rng, can)
    for _ in engine.generate(context):
        pass
    return context.tokens[len(PROMPT) :], wire
