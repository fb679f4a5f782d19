"""Measurements that people run themselves: bench, race, and the losslessness check. `cli` has their commands.

What is measured is an answer given by the worker, as `localspec run` gives it; nothing here computes a figure that is
not folded from its events.
"""
