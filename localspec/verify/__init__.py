"""Acceptance rules: one per file, its formula and its paper on top.

`VERIFIERS` is the register: the name people type, and where the class lives. Each says which draws it is right for
(`accepts`), whether it can judge siblings (`trees`), and whether it is exact (`is_lossless`): the last two are not.
"""

VERIFIERS: dict[str, str] = {
    "token": "localspec.verify.token:Token",
    "block": "localspec.verify.block:Block",
    "tree": "localspec.verify.tree:Tree",
    "traversal": "localspec.verify.traversal:Traversal",
    "coupled": "localspec.verify.coupled:Coupled",
    "spectr": "localspec.verify.spectr:SpecTr",
    "match": "localspec.verify.match:Match",
    "typical": "localspec.verify.typical:Typical",
    "shortcut": "localspec.verify.shortcut:Shortcut",
}
