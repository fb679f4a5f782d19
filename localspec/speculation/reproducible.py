"""`--reproducible`: the text of plain decoding, bit for bit.

A row's bits depend on how many rows its pass has. So passes have only widths whose rows were measured to equal those of
one row (`session.exact_widths`), and the seed alone decides what is drawn. Drafts are chains: the cache then holds the
text in its order, as after plain decoding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localspec.engine.draft import Step
from localspec.engine.protocols import Controller, DraftBudget, History, Plan, Shape
from localspec.errors import UsageError
from localspec.methods import MethodInfo
from localspec.settings.request import Sampling, Speculation
from localspec.speculation import registered
from localspec.speculation.capabilities import Fitted
from localspec.trees.static import Chain

BRANCH = "branch"  # the option of a method that turns its branches off


def require_reproducible(asked: Speculation, sampling: Sampling) -> None:
    """Raise UsageError for what gives another text than plain decoding."""
    if asked.approximate:
        raise UsageError(
            "--approximate changes the text, so --reproducible excludes it", hint="leave out --approximate"
        )
    if asked.tree != "chain":
        raise UsageError(f"--tree {asked.tree} has branches, and --reproducible takes chains only", hint="--tree chain")
    rule = asked.verify.rstrip(":")
    if rule not in ("auto", "coupled") and not (rule == "match" and sampling.temperature == 0.0):
        raise UsageError(
            f"--verify {rule} draws another text than plain decoding, which --reproducible excludes",
            hint="--verify coupled",
        )
    if any(name == BRANCH and value != "off" for name, value in asked.options):
        raise UsageError("-o branch=on drafts branches, and --reproducible takes chains only", hint="-o branch=off")


def exact(asked: Speculation, sampling: Sampling) -> Speculation:
    """Return what is asked, with noise that the seed decides and without branches. Raises UsageError."""
    require_reproducible(asked, sampling)
    asked = replace(asked, verify="coupled" if asked.verify == "auto" else asked.verify)
    return unbranched(asked)


def unbranched(asked: Speculation) -> Speculation:
    """Return what is asked, without the branches that a method drafts where nobody says otherwise."""
    if asked.method not in registered("method") or any(name == BRANCH for name, _ in asked.options):
        return asked
    has_branches = any(option.name == BRANCH for option in _info(asked.method).options)
    return replace(asked, options=(*asked.options, (BRANCH, "off"))) if has_branches else asked


def fit_widths(fitted: Fitted, asked: Speculation, widths: Sequence[int]) -> Fitted:
    """Return the axes with drafts that fit in passes of `widths` rows, which are 1 to m.

    Raises UsageError for a longer draft that was asked for. A method that has no shorter one decodes plainly.
    """
    axes, most = fitted.axes, widths[-1] - 1
    if axes.shape.nodes == 0 and not axes.is_automatic:
        return fitted
    if most == 0:
        return _plain(fitted, "no pass of several rows gives the bits of one row here, so decoding is plain")
    if asked.k is not None and asked.k > most:
        raise UsageError(
            f"-k {asked.k} needs passes of {asked.k + 1} rows, and up to {widths[-1]} are reproducible here",
            hint=f"-k {most}",
        )
    info = _info(axes.method)
    own: Shape = registered("method")[axes.method].shape(most, axes.options) if info.has_own_shape else Shape(0, 0, 1)
    why = ""
    if info.has_scratch or own.leaves > 1:
        why = "drafts branches, and only chains are reproducible"
    elif own.nodes > most:
        why = f"drafts {own.nodes} tokens at once, and up to {most} are reproducible here"
    if why:
        return _plain(fitted, f"--method {axes.method} {why}, so decoding is plain")
    n = min(axes.shape.nodes, axes.shape.depth, most)
    return replace(fitted, axes=replace(axes, policy=Chain(), shape=Shape(n, n, 1)))


@dataclass(frozen=True, slots=True)
class Narrow:
    """Another controller's plans, in passes of at most `widest` rows."""

    inner: Controller
    widest: int

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Plan as if the cache had room for no wider pass."""
        most = self.widest - 1
        narrow = DraftBudget(budget.depth, min(budget.nodes, most), budget.forced[:most])
        plan = self.inner.plan(history, narrow)
        widths = plan.widths if max(plan.widths, default=0) <= self.widest else ()
        return replace(plan, max_nodes=min(plan.max_nodes, most - len(plan.forced)), widths=widths)

    def observe(self, step: Step, seconds: float) -> None:
        self.inner.observe(step, seconds)


def _plain(fitted: Fitted, why: str) -> Fitted:
    axes = replace(fitted.axes, method="plain", length="fixed", policy=Chain(), shape=Shape(0, 0, 1), is_guarded=False)
    return Fitted(axes, (*fitted.warnings, why))


def _info(method: str) -> MethodInfo:
    info: MethodInfo = registered("method")[method].info
    return info
