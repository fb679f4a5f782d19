"""The files that a bench was asked for, looked at before anything is measured, written when it is over."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.bench.compare import ResultComparison
from localspec.bench.plots import draw, require_plots
from localspec.bench.result import BenchResult, Wire
from localspec.bench.table import fenced, markdown
from localspec.errors import ResourceError, UsageError
from localspec.settings.folders import typed_path

HEAD = 4096  # bytes of a file: one that is no text has a zero among them


@dataclass(frozen=True, slots=True)
class Outputs:
    """The places of a result; `command` is the command line that made it."""

    json: str | None
    markdown: str | None
    plots: str | None
    command: str

    @property
    def is_json_alone(self) -> bool:
        return self.json == "-"

    def check(self) -> None:
        if self.plots is not None:
            require_plots()
        taken: dict[str, str] = {}
        for option, name in self._files():
            path = typed_path(name)
            _check_place(option, name, path, is_folder=option == "--plots")
            other = taken.setdefault(os.path.realpath(path), option)
            if other != option:
                raise UsageError(f"{other} and {option} are one file: {name}", hint=f"{option} with another name")

    def write(self, result: BenchResult, comparison: ResultComparison | None) -> None:
        if self.json is not None and not self.is_json_alone:
            _write(self.json, json.dumps(wire(result, comparison), indent=1) + "\n")
        if self.markdown is not None:
            against = "" if comparison is None else f"\nAgainst the baseline:\n\n{fenced(comparison.text())}"
            _write(self.markdown, markdown(result, self.command) + against)
        if self.plots is not None:
            draw(result, typed_path(self.plots))

    def _files(self) -> Iterator[tuple[str, str]]:
        for option, name in (("--json", self.json), ("--markdown", self.markdown), ("--plots", self.plots)):
            if name is None or (name == "-" and option == "--json"):
                continue
            if name == "-":
                raise UsageError(f"{option} -: only --json goes to standard output", hint=f"{option} NAME, or --json -")
            yield option, name


def wire(result: BenchResult, comparison: ResultComparison | None) -> Wire:
    return result.to_wire() | ({} if comparison is None else {"comparison": comparison.to_wire()})


def _check_place(option: str, name: str, path: Path, *, is_folder: bool) -> None:
    # Not Path.exists: it raises where a folder on the way may not be entered.
    is_there, is_dir = os.path.exists(path), os.path.isdir(path)
    is_wrong = is_there and not is_dir if is_folder else is_dir
    if is_wrong or not os.access(path if is_there else path.absolute().parent, os.W_OK):
        raise ResourceError(f"cannot write {option} {name}", hint=f"{option} in a folder that can be written")
    if not is_folder and (path.suffix.lower() == ".gguf" or _is_binary(path)):
        lost = "would be written over, and it is no result of a bench"
        raise UsageError(
            f"{option} {name} {lost if is_there else 'is named like a model: it takes the file to write'}",
            hint=f"localspec bench PAIR {option} FILE" + (", or --json -" if option == "--json" else ""),
        )


def _is_binary(path: Path) -> bool:
    """Whether there is a file that is no text: a model, say. Devices and pipes are not read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return b"\0" in file.read(HEAD)
    except OSError:
        return False


def _write(name: str, content: str) -> None:
    # In place, for a name can be a device, a link, or the file that standard output goes to.
    try:
        # A command may hold bytes that are no text: a file's name is any bytes.
        typed_path(name).write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResourceError(f"cannot write {name}: {reason}", hint="free some space, or another folder") from None
