"""N-gram cache: count what follows each n-gram, draft the most frequent continuation (arXiv 2404.08698, NASD).

The next token is the argmax of the counts of the longest context of n, n-1, .. 1 tokens that is known; a draft is such
look-ups one after another on text and draft. The counts outlive the text they come from: a regenerated answer finds
what the last one said, and with `file` so does the next run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from localspec.engine.draft import Draft, Step
from localspec.engine.protocols import History, Plan, Rows
from localspec.methods import DrafterContext, MethodInfo
from localspec.methods._lookup import Guess, LookupDrafter, chain
from localspec.methods._ngram_file import NgramFile
from localspec.settings.folders import typed_path
from localspec.settings.method_options import Option


class NgramCache(LookupDrafter):
    """Counts continuations of n-grams."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="ngram-cache",
        summary="drafts the tokens that most often followed the last ones, in prompt, answers and earlier runs",
        needs="nothing",
        paper="2404.08698",
        is_lossless=True,
        default_k=4,
        options=(
            Option("n", 3, "tokens of the longest context that is counted", low=1, high=8),
            Option("stop_if_unknown", True, "end the draft at an unknown context; else guess the most frequent token"),
            Option("file", "", "keep generated text in this file, for later runs; bench and race ignore it"),
        ),
        has_own_shape=True,
    )

    def __init__(self, parts: DrafterContext) -> None:
        """Open the file, if one is named; raises LocalspecError where it cannot be used."""
        super().__init__(parts)
        self._sizes = range(1 if self.options["stop_if_unknown"] else 0, int(self.options["n"]) + 1)
        self._after: dict[tuple[int, ...], _Counts] = {}
        path = str(self.options["file"])
        self._file = NgramFile(typed_path(path), parts.n_vocab) if path else None
        self._has_read = False  # what the file holds

    def begin(self, history: History) -> None:
        """Also note the first token of the answer, which no pass commits."""
        super().begin(history)
        if self._file is not None:
            self._file.begin(history.tokens[-1])

    def observe(self, step: Step, rows: Rows) -> None:
        """Also keep what was committed."""
        if self._file is not None:
            self._file.append(step.tokens)

    def learn(self, text: Sequence[int], start: int) -> None:
        """Count what follows every context; first, once, in the texts of earlier runs."""
        if self._file is not None and not self._has_read:
            for earlier in self._file.texts:
                self._count(earlier, 0)
        self._has_read = True
        self._count(text, start)

    def forget(self, length: int) -> int:
        """Forget nothing: the counts are of all that was said."""
        return length

    def grow(self, text: Sequence[int], plan: Plan) -> Draft:
        """Look up one token after another, each after those before it."""
        tail = text[-self._sizes[-1] :]

        def looked_up(tokens: Sequence[int]) -> Guess | None:
            found = self._find([*tail, *tokens])
            return None if found is None else Guess(found.best, found.counts)

        return chain(text[-1], plan, looked_up, self.is_eog)

    def _count(self, text: Sequence[int], start: int) -> None:
        after = self._after
        for at in range(max(start, 1), len(text)):
            token = text[at]
            for n in self._sizes:
                if n > at:
                    break
                context = tuple(text[at - n : at])
                counts = after.get(context)
                if counts is None:
                    counts = after[context] = _Counts(token)
                counts.add(token)

    def _find(self, context: Sequence[int]) -> _Counts | None:
        """Return the counts of the longest suffix of `context` that was followed by something."""
        for n in reversed(self._sizes):
            counts = self._after.get(tuple(context[len(context) - n :])) if n <= len(context) else None
            if counts is not None:
                return counts
        return None


class _Counts:
    """How often each token followed one context; `best` is the most frequent, the latest of equals."""

    __slots__ = ("best", "counts")

    def __init__(self, first: int) -> None:
        self.best = first
        self.counts: dict[int, int] = {first: 0}

    def add(self, token: int) -> None:
        """Count one more."""
        count = self.counts[token] = self.counts.get(token, 0) + 1
        if count >= self.counts[self.best]:
            self.best = token
