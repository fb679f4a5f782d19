"""Expansion policies: how a drafter's laws become a tree. One file each, one line here."""

TREES: dict[str, str] = {
    "chain": "localspec.trees.static:Chain",
    "static": "localspec.trees.static:Static",
}
