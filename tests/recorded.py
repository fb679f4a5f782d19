"""Records: text files of what is asked, with what is answered to it, which a test compares as a whole.

    # A line that says what the lines below it show.
    > what is asked
    the answer, on as many lines as it has

`pytest --snapshot-update` writes the answers of now into the files, after a deliberate change.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import LocalspecError

Answer = Callable[[str], Iterable[str]]
LONG = re.compile(r"(.)\1{39,}")


@dataclass(frozen=True, slots=True)
class Section:
    """A title of a file and the lines below it."""

    file: Path
    title: str
    text: str

    def check(self, answer: Answer, request: pytest.FixtureRequest) -> None:
        """Compare with the answers of now, or write these."""
        asked = [line for line in self.text.splitlines() if line.startswith(">")]
        now = "\n".join(line for each in asked for line in (each, *answer(each)))
        if request.config.getoption("update_snapshots"):
            before = f"# {self.title}\n{self.text}\n"
            whole = self.file.read_text(encoding="utf-8")
            assert before in whole
            self.file.write_text(whole.replace(before, f"# {self.title}\n{now}\n"), encoding="utf-8")
        else:
            assert now.splitlines() == self.text.splitlines()


def sections(*files: Path) -> list[Any]:
    """Return the sections of files as the values of a parameter."""
    found = []
    for file in sorted(files):
        parts = (part.partition("\n") for part in f"\n{file.read_text(encoding='utf-8')}".split("\n# ")[1:])
        for title, _, text in parts:
            found.append(pytest.param(Section(file, title, text.rstrip("\n")), id=f"{file.stem}: {title}"))
    return found


def evaluated(names: dict[str, Any], shown: Callable[[Any], str]) -> Answer:
    """Return what answers an expression of Python by its value, or by the line and the hint of an error of ours.

    `names` are known to it, and so are nan and inf. A character that is repeated for long is told once.
    """

    def answer(asked: str) -> Iterable[str]:
        try:
            text = shown(eval(asked.removeprefix("> "), {"nan": math.nan, "inf": math.inf, **names}))
        except LocalspecError as error:
            text = f"! {type(error).__name__}: {error.message}{f' | {error.hint}' if error.hint else ''}"
        except ValueError as error:
            text = f"! {type(error).__name__}: {error}"
        return LONG.sub(lambda run: f"<{run[1]} {len(run[0])} times>", text).splitlines()

    return answer


def recorded_expressions(
    file: str, *known: Any, shown: Callable[[Any], str] = repr, **more: Any
) -> Callable[..., None]:
    """Return the test of the record beside a test module: test_x.py has x.txt.

    Its lines are expressions, in which functions, classes and modules are `known` by their own names.
    """
    path = Path(file)
    answer = evaluated({each.__name__.rpartition(".")[2]: each for each in known} | more, shown)

    @pytest.mark.parametrize("section", sections(path.with_name(path.stem.removeprefix("test_") + ".txt")))
    def test(section: Section, request: pytest.FixtureRequest) -> None:
        section.check(answer, request)

    return test
