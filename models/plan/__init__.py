"""Placing a pair: which layers, experts and caches go to which device, and where the draft goes, decided jointly.

Pure computation on file headers and a description of the machine. `search.best` is the decision, `memory` and `speed`
are the two models it rests on, `calibration` keeps what was measured of this machine.
"""
