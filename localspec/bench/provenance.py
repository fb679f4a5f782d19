"""The origin of a figure: machine, models, versions, options.

The sha256 of model files, kept beside size and time of the file, for a 40 GB one takes a minute to read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from localspec.engine.events import Loaded, ModelFacts
from localspec.errors import NotFoundError

CHUNK = 1 << 22
Wire = dict[str, Any]
CPUINFO, MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")


def machine() -> Wire:
    """Return what is known of this machine without asking anything that could fail."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "arch": platform.machine(),
        "processor": _line(CPUINFO, "model name") or platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory(),
        "python": platform.python_version(),
    }


def provenance(loaded: Loaded, hashes: tuple[str, str | None], options: Wire) -> Wire:
    """Return everything that must be the same for two results to be of one thing, and what may explain a difference.

    `hashes`: the sha256 of target and draft.
    """
    return {
        "machine": machine(),
        "pair": {
            "name": loaded.name,
            "target": _model(loaded.target, hashes[0]),
            "draft": None if loaded.draft is None else _model(loaded.draft, hashes[1]),
        },
        "versions": dict(loaded.versions),
        "n_ctx": loaded.n_ctx,
        "threads": loaded.threads,
        "options": options,
    }


def _model(facts: ModelFacts, sha256: str | None) -> Wire:
    return {**dataclasses.asdict(facts), "devices": list(facts.devices), "sha256": sha256}


def _memory() -> int | None:
    kilobytes = _line(MEMINFO, "MemTotal").partition(" ")[0]
    if kilobytes.isdigit():
        return 1024 * int(kilobytes)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _line(path: Path, key: str) -> str:
    """Return the value of the first "key : value" line, "" without one."""
    try:
        for line in path.read_text(errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if colon and name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return ""


class Hashes:
    """Looks up or computes; `reason` says why nothing could be kept, "" where it was."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.reason = ""

    def sha256(self, path: Path, on_progress: Callable[[float], None] = lambda share: None) -> str:
        """Return the file's hash. Raises NotFoundError where it cannot be read."""
        try:
            status = path.stat()
            key = f"{path}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}"
            kept = self._kept()
            if key in kept:
                return kept[key]
            digest, done = hashlib.sha256(), 0
            with path.open("rb") as file:
                while chunk := file.read(CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
                    on_progress(done / max(1, status.st_size))
        except OSError as error:
            raise NotFoundError(f"cannot read {path}: {error.strerror}", hint="Check the path.") from None
        self._keep({**kept, key: digest.hexdigest()})
        return digest.hexdigest()

    def of_model(self, parts: Sequence[Path], on_progress: Callable[[float], None] = lambda share: None) -> str:
        """Return the hash of a model: its file's, or that of its parts' hashes. Raises NotFoundError."""
        hashes = [self.sha256(part, on_progress) for part in parts]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()

    def _kept(self) -> dict[str, str]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return {str(key): str(value) for key, value in kept.items()} if isinstance(kept, dict) else {}

    def _keep(self, kept: dict[str, str]) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(kept), encoding="utf-8")
        except OSError as error:
            self.reason = error.strerror or str(error)
