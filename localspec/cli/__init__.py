"""The command line: the only part of localspec that prints, exits and reads the environment."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process and leave with its exit code."""
    try:
        # Not at the top: a Ctrl-C while modules are read deserves no traceback either.
        from localspec.cli.entry import flush, outcome
    except KeyboardInterrupt:
        sys.exit(130)
    code = outcome(sys.argv[1:])
    flush()
    sys.exit(code)
