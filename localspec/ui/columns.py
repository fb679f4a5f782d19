"""Lines of cells in columns, for terminals."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(lines: Sequence[Sequence[str]], right: Collection[int] | None = None, most: int = 1000) -> list[str]:
    """Return lines with columns of one width, at `most` so many characters, two blanks between them.

    The columns of `right` go to the right, by default all but the first. A line may end before the others. Its last
    cell widens no column, unless that goes to the right.
    """
    n = max(map(len, lines), default=0)
    is_right = [column > 0 if right is None else column in right for column in range(n)]
    widths = [
        min(most, max((len(line[at]) for line in lines if at < len(line) - (not is_right[at])), default=0))
        for at in range(n)
    ]
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, is_right, strict=False)
        ).rstrip()
        for line in lines
    ]
