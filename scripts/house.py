"""The size and shape of the source, as one table.

  house                 the working tree
  house --at COMMIT     an older commit beside it; repeat the option for more columns
  house --collect       count test cases too, which imports every test

A figure that a commit's layout does not have is a dash. Product files are the Python files of localspec/, models/ and
tui/. Imports against the order are counted with ROOMS of that commit's tests/test_architecture.py. A walk is how many
functions take a parameter of that name, and how many calls hand on what has it, a field too.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("localspec", "models", "tui")
WALKS = ("settings", "request", "values")  # what is handed on most
Function = ast.FunctionDef | ast.AsyncFunctionDef


class House:
    """The source below `root`, parsed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        files = [path for room in PRODUCT for path in sorted((root / room).rglob("*.py"))]
        self.texts = {path.relative_to(root): path.read_text(encoding="utf-8") for path in files}
        self.trees = {path: ast.parse(text) for path, text in self.texts.items()}

    def table(self) -> dict[str, str]:
        """Return the figures by name."""
        lengths = sorted(self._lengths())
        return {
            "Python files directly in localspec/": str(len(list((self.root / "localspec").glob("*.py")))),
            "product files": str(len(self.texts)),
            "product lines": str(sum(len(text.splitlines()) for text in self.texts.values())),
            "of them code": self._share_of_code(),
            "files under 40 lines": str(sum(len(text.splitlines()) < 40 for text in self.texts.values())),
            "longest file": str(max(len(text.splitlines()) for text in self.texts.values())),
            "imports against the order of rooms": _or_dash(self._backward()),
            "module names used twice": str(_repeated(path.stem for path in self.texts if path.stem[:2] != "__")),
            "class names used twice": str(_repeated(self._classes())),
            "function lines p50/p95/max": "/".join(str(_quantile(lengths, share)) for share in (0.5, 0.95, 1.0)),
            **{f"walk of {name}: functions/calls": self._walk(name) for name in WALKS},
            "the same of settings in session": self._walk("settings", "session"),
            "tuned constants": _or_dash(self._constants()),
            "test functions": str(sum(1 for _ in self._tests())),
        }

    def _share_of_code(self) -> str:
        """Return the share of lines that are no docstring, import, comment or blank, in per cent."""
        n = code = 0
        for path, tree in self.trees.items():
            lines = self.texts[path].splitlines()
            others = {at for at, line in enumerate(lines, 1) if not line.strip() or line.lstrip().startswith("#")}
            for node in ast.walk(tree):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    others.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                elif isinstance(node, Function | ast.ClassDef | ast.Module) and ast.get_docstring(node) is not None:
                    others.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
            n, code = n + len(lines), code + len(lines) - len(others)
        return f"{code / max(n, 1):.1%}"

    def _lengths(self) -> Iterator[int]:
        for tree in self.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, Function):
                    yield (node.end_lineno or node.lineno) - node.lineno + 1

    def _classes(self) -> Iterator[str]:
        for tree in self.trees.values():
            yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))

    def _walk(self, name: str, room: str = "") -> str:
        takers = hands = 0
        trees = [tree for path, tree in self.trees.items() if room in ("", _room(path))]
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, Function):
                takers += any(each.arg == name for each in (*node.args.args, *node.args.kwonlyargs))
            elif isinstance(node, ast.Call):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                hands += any(name == getattr(each, "id", getattr(each, "attr", None)) for each in given)
        return f"{takers}/{hands}"

    def _constants(self) -> int | None:
        """Count the assignments of localspec/tuning.py."""
        tree = self.trees.get(Path("localspec/tuning.py"))
        return None if tree is None else sum(isinstance(node, ast.Assign | ast.AnnAssign) for node in tree.body)

    def _tests(self) -> Iterator[str]:
        for path in (self.root / "tests").rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, Function) and node.name.startswith("test_"):
                    yield node.name

    def _rooms(self) -> tuple[str, ...] | None:
        """Return the order of rooms from the bottom up, None where the commit has none."""
        file = self.root / "tests" / "test_architecture.py"
        body = ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else []
        for node in body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS":
                rooms: tuple[str, ...] = ast.literal_eval(node.value)
                return rooms
        return None

    def _backward(self) -> int | None:
        """Count the pairs of a file and a room above it that the file imports from."""
        rooms = self._rooms()
        if rooms is None:
            return None
        level = {room: number for number, room in enumerate(rooms)}
        found = set()
        for path, tree in self.trees.items():
            here = _room(path)
            for there in _imported(tree):
                if there in level and here in level and level[there] > level[here]:
                    found.add((path, there))
        return len(found)


def _room(path: Path) -> str:
    """Return the first name under localspec that a file belongs to."""
    parts = path.with_suffix("").parts
    return parts[1] if parts[0] == "localspec" else parts[0]


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the first name under localspec of every import, those inside functions included."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("localspec."))


def _repeated(names: Iterator[str]) -> int:
    return sum(n > 1 for n in Counter(names).values())


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _or_dash(figure: int | None) -> str:
    return "-" if figure is None else str(figure)


def cases(root: Path) -> str:
    """Return how many cases pytest collects below `root`, a dash where it cannot."""
    with tempfile.TemporaryDirectory() as folder:
        # The package as it is installed: models/ and tui/ are localspec.models and localspec.tui.
        package = Path(folder) / "localspec"
        package.mkdir()
        for entry in [*(root / "localspec").iterdir(), root / "models", root / "tui"]:
            (package / entry.name).symlink_to(entry)
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
        env = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)(?:/\d+)? tests? collected", done.stdout)
    return found[1] if found else "-"


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def figures(root: Path, *, collect: bool) -> dict[str, str]:
    """Return the figures of the source below `root`."""
    table = House(root).table()
    return {**table, "test cases": cases(root)} if collect else table


def rendered(columns: dict[str, dict[str, str]]) -> str:
    """Return the table in Markdown, a column for each commit."""
    names = next(iter(columns.values()))
    rows = [["", *columns], *([name, *(column[name] for column in columns.values())] for name in names)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append(f"| {' | '.join([row[0].ljust(widths[0]), *cells[1:]])} |")
    marks = [f":{'-' * widths[0]}-", *(f"-{'-' * width}:" for width in widths[1:])]
    lines.insert(1, f"|{'|'.join(marks)}|")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", action="append", default=[], metavar="COMMIT", help="a commit to count too")
    parser.add_argument("--collect", action="store_true", help="count test cases, which imports every test")
    asked = parser.parse_args(arguments)
    columns = {}
    for commit in asked.at:
        with checked_out(commit) as tree:
            columns[commit] = figures(tree, collect=asked.collect)
    columns["now"] = figures(ROOT, collect=asked.collect)
    print(rendered(columns))


if __name__ == "__main__":
    main()
