"""The settings that all tests share.

Property tests try the same examples in every run, so that a pass repeats; LOCALSPEC_FUZZ=1 tries new ones. Acceptance
that was learned of pairs is kept in a folder of the run's own, and not in the cache of whoever runs the tests. Each
worker of pytest-xdist has its own: programs of one home share an engine.

A test marked `thinned(n)` runs one case in n, `--exhaustive` runs all of them.

No test uses a GPU of NVIDIA or AMD: many compare rows bit for bit, which holds for a processor's kernels alone.
LOCALSPEC_TEST_GPU=1 leaves GPUs visible.

Programs under test keep what Python compiled of them, whatever the environment says: it is half of a start. Their
threads share the cores with other tests, so one that waits for the others sleeps, and numpy has one.

Programs under test heed SIGHUP and SIGINT, also where nohup or the background of a shell made the tests ignore both.
"""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("fuzz" if os.environ.get("LOCALSPEC_FUZZ") else "repeatable")

if "LOCALSPEC_HOME" not in os.environ:
    os.environ["LOCALSPEC_HOME"] = tempfile.mkdtemp(prefix="localspec-tests-")
    atexit.register(shutil.rmtree, os.environ["LOCALSPEC_HOME"], ignore_errors=True)
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["LOCALSPEC_HOME"] = os.path.join(os.environ["LOCALSPEC_HOME"], worker)

if not os.environ.get("LOCALSPEC_TEST_GPU"):
    os.environ |= dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"), "")

for name, value in {"GOMP_SPINCOUNT": "0", "OPENBLAS_NUM_THREADS": "1"}.items():
    os.environ.setdefault(name, value)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Places = dict[tuple[str, str], dict[str, int]]  # by test and parameter; by value
KEPT, LEFT_OUT = pytest.StashKey[list[pytest.Item]](), pytest.StashKey[list[pytest.Item]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="Run every case of the tests that are thinned.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that thinned tests skip by default; a case that is named on the command line is kept."""
    is_whole = config.getoption("--exhaustive") or any("[" in argument for argument in config.args)
    places = places_of(items)
    left = [] if is_whole else [item for item in items if is_thinned_out(item, places)]
    config.stash[LEFT_OUT], config.stash[KEPT] = left, [item for item in items if item not in set(left)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = config.stash[KEPT]


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of every later search for garbage: they live as long as the process."""
    gc.freeze()


def places_of(items: list[pytest.Item]) -> Places:
    """Return, for each parameter of each thinned test, the places of its values in the order in which they come."""
    found: Places = defaultdict(dict)
    for item in items:
        for name, value in parameters(item).items():
            places = found[item.nodeid.partition("[")[0], name]
            places.setdefault(value, len(places))
    return found


def parameters(item: pytest.Item) -> dict[str, str]:
    """Return the values of a thinned test's case; of parameters that are listed together the first stands for all."""
    if not isinstance(item, pytest.Function) or not item.get_closest_marker("thinned"):
        return {}
    values = {name: str(value) for name, value in item.callspec.params.items()}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        first, *others = (name.strip() for name in names)
        values[first] = " ".join([values[first], *(values.pop(other) for other in others)])
    return values


def is_thinned_out(item: pytest.Item, places: Places) -> bool:
    """Whether the default run skips this case: thinned(n) keeps those where the places of the values sum to 0 modulo n.

    A sum, as in a Latin square, so that every value runs with every value of another parameter if a third parameter,
    or several together, have n places.
    """
    test = item.nodeid.partition("[")[0]
    total = sum(places[test, name][value] for name, value in parameters(item).items())
    mark = item.get_closest_marker("thinned")
    return mark is not None and total % mark.args[0] != 0
