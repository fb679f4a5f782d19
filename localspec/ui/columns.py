"""Lines of cells in columns, for terminals."""

import re
import textwrap
from collections.abc import Collection, Sequence
from functools import partial

from localspec.sanitize import shortened

_LABEL = re.compile(r"( *)(\S.*? {2,}(?=\S))?")
SHORTEST = 16  # characters that a name keeps, where a line has no room


def aligned(lines: Sequence[Sequence[str]], right: Collection[int] | None = None, most: int = 1000) -> list[str]:
    """Return lines with columns of one width, at `most` so many characters, two blanks between them. The columns of
    `right` go to the right, by default all but the first. A line may end before the others. Its last cell widens no
    column, unless that goes to the right."""
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


def fitted(lines: Sequence[Sequence[str]], room: int, right: Collection[int] | None = None) -> list[str]:
    """Return lines in columns, none longer than `room` where that can be."""
    over = max(map(len, aligned(lines, right)), default=0) - room
    if over <= 0:
        return aligned(lines, right)
    widest = max(SHORTEST, max(len(line[0]) for line in lines) - over)
    shorter = [[shortened(line[0], widest), *line[1:]] for line in lines]
    last = max(map(len, shorter)) - 1
    left = room - max(len(each) for each in aligned([[*line[:last], ""] for line in shorter], right)) - 2
    rows: list[list[str]] = []
    for line in shorter:
        parts = (
            textwrap.wrap(line[last], max(left, SHORTEST), break_on_hyphens=False, break_long_words=False)
            if len(line) > last and last > 0
            else []
        )
        rows.append([*line[:last], *parts[:1]])
        rows += [[""] * last + [part] for part in parts[1:]]
    return aligned(rows, right)


def hung(line: str, room: int) -> str:
    """Return a line wrapped at words where it has no room; it goes on below the text behind its label."""
    if len(line) <= room:
        return line
    label = _LABEL.match(line)
    assert label is not None
    indent = label.end() if label[2] and label.end() <= room // 2 else len(label[1]) + 2
    wrap = partial(textwrap.wrap, break_on_hyphens=False, break_long_words=False, replace_whitespace=False)
    return "\n".join(wrap(line, max(room, SHORTEST), subsequent_indent=" " * indent))
