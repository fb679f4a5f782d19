"""How likely a child is the accepted one, before the target has spoken.

For a point mass it is the draft's own probability, as the papers have it: were the draft right, that would be the
chance exactly. For a drawn child it is not: residual rules and coupled noise accept a first child as often as draft
and target agree, however unlikely the token. Measured on the storyteller pair (temperatures 0.3 to 0.8, 1 000
contexts each): with r the token's share in what its earlier siblings left of q,

    a(r, rank) = (0.45 + 0.5 r) 0.6^rank,  rank = 0 for the first child, given that the target refused those before
"""

from __future__ import annotations

from localspec.draft import Draw


def chance(how: Draw, share: float, rank: int) -> float:
    """Return the chance that a child with this `share` and `rank` is accepted once its elder siblings were not."""
    return share if how is Draw.FIXED else (0.45 + 0.5 * share) * 0.6**rank
