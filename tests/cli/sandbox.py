"""Runs of the real program that may write in one folder, may not burn the processor, and may be without root's rights.

Bad input is refused, and a refusal leaves everything as it was: `Sandbox.run` compares all that lies beside the folder
that is localspec's own. Waiting has no limit here but the harness's, since a busy machine makes everyone wait;
computing has one, which a reader that goes round in circles meets.
"""

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.harness import REAL, ROOT, TIMEOUT, environment

CPU_SECONDS = 5
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


class Sandbox:
    """A machine's folders: `home` and `temp` for what is written, `user` as the person's own, `files` to name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.temp, self.user, self.files = (folder / name for name in ("home", "temp", "user", "files"))
        for one in (self.home, self.temp, self.user, self.files):
            one.mkdir()

    @property
    def env(self) -> dict[str, str]:
        return {
            "LOCALSPEC_HOME": str(self.home),
            "HF_HOME": str(self.home / "hf"),
            "HOME": str(self.user),
            "TMPDIR": str(self.temp),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, *args: str | bytes, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run localspec in `files`, as a user whom permissions bind; check that nothing outside `home` has changed."""
        before = self.outside()
        done = subprocess.run(
            [*REAL, *args], input=b"", capture_output=True, timeout=TIMEOUT, cwd=self.files, preexec_fn=bound,
            env=environment({**self.env, "PYTHONPATH": str(ROOT), **(env or {})}),
        )  # fmt: skip
        assert self.outside() == before
        return done

    def outside(self) -> list[tuple[str, int, int]]:
        """Return path, size and time of change of every file beside localspec's own folder, and the folders."""
        found = []
        for folder, names, files in os.walk(self.folder):
            names[:] = [name for name in names if os.path.join(folder, name) != str(self.home)]
            found += [(os.path.join(folder, name), 0, 0) for name in names]
            for path in (os.path.join(folder, name) for name in files):
                status = os.lstat(path)
                found.append((path, status.st_size, status.st_mtime_ns))
        return sorted(found)


def bound() -> None:
    """Limit the processor time, and take from root (where the tests run as root) the right to every file."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    if sys.platform == "linux":
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
