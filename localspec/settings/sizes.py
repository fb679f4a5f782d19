"""Numbers, sizes and durations as people type and read them."""

import re

from localspec.errors import UsageError

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(?:([KMGT])(i?B)?|B)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhd])?", re.IGNORECASE)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
AGES = 10 * 365 * _SECONDS["d"]  # stands for a time without an end
_DIGITS = 18  # more of them are out of any range too, and thousands are no number to Python


def whole(text: str) -> int | None:
    return int(text[:_DIGITS]) if text.isascii() and text.isdigit() else None


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: 1 token, 2 passes; `plural` where that is not the noun with s or es."""
    several = plural or noun + ("es" if noun.endswith("s") else "s")
    return f"{n} {noun if n == 1 else several}"


def count(n: int) -> str:
    return f"{n:,}".replace(",", " ")


def three_digits(value: float) -> str:
    """Return a positive number with three digits that mean something, never as a power of ten: 0 below 0.0001."""
    return f"{value:.3g}" if 1e-4 <= value < 999.5 else f"{value:.0f}"


def size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit in ("B", "kB") else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def read_size(name: str, text: str) -> int:
    """Return the bytes that `text` spells: 24G and 24GiB are 24 x 2^30, as memory is sold; 24GB are 24 x 10^9. Raises
    UsageError that names the option."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{name} {text!r} is not a size", hint=f"{name} 24G")
    number, unit, tail = match.groups()
    base = 1000 if (tail or "").upper() == "B" else 1024
    return int(float(number) * base ** _POWERS[unit.upper()]) if unit else int(float(number))


def read_duration(name: str, text: str) -> float:
    """Return the seconds that `text` spells: 90s, 10m, 2h, 1d, or a number of seconds. Raises UsageError that names the
    option."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{name} {text!r} is not a time", hint=f"{name} 10m")
    return float(match[1]) * _SECONDS[(match[2] or "s").lower()]


def length(text: str) -> int:
    short = text.strip().lower().removesuffix("k")
    return int(short) * (1 if short == text.strip() else 1024)


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
