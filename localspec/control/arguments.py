"""The part behind the colon of `--length rule:argument`."""

from __future__ import annotations

from localspec.errors import UsageError


def no_argument(rule: str, argument: str) -> None:
    """Refuse an argument."""
    if argument:
        raise UsageError(f"--length {rule} takes no argument, not {argument!r}", hint=f"--length {rule}")


def number(rule: str, argument: str, *, default: float, low: float, high: float) -> float:
    """Return the number that `argument` spells, `default` where there is none; raises UsageError."""
    if not argument:
        return default
    try:
        value = float(argument)
    except ValueError:
        value = high + 1.0
    if not low <= value <= high:
        raise UsageError(
            f"--length {rule}:{argument} is out of range: from {low:g} to {high:g}",
            hint=f"--length {rule}:{default:g}",
        )
    return value
