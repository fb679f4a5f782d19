"""What an edge and its verifier tell each other: who applies the rule, and what of the draft's law goes up.

    coupled    ids                   the verifier races with the noise of the agreed seed, whatever the draft
    ids        ids                   the verifier draws, and follows its draws through the draft
    scalar-q   ids and q(y)          the verifier tosses the coins; after a rejection the edge draws from (p - q)+
    sparse-q   ids and the laws q    the verifier applies a rule that needs whole laws
    laws       ids                   the verifier sends its laws p back, and the edge applies any rule

Each is exact because the law that is sent is the law that is drawn from, or tested by: laws are `quantised` before
their first use. docs/edge-and-cloud.md has the reasons and the bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.engine.distribution import Distribution
from localspec.engine.protocols import Logits, Verifier
from localspec.engine.sampling import Sampler
from localspec.errors import UsageError
from localspec.remote.messages import quantised
from localspec.settings.request import Sampling
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier

MOST_ENTRIES = 4096  # tokens of a law that is sent
RULES: dict[str, Verifier] = {
    rule.name: rule
    for rule in (
        CoupledVerifier(), MatchVerifier(), TokenVerifier(), BlockVerifier(), TraversalVerifier(), TreeVerifier(),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to share the work. `rules`: those it can apply, none named: all. `has_laws`: laws are sent.

    `trees`: siblings are allowed.
    """

    name: str
    rules: tuple[str, ...] = ()
    has_laws: bool = False
    trees: bool = True

    def require(self, verify: str, sampling: Sampling, n_vocab: int) -> None:
        """Raise UsageError where the mode has no such rule, or where its laws would be too long to send."""
        if self.rules and verify not in self.rules:
            message = f"mode {self.name} of a verifier has no rule {verify}: it has {', '.join(self.rules)}"
            raise UsageError(message, hint=f"--verify {self.rules[0]}")
        entries = sampling.top_k or n_vocab
        if self.has_laws and sampling.temperature > 0.0 and entries > MOST_ENTRIES:
            message = f"mode {self.name} of a verifier sends laws, and without --top-k one may have {entries} tokens"
            raise UsageError(message, hint="--top-k 40")


MODES = {
    mode.name: mode
    for mode in (
        Mode("coupled", ("coupled",)),
        Mode("ids", ("match",)),
        Mode("scalar-q", ("token",), has_laws=True, trees=False),
        Mode("sparse-q", ("token", "block", "traversal", "tree"), has_laws=True),
        Mode("laws", has_laws=True),
    )
}


def mode_of(name: str) -> Mode:
    """Return a mode by its name. Raises UsageError."""
    if name not in MODES:
        raise UsageError(f"a verifier has no mode {name}", hint=f"one of {', '.join(MODES)}")
    return MODES[name]


class QuantisedSampler(Sampler):
    """The sampler of drafts whose laws are sent: what is drawn from is what is sent."""

    def dist(self, logits: Logits, history: Sequence[int] = (), *, with_belief: bool = False) -> Distribution:
        return quantised(super().dist(logits, history, with_belief=with_belief))
