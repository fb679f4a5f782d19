"""Acceptance rules: one per file, its formula and its paper on top.

Each class says its `name`, the draws it is right for (`accepts`), whether it can judge siblings (`trees`), and whether
it is exact (`is_lossless`): `typical` is not.
"""
