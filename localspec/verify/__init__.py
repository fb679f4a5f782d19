"""Acceptance rules: one per file, its formula and its paper on top.

`VERIFIERS` is the register: the name people type, and where the class lives. Each says which draws it is right for
(`accepts`), whether it can judge siblings (`trees`), and whether it is exact (`is_lossless`): the last two are not.
"""

VERIFIERS: dict[str, str] = {
    "token": "localspec.verify.token:TokenVerifier",
    "block": "localspec.verify.block:BlockVerifier",
    "tree": "localspec.verify.tree:TreeVerifier",
    "traversal": "localspec.verify.traversal:TraversalVerifier",
    "coupled": "localspec.verify.coupled:CoupledVerifier",
    "spectr": "localspec.verify.spectr:SpecTrVerifier",
    "match": "localspec.verify.match:MatchVerifier",
    "typical": "localspec.verify.typical:TypicalVerifier",
    "shortcut": "localspec.verify.shortcut:ShortcutVerifier",
}
