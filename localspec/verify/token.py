"""Speculative sampling, token by token (Leviathan et al. arXiv 2211.17192, Chen et al. arXiv 2302.01318).

    accept y_i with probability min(1, p_i(y_i) / q_i(y_i)), left to right;
    at the first rejection draw from norm((p_i - q_i)+), after K acceptances from p_{K+1}

It is recursive rejection on a tree whose nodes have one child.
"""

from typing import ClassVar

from localspec.verify.tree import TreeVerifier


class TokenVerifier(TreeVerifier):
    """The classic rule, on chains."""

    name: ClassVar[str] = "token"
    trees: ClassVar[bool] = False
