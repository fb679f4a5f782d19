"""Checks of values that need no model; what is wrong raises UsageError."""

from __future__ import annotations

from localspec.errors import NotFoundError
from localspec.settings.request import LoadSettings, Request, Speculation
from localspec.ui.inputs import MAX_FILE, read_regular


def check(request: Request, settings: LoadSettings) -> None:
    """Raise UsageError for settings that are out of range or do not go together."""
    request.check()
    if request.speculation == Speculation():  # what nobody asked for cannot be wrong
        return
    from localspec.speculation.reproducible import require_reproducible
    from localspec.speculation.resolve import resolve_axes  # late: with numpy it is a third of a command's start

    if settings.reproducible:
        require_reproducible(request.speculation, request.sampling)

    seed = request.sampling.seed
    resolve_axes(
        request.speculation,
        has_draft=settings.draft is not None,
        is_seeded=seed is not None,
        is_greedy=request.sampling.temperature == 0.0,
    )


def text_or_file(name: str, value: str | None, limit: int = MAX_FILE) -> str | None:
    """Return `value`, or for @FILE what the file holds: at most `limit` bytes."""
    if value is None or not value.startswith("@"):
        return value
    try:
        text = read_regular(value[1:], limit, said=f"{name} {value}").decode("utf-8")
    except UnicodeDecodeError:
        reason = f"cannot read {name} {value}: it is not UTF-8 text"
        raise NotFoundError(reason, hint=f"{name} 'the text itself', or {name} @FILE") from None
    return text.replace("\r\n", "\n")
