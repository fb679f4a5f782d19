"""DRY and XTC keep every rule exact: the target's distribution is a mixture that depends on the text.

A rule that tossed one coin for a whole pass would not be: it is planted here, and caught.
"""

from dataclasses import replace

import pytest

from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, RandomSource, TreePolicy, Verifier
from localspec.engine.sampling import Sampler, TargetDistributions
from localspec.settings.request import Sampling
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import OPEN, Setup, answers, assert_exact, target_answers

DRY = replace(OPEN, dry_multiplier=0.9, dry_allowed_length=1, dry_penalty_last_n=-1)
XTC = replace(OPEN, xtc_probability=0.4, xtc_threshold=0.15)
SETTINGS = {
    "DRY": DRY,
    "XTC": XTC,
    "both": replace(DRY, xtc_probability=0.4, xtc_threshold=0.15, temperature=0.7),
    "both, greedy": replace(DRY, xtc_probability=0.4, xtc_threshold=0.15, temperature=0.0),
    "XTC behind filters": replace(XTC, top_k=2, repeat_penalty=1.3, temperature=1.4),
}
RULES: dict[str, tuple[Verifier, TreePolicy, Draw]] = {
    "block": (BlockVerifier(), Chain(), Draw.IID),
    "token": (TokenVerifier(), Chain(), Draw.IID),
    "match": (MatchVerifier(), Static((2, 1)), Draw.FIXED),
    "tree": (TreeVerifier(), Static((2, 1)), Draw.WITHOUT_REPLACEMENT),
    "traversal": (TraversalVerifier(), Static((2, 1)), Draw.WITHOUT_REPLACEMENT),
}


def setup_of(rule: str, sampling: Sampling, seed: int, draft: Sampling | None = None) -> Setup:
    verifier, policy, draw = RULES[rule]
    return Setup(verifier, policy, nodes=4, draw=draw, sampling=sampling, draft_sampling=draft, seed=seed, max_tokens=3)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SETTINGS)
def test_the_answers_have_the_targets_distribution(rule: str, name: str) -> None:
    """Drafted under the same settings, and under none of them: any draft is exact."""
    for seed, draft in ((1, None), (2, OPEN)):
        setup = setup_of(rule, SETTINGS[name], seed, draft)
        assert_exact(answers(setup), target_answers(setup))


def test_the_settings_matter() -> None:
    """The distributions above are not those without DRY and XTC."""
    for sampling in SETTINGS.values():
        setup = setup_of("block", sampling, 1)
        plain = replace(setup, sampling=replace(sampling, dry_multiplier=0.0, xtc_probability=0.0))
        with pytest.raises(AssertionError):
            assert_exact(answers(setup), target_answers(plain))


class OneCoin(MatchVerifier):
    """Tosses XTC's coin once for a whole pass: each token has the right distribution, but not all together."""

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        assert isinstance(dists, TargetDistributions)
        acts = rng.bernoulli(XTC.xtc_probability)
        sampler = Sampler(replace(XTC, xtc_probability=float(acts)))
        return super().verify(draft, TargetDistributions(sampler, dists.rows, draft, dists.tokens), rng, position)


def test_one_coin_for_a_pass_is_caught() -> None:
    setup = replace(setup_of("match", XTC, 1), verifier=OneCoin())
    with pytest.raises(AssertionError):
        assert_exact(answers(setup), target_answers(setup))
