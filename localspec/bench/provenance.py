"""The origin of a figure: machine, models, versions, options."""

from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path
from typing import Any

from localspec.engine.events import Loaded, ModelFacts

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
