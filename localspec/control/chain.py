"""What a chain of guesses is worth: the tokens of a pass over its price, at the best length, and the words for that."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from localspec.settings.sizes import counted

LOSES, LIKELY_LOSES = "does not pay here", "is not expected to pay here"
PAYS, LIKELY_PAYS = "pays here", "is expected to pay here"
MEASURED, ASSUMED, TYPICAL = "measured here", "assumed", "by typical bandwidths"
ALL_THE_SAME = "loads it all the same"
NEXT = f"--draft none loads no draft, -d FILE {ALL_THE_SAME}"


@dataclass(frozen=True, slots=True)
class Worth:
    """A pass with the best number of guesses, `k`, brings `tokens` and takes `price` plain passes.

    `accepted` is the chance that the first guess stands. `how` and `basis` say where that and the price are from.
    `is_timed`: passes of the target were timed here, so this counts for more than a prediction. `plain` are the seconds
    that a plain one took, None where that is not known.
    """

    k: int
    tokens: float
    price: float
    accepted: float
    how: str
    basis: str
    is_timed: bool = False
    plain: float | None = None

    @property
    def gain(self) -> float:
        return self.tokens / self.price

    @property
    def was_loaded(self) -> bool:
        """Whether the pair was loaded here, and passes of both models were timed."""
        return self.basis == MEASURED

    @property
    def is_measured(self) -> bool:
        return self.was_loaded and self.how == MEASURED

    @property
    def loses(self) -> bool:
        """Whether loads here found it slower than no draft: then nothing takes it that was not told to."""
        return self.was_loaded and self.gain < 1.0

    @property
    def in_words(self) -> str:
        is_gain = self.gain >= 1.0
        verdict = (PAYS if is_gain else LOSES) if self.is_measured else LIKELY_PAYS if is_gain else LIKELY_LOSES
        guesses = counted(self.k, "guess")
        is_to_try = not is_gain and not self.was_loaded and self.how == ASSUMED
        return (
            f"{verdict}: a pass with {guesses} brings {self.tokens:.2f} tokens ({100 * self.accepted:.0f} % accepted, "
            f"{self.how}) and takes {self.price:.2f} times as long as a plain one ({self.basis}), "
            f"so {self.gain:.2f} tokens in the time of one{'; its first load measures it' if is_to_try else ''}"
        )

    def to_wire(self) -> dict[str, Any]:
        return {
            "gain": self.gain,
            "guesses": self.k,
            "tokens": self.tokens,
            "price": self.price,
            "price_basis": self.basis,
            "acceptance": {"value": self.accepted, "basis": self.how},
        }


def best_length(
    accepted: Sequence[float], checks: Sequence[float], guess: float, *, at_once: bool = False
) -> tuple[int, float, float]:
    """Return the number of guesses, at least one, of the most tokens for the time; those tokens; and that time.

    `accepted[k - 1]` is the chance that the first k guesses all stand, `checks[k - 1]` the time of a pass of the target
    that checks k guesses, and `guess` that of a pass of the draft, all times in one unit. `at_once`: one such pass
    gives all guesses.
    """
    tokens = accumulate(accepted, initial=1.0)
    next(tokens)
    lengths = (
        (k, n, check + (guess if at_once else k * guess))
        for k, (n, check) in enumerate(zip(tokens, checks, strict=False), start=1)
    )
    return max(lengths, key=lambda length: length[1] / length[2])
