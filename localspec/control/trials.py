"""When to try again what did not pay, what looking at drafts is worth, and how fast things go of late."""

from __future__ import annotations

DISCOUNT = 0.97  # weight of past passes in the rate, a pass later
BACKOFF = (16, 2.0, 256)  # passes to the next trial of what did not pay: at first, growth, at most
ENCOURAGED = 2.0  # passes from a trial that went well to the next
LATELY = 0.9  # weight of past looks, a look later
GUESSED = 4.0  # looks that a guess is worth
CURIOUS = (4, 0.005)  # passes from one look that promises nothing to the next, at least; share of the time for them
SPREE = 8  # looks in a row where the draft model has to read up for the first: one alone says little of a text
MOST = 0.02  # of what is left of an answer: more is not looked for in it


class Trials:
    """When to try again what did not pay: after 16 passes, then ever more seldom."""

    def __init__(self) -> None:
        self.passes = 0
        self._pause = float(BACKOFF[0])
        self._last = 0

    def are_due(self) -> bool:
        """Whether to try now; then the next trial is further off."""
        if self.passes - self._last < self._pause:
            return False
        self._last = self.passes
        self._pause = min(self._pause * BACKOFF[1], BACKOFF[2])
        return True

    def encourage(self) -> None:
        """Let the next one come soon: a trial went well, or costs little just now."""
        self._pause = ENCOURAGED

    def succeed(self) -> None:
        """Begin anew with the first pause."""
        self._last, self._pause = self.passes, float(BACKOFF[0])


class Rate:
    """Tokens per second of late."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self._tokens / self._seconds if self._seconds > 0.0 else 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """Count a pass."""
        self._tokens = DISCOUNT * self._tokens + tokens
        self._seconds = DISCOUNT * self._seconds + seconds


class Looks:
    """What running the draft model was worth of late, in tokens net of time, and when to see that again.

    The mean acceptance does not tell that: where most drafts are cut to nothing and a few are long and sure, looking
    pays although no draft would that is drafted unseen.
    """

    def __init__(self) -> None:
        self._n = 0.0
        self._sum = 0.0
        self._more = 0  # of a spree

    def worth(self, guess: float) -> float:
        """Return the mean of late; `guess` counts as a few looks."""
        return (GUESSED * guess + self._sum) / (GUESSED + self._n)

    def observe(self, promise: float) -> None:
        """Count a look by what the stop rule then expected of the draft."""
        self._n = LATELY * self._n + 1.0
        self._sum = LATELY * self._sum + promise

    def are_due(self, waited: float, each: float, reading: float, left: int) -> bool:
        """Whether to look though it promises nothing, `waited` passes after the draft model was run, in any answer.

        A look takes `each` plain passes, and `reading` so many before the first; `left` passes are to come.
        """
        if self._more and waited == 0:
            self._more -= 1
            return True
        self._more = 0  # what broke it off, the account or something that paid, ended it
        n = SPREE if reading > 0.0 else 1
        price = n * each + reading
        if waited < max(CURIOUS[0], price / CURIOUS[1]) or price > MOST * left:
            return False
        self._more = n - 1
        return True
