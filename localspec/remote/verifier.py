"""The verifier's side: sessions of edges over one target, as a machine of states without a network.

A session is its text and its last round. Whatever is lost on the way, or forgotten here, is found by the base and the
digest of a round: the edge then sends its text again. A round that is asked again has the same Result: the last one is
kept, and the chances of a round come from its number and the session's seed, so that one who forgot it draws the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from localspec.engine.context import Context, Vocabulary
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw, Nodes, Source, Times, Verdict
from localspec.engine.protocols import Backend, Cancel, Clock, Distributions, Logits, RandomSource, Rows
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler, TargetDistributions
from localspec.errors import LocalspecError, PromptTooLongError
from localspec.remote.messages import (
    Error,
    Hello,
    MessageError,
    Prefix,
    Result,
    Resync,
    SentDist,
    ToEdge,
    Verify,
    digest_of,
    quantised,
)
from localspec.remote.modes import RULES, mode_of
from localspec.settings.sizes import counted

MOST_SESSIONS = 64  # that are remembered
WORD = 64  # bits of a seed


class Target(Backend, Protocol):
    """A backend that says what it holds."""

    @property
    def tokens(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Served:
    """What judges a session: the target, the sampler with its constraint, and what ends a text.

    `recall` lets the target hold the longest start of a text that was read before, and is called before it reads one.
    """

    target: Target
    sampler: Sampler
    vocabulary: Vocabulary
    recall: Callable[[Sequence[int]], None] = lambda _tokens: None


def random_of(hello: Hello, number: int) -> RandomSource:
    """Return the source of chance of a round: races depend on the seed alone, all else on the round's number too."""
    return SeededRandom(hello.seed if hello.mode == "coupled" else number << WORD | hello.seed)


@dataclass(frozen=True)
class VerifyingSessions:
    """All sessions over one target. `served` makes what judges one, and raises LocalspecError for what cannot be.

    `peak` returns the largest resident size of the process so far, in bytes.
    """

    served: Callable[[Hello], Served]
    chance: Callable[[Hello, int], RandomSource] = random_of
    clock: Clock = time.perf_counter
    peak: Callable[[], int] = lambda: 0
    _sessions: dict[str, Session] = field(init=False, default_factory=dict)  # the last used is the last

    def answer(self, name: str, hello: Hello, prefixes: Sequence[Prefix], verify: Verify, cancel: Cancel) -> ToEdge:
        """Return the reply to a round of the session `name`, which `hello` opened. Raises Cancelled.

        `prefixes` are those that came since the round before.
        """
        try:
            session = self._session(name, hello)
            for prefix in prefixes:
                session.read(prefix)
            return session.judge(verify, cancel)
        except MessageError as error:
            return Error("usage", str(error), answer=hello.answer)
        except LocalspecError as error:
            return Error(error.kind, error.message, error.hint, hello.answer)

    def forget(self, name: str) -> None:
        self._sessions.pop(name, None)

    def _session(self, name: str, hello: Hello) -> Session:
        session = self._sessions.pop(name, None)
        if session is None:
            session = Session(hello, self.served(hello), self.chance, self.clock, self.peak)
        self._sessions[name] = session
        while len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session


@dataclass
class Session:
    """One answer of one edge. Raises MessageError for what an edge may not ask, and UsageError for a mode."""

    hello: Hello
    served: Served
    chance: Callable[[Hello, int], RandomSource]
    clock: Clock
    peak: Callable[[], int]
    _text: Context | None = None
    _digest = 0
    _last: Result | None = None
    _evaluated = -1  # by the target after the last round: no pass of anybody else came since if it is the same

    def __post_init__(self) -> None:
        self._mode, self._can = mode_of(self.hello.mode), self.served.target.capabilities
        self._mode.require(self.hello.verify, self.hello.sampling, self._can.n_vocab)

    def read(self, prefix: Prefix) -> None:
        """Take the text from a position on as the edge has it. One that does not fit is found by the next round."""
        before = [] if self._text is None else self._text.tokens[: prefix.base]
        if len(before) < prefix.base:
            return
        tokens = [*before, *prefix.ids]
        self._known(prefix.ids)
        if len(tokens) >= self._can.n_ctx:
            message = f"the text has {len(tokens)} tokens, and the context of the verifier {self._can.n_ctx}"
            raise PromptTooLongError(message, hint="a shorter text, or on that machine: localspec serve --ctx N")
        self._text, self._evaluated, self._digest = None, -1, digest_of(tokens)
        if tokens:
            n = min(self.hello.prompt_n or len(tokens), len(tokens))
            self._text = Context(
                tokens[:n],
                self.served.vocabulary,
                n_ctx=self._can.n_ctx,
                max_tokens=self.hello.max_tokens,
                stops=self.hello.stops,
            )
            self._append(tokens[n:])

    def judge(self, verify: Verify, cancel: Cancel) -> Result | Resync | Error:
        """Return the reply to a round. One that was judged already is not judged again."""
        if self._last is not None and verify.round <= self._last.round:
            return self._last if verify.round == self._last.round else Result(verify.round, 0, None, 0)
        text = self._text
        if text is None or verify.base != len(text.tokens) or verify.digest != self._digest:
            return Resync(0 if text is None else len(text.tokens), self._digest)
        began, base = self.clock(), len(text.tokens)
        draft = self._draft(text, verify)
        self._append(verify.committed)
        with self._undone():
            result = self._judged(text, draft, verify, cancel)
        self._evaluated = self.served.target.evaluated
        self._digest = digest_of(text.tokens[base:], self._digest)
        micros = int(1e6 * (self.clock() - began))
        finish = "" if text.finish is None else text.finish.value
        peak = self.peak() if finish else 0
        self._last = Result(verify.round, result[0], result[1], len(text.tokens), micros, finish, result[2], peak)
        return self._last

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Where a round fails, the target's state is not relied on again."""
        try:
            yield
        except BaseException:
            self._evaluated = -1
            raise

    def _known(self, ids: Sequence[int]) -> None:
        if ids and max(ids) >= self._can.n_vocab:
            raise MessageError(f"there is no token {max(ids)}: the vocabulary has {self._can.n_vocab}")

    def _draft(self, text: Context, verify: Verify) -> Draft:
        self._known(verify.draft)
        self._known(verify.committed)
        parents, n = verify.tree(), len(verify.draft)
        pending = verify.committed[-1] if verify.committed else text.tokens[-1]
        q: list[Distribution | None] = [row.distribution(self._can.n_vocab) for row in verify.laws] or [None] * n
        drawn = Draw(verify.draw) if verify.draw in [draw.value for draw in Draw] else Draw.FIXED
        draft = Draft.of((pending, *verify.draft), parents, (None, *q), drawn)
        if n + 1 > self._can.max_rows or (n and not self._can.can_rollback):
            raise MessageError(
                f"a draft of {counted(n, 'token')} is too long: the verifier takes {self._can.max_rows - 1}"
            )
        if draft.n_leaves > self._can.max_leaves or not (self._mode.trees or draft.is_chain):
            raise MessageError(f"a draft of {draft.n_leaves} leaves is too wide")
        if len(text.tokens) + len(verify.committed) + n > self._can.n_ctx:
            raise MessageError("the draft does not fit the context")
        if any(dist is not None and dist.prob(token) <= 0.0 for token, dist in zip(verify.draft, q, strict=True)):
            raise MessageError("a token was not drawn from its law")
        if self.hello.mode == "scalar-q" and not (n == len(verify.chances()) and all(verify.chances())):
            raise MessageError("a draft has no probability for each of its tokens")
        return draft

    def _append(self, tokens: Sequence[int]) -> None:
        assert self._text is not None
        for token in tokens:
            self._text.commit(Draft.root(self._text.pending), Verdict((), token, Source.PLAIN), Times())

    def _judged(
        self, text: Context, draft: Draft, verify: Verify, cancel: Cancel
    ) -> tuple[int, int | None, tuple[SentDist, ...]]:
        """Return the node up to which a draft stands, the token after it or None, and the laws that go back."""
        n, rng = len(text.tokens), self.chance(self.hello, verify.round)
        rows, before = self._rows(text.tokens, draft, cancel)
        dists: Distributions = TargetDistributions(self.served.sampler, rows, draft, text.tokens)
        nodes: Nodes = (0,)
        node, token = 0, None
        sent: tuple[SentDist, ...] = ()
        if self.hello.mode == "laws":
            sent = tuple(SentDist.of(quantised(dists[node])) for node in range(len(draft.tokens)))
        elif self.hello.mode == "scalar-q":
            node, p = _coins(draft, (1.0, *verify.chances()), dists, rng)
            if not draft.children[node]:
                token = rng.categorical(p)
            else:
                sent, nodes = (SentDist.of(p),), (0, *draft.verdict(node, 0).path)
                self._append([int(draft.tokens[each]) for each in nodes[1:]])
        else:
            verdict = RULES[self.hello.verify].verify(draft, dists, rng, n)
            node, token = (verdict.path or (0,))[-1], verdict.token
        if token is not None:
            nodes = text.commit(draft, draft.verdict(node, token), Times()).kept
        if before is not None:
            self.served.target.keep((*range(before), *(before + each for each in nodes)))
        return node, token, sent

    def _rows(self, tokens: list[int], draft: Draft, cancel: Cancel) -> tuple[Rows, int | None]:
        """Evaluate a draft, and in one decode with it what the cache lacks of a text that it has else.

        Return the draft's rows with how many nodes come before it; None: the prompt's last row, which is no node.
        """
        target, n = self.served.target, len(tokens)
        is_ours = target.evaluated == self._evaluated and not target.to_replay
        is_ours = is_ours and list(target.tokens) == tokens[: target.length]  # a state put back is no pass
        lacks = n - target.length
        if not is_ours or not 0 < lacks <= self._can.max_rows - len(draft):
            is_alone = len(draft) == 0
            if n == 1 and not is_alone:
                raise MessageError("a text of one token has no draft yet")
            read = tokens if is_alone else tokens[:-1]
            self.served.recall(read)
            rows = target.prefill(read, cancel)
            if is_alone:
                return rows, None
            lacks = 1
        before = lacks - 1
        nodes = np.concatenate([np.asarray(tokens[n - lacks : -1], np.int32), draft.tokens])
        parents = np.concatenate([np.arange(-1, before - 1, dtype=np.int32), draft.parents + np.int32(before)])
        outputs = np.arange(len(nodes)) >= before
        return Behind(target.extend(nodes, parents, outputs), before), before


@dataclass(frozen=True, slots=True)
class Behind:
    """The rows of a draft behind other nodes of its pass."""

    rows: Rows
    before: int

    def logits(self, node: int) -> Logits:
        return self.rows.logits(self.before + node)


def _coins(draft: Draft, chances: Sequence[float], dists: Distributions, rng: RandomSource) -> tuple[int, Distribution]:
    """Toss the coins of the token rule: return the last accepted node and the quantised law of its row."""
    node = 0
    while True:
        p = quantised(dists[node])
        below = draft.children[node]
        if not below or not rng.bernoulli(p.prob(int(draft.tokens[below[0]])) / chances[below[0]]):
            return node, p
        node = below[0]
