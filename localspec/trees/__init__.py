"""Expansion policies: how a drafter's distributions become a tree. One file each, one line here."""

TREES: dict[str, str] = {
    "chain": "localspec.trees.static:Chain",
    "static": "localspec.trees.static:Static",
    "specinfer": "localspec.trees.specinfer:SpecInfer",
    "spectr": "localspec.trees.spectr:SpecTr",
    "sequoia": "localspec.trees.sequoia:Sequoia",
    "dyspec": "localspec.trees.dyspec:DySpec",
    "dyspec-layered": "localspec.trees.dyspec:DySpecLayered",
    "eagle2": "localspec.trees.eagle2:Eagle2",
    "opt-tree": "localspec.trees.opt_tree:OptTree",
    "p-split": "localspec.trees.p_split:PSplit",
}
