"""Run a measurement: see `scripts/bench --help`, and `localspec bench` to measure a pair."""

from __future__ import annotations

import sys

from measuring import auto, host, peers, rows, screen, served  # noqa: F401  # each registers its cases
from measuring.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
