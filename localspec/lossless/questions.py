"""Answering what may be asked of a loaded pair beside an answer."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from localspec.engine.constraint import Ahead
from localspec.engine.draft import Draw
from localspec.engine.protocols import Backend, Cancel, DraftBudget
from localspec.engine.repetition import Breakers
from localspec.engine.sampling import Sampler
from localspec.engine.translation import SameTokens, Translation
from localspec.lossless.fork import explain
from localspec.lossless.recorded import DEPTH, WIDTH, ModelDistributions, TriedRule, record, try_rule
from localspec.settings.jobs import DistributionQuestion, ForkQuestion, PairQuestion
from localspec.speculation.resolve import Axes

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom to ask: the models, the prompt's tokens, and how the request is decoded. `draft` None: nothing to load."""

    target: Backend
    draft: Backend | None
    prompt: Sequence[int]
    axes: Axes
    cancel: Cancel
    breakers: Breakers = field(default_factory=dict)  # of DRY
    translation: Translation | None = None  # of a draft with other tokens than the target's


def answer(question: PairQuestion, subject: Subject) -> Wire:
    if isinstance(question, ForkQuestion):
        shape = subject.axes.shape
        fork = explain(
            subject.target,
            subject.prompt,
            (question.plain, question.other),
            question.request.sampling,
            seed=question.seed,
            breakers=subject.breakers,
            shape=(shape.nodes, shape.leaves),
            cancel=subject.cancel,
        )
        return {"fork": None if fork is None else asdict(fork)}
    return _tried(question, subject)


def _tried(question: DistributionQuestion, subject: Subject) -> Wire:
    """Try the rule after every continuation that both models can read; `n_unknown` hold tokens new to the draft."""
    sampling, target, draft = question.request.sampling, subject.target, subject.draft
    n_vocab = target.capabilities.n_vocab
    same = SameTokens(n_vocab, n_vocab)
    judged = ModelDistributions(target, Sampler(sampling, breakers=subject.breakers), same)
    if draft is None:  # anything may draft; these tokens are likely enough to be accepted now and then
        hotter = Sampler(sampling, temperature=2 * sampling.temperature, breakers=subject.breakers)
        drafted = ModelDistributions(target, hotter, same)
    else:
        drafting = Sampler(sampling, temperature=sampling.draft_temperature, breakers=subject.breakers)
        translation = subject.translation or SameTokens(n_vocab, draft.capabilities.n_vocab)
        drafted = ModelDistributions(draft, drafting, translation)
    left = min(target.capabilities.n_ctx, drafted.backend.capabilities.n_ctx) - sum(
        WIDTH**level for level in range(1, DEPTH + 1)
    )
    trials, n_unknown = [], 0
    for i, tokens in enumerate(question.continuations):
        text = [*subject.prompt, *tokens]
        read = drafted.translation.text(text)
        if not len(read):
            n_unknown += 1
            continue
        if max(len(text), len(read)) >= left or subject.cancel():
            continue
        recording = record(text, judged, drafted, width=_width(subject), cancel=subject.cancel)
        trial = try_rule(
            recording,
            _rule(subject.axes, text, is_drawn=draft is not None),
            draws=question.draws,
            alpha=question.alpha,
            seed=question.seed + i * question.draws,
            cancel=subject.cancel,
        )
        trials.append({"position": len(text), **trial.to_wire()})
    return {"trials": trials, "n_unknown": n_unknown}


def _width(subject: Subject) -> int:
    """Return how many tokens of a distribution are followed: fewer where the cache holds few branches."""
    backends = [backend for backend in (subject.target, subject.draft) if backend is not None]
    leaves = min(backend.capabilities.max_leaves for backend in backends)
    return max(width for width in range(1, WIDTH + 1) if width == 1 or width**DEPTH <= leaves)


def _rule(axes: Axes, tokens: Sequence[int], *, is_drawn: bool) -> TriedRule:
    verifier = axes.verifier
    depth = min(DEPTH, axes.shape.depth)
    plan = axes.length_rule(axes.shape).plan(Ahead(tokens), DraftBudget(depth, axes.shape.nodes))
    draw = axes.draw if is_drawn or Draw.FIXED not in verifier.accepts else Draw.FIXED
    return TriedRule(axes.policy, replace(plan, max_depth=min(depth, plan.max_depth), draw=draw), verifier)
