"""The settings that all tests share.

Property tests try the same examples in every run, so that a pass repeats; LOCALSPEC_FUZZ=1 tries new ones. Acceptance
that was learned of pairs is kept in a folder of the run's own, and not in the cache of whoever runs the tests.

A test marked `thinned(n)` runs one case in n, `--exhaustive` runs all of them.

Programs under test heed SIGHUP and SIGINT, also where nohup or the background of a shell made the tests ignore both.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("fuzz" if os.environ.get("LOCALSPEC_FUZZ") else "repeatable")

if "LOCALSPEC_HOME" not in os.environ:
    os.environ["LOCALSPEC_HOME"] = tempfile.mkdtemp(prefix="localspec-tests-")
    atexit.register(shutil.rmtree, os.environ["LOCALSPEC_HOME"], ignore_errors=True)

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

KEPT, LEFT_OUT = pytest.StashKey[list[pytest.Item]](), pytest.StashKey[list[pytest.Item]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="Run every case of the tests that are thinned.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that thinned tests skip by default; a case that is named on the command line is kept."""
    is_whole = config.getoption("--exhaustive") or any("[" in argument for argument in config.args)
    left = config.stash[LEFT_OUT] = [] if is_whole else [item for item in items if not is_kept(item)]
    config.stash[KEPT] = [item for item in items if is_whole or is_kept(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if is_kept(item)]


def is_kept(item: pytest.Item) -> bool:
    """Whether the default run has this case: of thinned(n), those where the places of its values sum to 0 modulo n.

    A sum, as in a Latin square, so that every value runs with every value of another parameter if a third parameter,
    or several together, have n places.
    """
    marks = list(item.iter_markers("thinned"))
    if not marks or not isinstance(item, pytest.Function):
        return True
    places = dict(item.callspec.indices)
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        for name in names[1:]:
            places.pop(name.strip(), None)  # values that are listed together have one place
    return sum(places.values()) % marks[0].args[0] == 0
