"""The edge's side: a judge whose target is elsewhere. Each verdict is a round, and nothing stands before its Result.

Whatever was lost or forgotten comes back as a Resync: the text is sent again, and the same round is asked again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import numpy as np

from localspec.engine.constraint import Constraint
from localspec.engine.distribution import residual
from localspec.engine.draft import Draft, Nodes, Verdict
from localspec.engine.judge import Mark
from localspec.engine.protocols import Cancel, Capabilities, RandomSource, Rows, Verifier
from localspec.errors import IncompatibleError, UsageError
from localspec.remote.ahead import DraftingOn
from localspec.remote.channel import Channel
from localspec.remote.messages import (
    MOST_IDS,
    Hello,
    MessageError,
    Prefix,
    Result,
    Resync,
    SentDist,
    Verify,
    digest_of,
    packed,
)
from localspec.remote.modes import mode_of

MOST_RESYNCS = 16  # of one round
UNFIT = "pip install -U localspec, on both machines"


class WithheldRows:
    """The rows of a target elsewhere: nobody here can read them."""

    def logits(self, node: int) -> NoReturn:
        raise UsageError("the rows of the target stay with its verifier", hint="--method draft-model")


ROWS: Rows = WithheldRows()


@dataclass
class RemoteJudge:
    """The target of a verifier behind `channel`, for one answer. `hello` opens the session.

    `verifier` is the rule, which mode `laws` applies here; `rng` draws what the edge draws. `constraint`, if the edge
    has it too, cuts drafts that cannot stand. `is_timing`: nobody reads the text, and its passes are timed.
    """

    channel: Channel
    hello: Hello
    capabilities: Capabilities
    verifier: Verifier
    rng: RandomSource
    constraint: Constraint | None = None
    meantime: DraftingOn | None = None  # what is done while a verdict is under way
    is_timing: bool = False
    length = evaluated = to_replay = 0
    _round = 0
    _n_sent = _digest = 0  # tokens that the verifier has, if it has forgotten nothing, and their digest

    def __post_init__(self) -> None:
        mode_of(self.hello.mode).require(self.hello.verify, self.hello.sampling, self.capabilities.n_vocab)

    def start(self, draft: Draft, tokens: Sequence[int], mark: Mark, cancel: Cancel) -> tuple[Verdict, Rows]:
        """Open the session, send the prompt, and ask for its first token: all at once, one way there and back."""
        prompt_n = 0 if self.is_timing else len(tokens)
        self.hello = msgspec.structs.replace(self.hello, prompt_n=prompt_n, session="")
        self.channel.send(self.hello)
        self._send_text(tokens, 0)
        self.length = self.evaluated = len(tokens)
        return self.verdict(draft, tokens, mark)

    def verdict(self, draft: Draft, tokens: Sequence[int], mark: Mark) -> tuple[Verdict, Rows]:
        """Send the draft, and wait for what stands of it. Raises as the channel does; nothing stands then."""
        names = [node for node in range(len(draft.tokens)) if not draft.scratch[node]]
        bare = draft.only(names)
        self._round += 1
        result = self._asked(bare, tokens)
        if self.meantime is not None:
            self.meantime.verdict_came(bare, result.micros / 1e6)
        mark()
        try:
            verdict = self._decided(bare, tokens, result)
            run = [int(bare.tokens[node]) for node in verdict.path] + [verdict.token]
        except (ValueError, IndexError) as error:
            raise IncompatibleError(f"the verifier's answer fits no draft: {error}", hint=UNFIT) from None
        if len(verdict.path) < bare.forced:
            raise IncompatibleError("the verifier allows an answer of another form", hint=UNFIT)
        self._note([*tokens, *run], result.length)
        return draft.verdict(names[(verdict.path or (0,))[-1]], verdict.token), ROWS

    def keep(self, nodes: Nodes) -> None:
        """Count what was committed; the verifier has done the same, or is told with the next round."""
        self.length += len(nodes)

    def _note(self, tokens: Sequence[int], length: int) -> None:
        if not self._n_sent <= length <= len(tokens):
            raise IncompatibleError(
                f"the verifier's text has {length} tokens, and the edge's {len(tokens)}", hint=UNFIT
            )
        self._digest = digest_of(tokens[self._n_sent : length], self._digest)
        self._n_sent = length

    def _send_text(self, tokens: Sequence[int], base: int) -> None:
        for start in range(base, max(len(tokens), base + 1), MOST_IDS):
            self.channel.send(Prefix(start, tuple(tokens[start : start + MOST_IDS])))
        self._n_sent, self._digest = len(tokens), digest_of(tokens)

    def _asked(self, draft: Draft, tokens: Sequence[int]) -> Result:
        """Return the Result of a round, sending the text again as often as the verifier lacks it."""
        self.channel.send(self._verify(draft, tokens))
        if self.meantime is not None:
            self.meantime.wait(draft, self.channel.has_come)
        for _ in range(MOST_RESYNCS):
            reply = self.channel.receive()
            while not isinstance(reply, Result | Resync) or (isinstance(reply, Result) and reply.round != self._round):
                reply = self.channel.receive()
            if isinstance(reply, Result):
                return reply
            have = reply.have if reply.have <= len(tokens) else 0
            self._send_text(tokens, have if digest_of(tokens[:have]) == reply.digest else 0)
            self.channel.send(self._verify(draft, tokens))
        raise IncompatibleError("the verifier has another text, however often it is sent", hint=UNFIT)

    def _verify(self, draft: Draft, tokens: Sequence[int]) -> Verify:
        """Return the round's question: the draft, and what was drawn here since the verifier's last word."""
        n, q, draw = len(draft), b"", ""
        dists: tuple[SentDist, ...] = ()
        parents = tuple(draft.parents[1:].tolist())
        if self.hello.mode == "scalar-q":
            nodes = range(1, n + 1)
            q = packed(np.array([draft.dist(node).prob(int(draft.tokens[node])) for node in nodes]))
        if self.hello.mode == "sparse-q":
            dists = tuple(SentDist.of(dist) for dist in draft.dists[1:])
            draw = next((draft.draws[node].value for node in range(1, n + 1) if draft.dists[node]), "")
        return Verify(
            self._round,
            self._n_sent,
            self._digest,
            tuple(draft.tokens[1:].tolist()),
            () if parents == tuple(range(n)) else parents,
            tuple(tokens[self._n_sent :]),
            q,
            dists,
            draw,
        )

    def _decided(self, draft: Draft, tokens: Sequence[int], result: Result) -> Verdict:
        """Return the verdict: the verifier's, or what the edge draws from the laws that came."""
        if result.token is not None:
            if result.node > len(draft) or result.token >= self.capabilities.n_vocab:
                raise MessageError("it names what there is not")
            return draft.verdict(result.node, result.token)
        dists = []
        for row in result.laws:
            dist = row.distribution(self.capabilities.n_vocab)
            if dist is None:
                raise MessageError("a law is empty")
            dists.append(dist)
        if self.hello.mode == "laws":
            if len(dists) != len(draft.tokens):
                raise MessageError(f"it has {len(dists)} laws for {len(draft.tokens)} rows")
            return self.verifier.verify(draft, dists, self.rng, len(tokens))
        (child,) = draft.children[result.node]
        return draft.verdict(result.node, self.rng.categorical(residual(dists[0], draft.dist(child)).dist))
