"""What the loaded models allow of the axes: which memories can be rolled back, which can branch, how much a pass takes.

Attention keeps an entry a token, so a rejected draft is forgotten by leaving out its entries. A recurrent or hybrid
model keeps a state that every token has changed. It goes back to an earlier state, or evaluates the kept tokens again
from there. A state is of one path: chains, and no trees.
"""

from dataclasses import dataclass, replace

from localspec.engine.draft import Draw
from localspec.engine.protocols import Capabilities, Shape
from localspec.engine.sampling import Sampler
from localspec.errors import IncompatibleError, UsageError
from localspec.methods import MethodInfo
from localspec.settings.request import Sampling, Speculation
from localspec.speculation import registered
from localspec.speculation.resolve import Axes
from localspec.trees.chain_with_siblings import ChainWithSiblings
from localspec.trees.static import Chain


@dataclass(frozen=True, slots=True)
class ModelCapabilities:
    """A loaded model as far as drafting goes: its architecture, its capabilities, whether its memory is (partly) a
    state.
    """

    architecture: str
    capabilities: Capabilities
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class Fitted:
    """The axes that can be obeyed, with a warning for what had to give way."""

    axes: Axes
    warnings: tuple[str, ...] = ()


def fit_axes(axes: Axes, asked: Speculation, target: ModelCapabilities, draft: ModelCapabilities | None) -> Fitted:
    """Return `axes` within what target and draft model can do.

    Raises IncompatibleError where a method or a tree that was asked for by name is impossible; `auto` decodes plainly.
    """
    axes = replace(axes, longest_copy=min(axes.longest_copy, target.capabilities.max_rows - 1))
    if axes.shape.nodes == 0:
        return Fitted(axes)
    narrowest = min(model.capabilities.max_leaves for model in (target, draft) if model is not None)
    if axes.is_automatic and narrowest < axes.shape.leaves:
        axes = replace(axes, policy=Chain(), shape=replace(axes.shape, leaves=1))
    info: MethodInfo = registered("method")[axes.method].info
    refusal = _refusal(axes, asked, info, target) or (
        _draft_refusal(axes, asked, draft) if draft is not None and info.draft_kind else None
    )
    if refusal is None:
        return _clamped(axes, asked, info, target.capabilities)
    if asked.method != "auto" or asked.tree != "chain":
        raise refusal
    return Fitted(replace(axes, method="plain", shape=Shape(0, 0, 1)), (f"{refusal.message}; decoding is plain",))


def require_tokens(sampling: Sampling, n_vocab: int) -> None:
    """Refuse a bias for a token that the target does not have."""
    for token, bias in sampling.logit_bias:
        if not 0 <= token < n_vocab:
            raise UsageError(
                f"--logit-bias {token}={bias:g}: the target's tokens are 0 to {n_vocab - 1}",
                hint="--logit-bias ID=BIAS",
            )


def draft_temperature(sampling: Sampling, axes: Axes) -> float | None:
    """Return the temperature of the draft: a tree of chosen tokens needs more than a point mass to choose from."""
    is_lone = sampling.temperature == 0.0 and axes.draw is Draw.FIXED and axes.shape.leaves > 1
    return 1.0 if is_lone and sampling.draft_temperature is None else sampling.draft_temperature


def writes_text(axes: Axes, sampler: Sampler) -> bool:
    """Whether a draft model of another vocabulary writes text, with `sampler`: chains of its likeliest tokens.

    Penalties count tokens of the target, so they need probabilities of these.
    """
    is_chain = axes.shape.leaves <= 1 or isinstance(axes.policy, ChainWithSiblings)
    return is_chain and not sampler.needs_history and (axes.draw is Draw.FIXED or sampler.is_greedy)


def _refusal(axes: Axes, asked: Speculation, info: MethodInfo, target: ModelCapabilities) -> IncompatibleError | None:
    """Return why the target cannot verify what is to be drafted, None if it can."""
    if not target.capabilities.can_rollback:
        return IncompatibleError(
            f"{_no_way_back(target)}, so neither trees nor chains can be drafted", hint=_plain(asked)
        )
    if info.has_derived_draft and target.is_stateful:
        return IncompatibleError(
            f"{target.architecture} models keep a state, and no early exit is made of those", hint=_plain(asked)
        )
    if axes.shape.leaves > target.capabilities.max_leaves:
        why = "their state follows one path" if target.is_stateful else "their cache is too narrow"
        fitting = (
            "only chains can"
            if target.capabilities.max_leaves == 1
            else f"at most {target.capabilities.max_leaves} can"
        )
        return IncompatibleError(
            f"{target.architecture} models cannot verify a draft with {axes.shape.leaves} branches, for {why}: "
            f"{fitting} be drafted",
            hint=info.unbranched if info.has_own_shape else "--tree chain",
        )
    return None


def _draft_refusal(axes: Axes, asked: Speculation, draft: ModelCapabilities) -> IncompatibleError | None:
    """Return why the draft model cannot draft: it forgets its own rejected tokens, too."""
    if draft.capabilities.can_rollback:
        if axes.shape.leaves <= draft.capabilities.max_leaves:
            return None
        return IncompatibleError(
            f"the draft model cannot draft {axes.shape.leaves} branches: the state of {draft.architecture} models "
            "follows one path",
            hint="--tree chain",
        )
    hint = "--method suffix" + (" --tree chain" if asked.tree != "chain" else "")
    return IncompatibleError(f"the draft model cannot draft: {_no_way_back(draft)}", hint=hint)


def _no_way_back(held: ModelCapabilities) -> str:
    what = "state" if held.is_stateful else "cache"
    return f"{held.architecture} models keep a {what} that cannot be rolled back to before a rejected token"


def _plain(asked: Speculation) -> str:
    """Return what to type for plain decoding in the place of what was asked."""
    return "--method plain" + (" --tree chain" if asked.tree != "chain" else "") + (" -k 0" if asked.k else "")


def _clamped(axes: Axes, asked: Speculation, info: MethodInfo, capabilities: Capabilities) -> Fitted:
    """Return the axes with no more nodes than a pass takes and the context holds beside the pending token."""
    limit = min(capabilities.max_rows, capabilities.n_ctx) - 1
    wanted = max(axes.shape.nodes, asked.k or 0)  # a policy may have cut -k already
    if wanted <= limit:
        return Fitted(axes)
    shape = replace(axes.shape, nodes=min(axes.shape.nodes, limit), depth=min(axes.shape.depth, limit))
    if asked.k:
        what = f"-k {asked.k}"
    elif info.has_own_shape:
        what = " ".join([f"--method {axes.method}", *(f"-o {name}={value}" for name, value in asked.options)])
    else:
        what = f"--tree {axes.tree}"
    size = f"{limit}" if asked.k else f"{limit} of its {wanted} nodes"
    why = (
        "one pass takes"
        if capabilities.max_rows < capabilities.n_ctx
        else f"a context of {capabilities.n_ctx} tokens holds"
    )
    return Fitted(replace(axes, shape=shape), (f"{what} is limited to {size}, which is what {why}",))
