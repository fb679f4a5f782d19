"""Prompt lookup: go on as the text did where its last tokens stood before (Yang et al. arXiv 2304.04487).

For n from the longest to the shortest: find the latest place where the last n tokens stood before, and copy what
followed there. The copy may run into itself, as in LZ77, so that a loop of one token is continued as far as a long one.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from localspec.engine.draft import Draft
from localspec.engine.protocols import Plan, Shape
from localspec.errors import UsageError
from localspec.methods import DrafterContext, MethodInfo
from localspec.methods._lookup import LookupDrafter, chain
from localspec.settings.declaration import Option, Value


class PromptLookup(LookupDrafter):
    """Knows for every n-gram where it was last followed by something."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="prompt-lookup",
        summary="copies the tokens that followed an earlier occurrence of the last ones, in prompt or answer",
        needs="nothing",
        paper="2304.04487",
        is_lossless=True,
        default_k=8,
        options=(
            Option("n", 3, "tokens that are looked up, at most; fewer when they are new", low=1, high=16),
            Option("min_n", 1, "tokens that must have stood there before", low=1, high=16),
        ),
        has_own_shape=True,
    )

    def __init__(self, parts: DrafterContext) -> None:
        super().__init__(parts)
        self._sizes = range(int(self.options["min_n"]), int(self.options["n"]) + 1)
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> where its latest continuation stands

    @classmethod
    def shape(cls, k: int, options: Mapping[str, Value]) -> Shape:
        least, most = int(options["min_n"]), int(options["n"])
        if least > most:
            raise UsageError(f"-o min_n={least} is more than the {most} tokens looked up", hint=f"-o n={least}")
        return super().shape(k, options)

    def learn(self, text: Sequence[int], start: int) -> None:
        """Note what stands before each new token; the last n-gram has no continuation yet, so it never finds itself."""
        for at in range(max(start, 1), len(text)):
            for n in self._sizes:
                if n <= at:
                    self._after[tuple(text[at - n : at])] = at

    def forget(self) -> None:
        """Start over: where an n-gram stood before its latest place is not kept."""
        self._after.clear()

    def grow(self, text: Sequence[int], plan: Plan) -> Draft:
        start = self._source(text)

        def copied(tokens: Sequence[int]) -> int | None:
            if start is None:
                return None
            at = start + len(tokens)
            return text[at] if at < len(text) else tokens[at - len(text)]

        return chain(text[-1], plan, copied, self.is_eog)

    def _source(self, text: Sequence[int]) -> int | None:
        for n in reversed(self._sizes):
            at = self._after.get(tuple(text[-n:]))
            if at is not None:
                return at
        return None
