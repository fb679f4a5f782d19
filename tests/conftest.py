"""What all tests share.

Property tests try the same examples in every run, so that a pass repeats; LOCALSPEC_FUZZ=1 tries new ones. What is
learned of pairs is kept in a folder of the run's own, and not in the cache of whoever runs the tests. Programs that are
tested heed SIGHUP, also where the tests were started by nohup, which lets everything it starts ignore that.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("fuzz" if os.environ.get("LOCALSPEC_FUZZ") else "repeatable")

if "LOCALSPEC_HOME" not in os.environ:
    os.environ["LOCALSPEC_HOME"] = tempfile.mkdtemp(prefix="localspec-tests-")
    atexit.register(shutil.rmtree, os.environ["LOCALSPEC_HOME"], ignore_errors=True)

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
