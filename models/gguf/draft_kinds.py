"""The words for drafts that a file of their own holds: kinds of heads, and copies of the target."""

EAGLE3, EAGLE1, MTP, MEDUSA, DFLASH, MASKS = "eagle3", "eagle1", "mtp", "medusa", "dflash", "mask-tokens"
KINDS = EAGLE3, EAGLE1, MTP, MEDUSA, DFLASH, MASKS
LOW_BIT = "low-bit"  # no head: a copy of the target in fewer bits, which is found like one (models/low_bit.py)
