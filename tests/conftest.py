"""Property tests try the same examples in every run, so that a pass repeats; LOCALSPEC_FUZZ=1 tries new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("fuzz" if os.environ.get("LOCALSPEC_FUZZ") else "repeatable")
