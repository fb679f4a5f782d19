"""Whether the machine runs on its battery, where nothing is computed that nobody waits for."""

from __future__ import annotations

from pathlib import Path

SUPPLIES = Path("/sys/class/power_supply")


def on_battery(supplies: Path = SUPPLIES) -> bool:
    """Whether the system says that no mains power comes in (Linux)."""
    try:
        mains = [each for each in supplies.iterdir() if (each / "type").read_text().strip() == "Mains"]
        return bool(mains) and not any((each / "online").read_text().strip() == "1" for each in mains)
    except (OSError, UnicodeDecodeError):
        return False
