"""The text under way: tokens, the pending one, and the rules that end it. The only mutable text state.

Invariant after every commit: the target's cache holds `tokens[:-1]`; the last token is pending.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from localspec.engine.draft import Draft, Source, Step, Times, Verdict
from localspec.engine.protocols import DraftBudget, Plan
from localspec.engine.text import TextStream

PLAIN = Plan()


class Finish(Enum):
    """Why an answer ended."""

    STOP = "stop"  # an end-of-generation token or a stop string
    LENGTH = "length"  # max_tokens
    CONTEXT = "context"  # the context is full
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the context must know of tokens: which end the text, and their bytes."""

    is_eog: Callable[[int], bool]
    piece: Callable[[int], bytes]


class Context:
    """Tokens of prompt and answer with their limits; `commit` is the only way to grow."""

    def __init__(
        self,
        prompt: list[int],
        vocabulary: Vocabulary,
        *,
        n_ctx: int,
        max_tokens: int | None = None,
        stops: tuple[str, ...] = (),
    ) -> None:
        assert 0 < len(prompt) < n_ctx, "the session refuses prompts that leave no room"
        self.tokens = list(prompt)
        self.prompt_n = len(prompt)
        self.finish: Finish | None = None
        self._vocabulary = vocabulary
        self._n_ctx = n_ctx
        self._max_tokens = max_tokens
        self._text = TextStream(stops)

    @property
    def position(self) -> int:
        return len(self.tokens)

    @property
    def pending(self) -> int:
        return self.tokens[-1]

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_n

    @property
    def budget(self) -> DraftBudget:
        """Draft tokens that may still be committed before the end, and nodes that the cache can take."""
        cells = self._n_ctx - len(self.tokens)
        wanted = cells if self._max_tokens is None else self._max_tokens - self.generated - 1
        return DraftBudget(depth=max(0, min(wanted, cells)), nodes=max(0, cells))

    def commit(self, draft: Draft, verdict: Verdict, times: Times, plan: Plan = PLAIN, replayed: int = 0) -> Step:
        """Append the accepted run and the verdict's own token, cut where a stop rule says so.

        The returned step's last token is the new pending one. The pass evaluated `replayed` tokens once more.
        """
        position = self.position
        run = [int(draft.tokens[node]) for node in verdict.path] + [verdict.token]
        drafted = len(verdict.path) - draft.forced
        assert drafted >= 0, "no rule rejects a forced token"
        sources = [Source.FORCED] * draft.forced + [Source.ACCEPTED] * drafted + [verdict.source]
        text = ""
        for n, token in enumerate(run, start=1):
            text += self._append(token)
            if self.finish is not None:
                run, sources = run[:n], sources[:n]
                break
        nodes = (0, *verdict.path[: len(run) - 1])
        return Step(draft, verdict, tuple(run), tuple(sources), nodes, position, times, plan, text, replayed)

    @property
    def stopping_word(self) -> str:
        """The stop string that ended the text, "" where none did."""
        return self._text.stopping_word

    def interrupt(self) -> None:
        """End the text where it is, unless it has ended."""
        self.finish = self.finish or Finish.INTERRUPTED

    def tail(self) -> str:
        return self._text.finish()

    def _append(self, token: int) -> str:
        self.tokens.append(token)
        if self._vocabulary.is_eog(token):
            self.finish = Finish.STOP
            return ""
        text = self._text.feed(self._vocabulary.piece(token))
        if self._text.stopping_word:
            self.finish = Finish.STOP
        elif self._max_tokens is not None and self.generated >= self._max_tokens:
            self.finish = Finish.LENGTH
        elif len(self.tokens) > self._n_ctx:
            self.finish = Finish.CONTEXT
        return text
