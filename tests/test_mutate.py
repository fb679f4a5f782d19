"""scripts/mutate: what a seed draws, what each operator changes, and a run on a small tree."""

import ast
import json
import subprocess
from pathlib import Path

import mutate
import pytest
from mutations import mutations

ROOT = Path(__file__).parents[1]
CODE = '''
"""The module compares a == b."""

from limits import LOW, HIGH  # 1 == 1

LIMIT: Literal["low"] = 3


class Part:
    size: int = 0


def work(items: list[Literal["x"]], top: int = 2) -> None:
    """Return x[1:] and not y."""
    assert items == []
    first = items[0:top]
    second = first
    if first is None and top < LIMIT:
        raise ValueError(f"{top + 1} no", first, code=2)
    try:
        second.append(items["key"])
    except OSError:
        print(1 if top else "text")
        second.clear()
    while True:
        second.pop()
'''
CHANGES = {
    ("constant", "3", "4"),
    ("constant", "0", "1"),
    ("constant", "'key'", "'key_'"),
    ("order", "first = items[0:top]; second = first", "second = first; first = items[0:top]"),
    ("comparison", "first is None", "first is not None"),
    ("comparison", "top < LIMIT", "top >= LIMIT"),
    ("boundary", "top < LIMIT", "top <= LIMIT"),
    ("and/or", "first is None and top < LIMIT", "first is None or top < LIMIT"),
    ("condition dropped", "first is None and top < LIMIT", "top < LIMIT"),
    ("condition dropped", "first is None and top < LIMIT", "False"),
    ("condition dropped", "top", "True"),
    ("condition negated", "top", "not top"),
    ("argument dropped", "ValueError(f'{top + 1} no', first, code=2)", "ValueError(f'{top + 1} no', code=2)"),
    ("argument dropped", "ValueError(f'{top + 1} no', first, code=2)", "ValueError(f'{top + 1} no', first)"),
    ("exception swallowed", "raise ValueError(f'{top + 1} no', first, code=2)", "pass"),
    ("exception swallowed", "print(1 if top else 'text'); second.clear()", "pass"),
    ("early return", "second.clear()", "return; second.clear()"),
    ("off by one", "0:top", "0 + 1:top"),
    ("off by one", "0:top", "0:top - 1"),
}  # fmt: skip


def test_what_each_operator_does() -> None:
    """Docstrings, annotations, imports, assertions and texts stay."""
    found = mutations(ast.parse(CODE))
    named = {(one.operator, *one.texts()) for one in found}
    assert named >= CHANGES
    assert {operator for operator, *_ in named} == {operator for operator, *_ in CHANGES}
    touched = {one.line for one in found}
    assert not touched & {line for line, text in enumerate(CODE.splitlines(), 1) if '"""' in text or "assert" in text}
    assert not [before for _, before, _ in named if before in ("'low'", "'x'", "'text'", "list[Literal['x']]")]


def test_each_change_makes_other_code() -> None:
    """It parses, the docstrings stay, and no two changes are the same."""
    sources = [mutate.changed(CODE, number) for number in range(len(mutations(ast.parse(CODE))))]
    plain = ast.unparse(ast.parse(CODE))
    assert len({plain, *sources}) == len(sources) + 1
    for source in sources:
        compile(source, "changed", "exec")
        assert source.count('"""') == 4


@pytest.mark.parametrize(
    ("first", "second", "does_matter"),
    [
        ("a = top", "b = top", False),
        ("a = self.x", "self.y = self.x", False),
        ("os.close(top)", "os.remove(items)", False),
        ("print(top)", "print(top)", False),
        ("a = top", "b = a", True),
        ("b = a", "a = top", True),
        ("a = 1", "a = 2", True),
        ("a += 1", "a *= 2", True),
        ("self.x = 1", "a = self.x", True),
        ("items[0] = 1", "a = items", True),
        ("self.x.y = 1", "print(self.x)", True),
        ("items.sort()", "a = items[0]", True),
        ("a = items[0]", "items.clear()", True),
        ("del items[0]", "a = items", True),
    ],
)
def test_statements_change_places_where_one_writes_what_the_other_names(
    first: str, second: str, does_matter: bool
) -> None:
    code = f"import os\n\ndef work(self, a, b, items, top):\n    {first}\n    {second}\n"
    assert ("order" in {one.operator for one in mutations(ast.parse(code))}) is does_matter


def test_a_seed_draws_the_same_lines() -> None:
    """A greater number goes on where a smaller one ended; each line comes once."""
    lines = mutate.lines_of(ROOT, ["localspec/verify", "tui/turns.py"])
    assert {file for file, _ in lines} >= {"localspec/verify/token.py", "tui/turns.py"}
    few, many = mutate.drawn(lines, 5, 10), mutate.drawn(lines, 5, 30)
    assert many[:10] == few == mutate.drawn(lines, 5, 10) != mutate.drawn(lines, 6, 10)
    assert len({(change.file, change.line) for change in many}) == 30


@pytest.mark.parametrize(
    ("file", "nearest"),
    [
        ("models/hub/pulled.py", "tests/hub/test_partial.py"),
        ("localspec/methods/suffix.py", "tests/methods/test_suffix.py"),
        ("localspec/verify/spectr.py", "tests/exact/test_spectr.py"),
        ("localspec/errors.py", "tests/test_errors.py"),
    ],
)
def test_the_nearest_tests_come_first(file: str, nearest: str) -> None:
    found = mutate.tests_of(ROOT, file)
    assert next(iter(found)) == nearest
    assert list(found.values()) == sorted(found.values())


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a tree of one module, whose test does not see the upper bound."""
    files = {
        "localspec/__init__.py": "",
        "localspec/low/__init__.py": "",
        "localspec/low/step.py": "def is_step(n):\n    return 0 < n\n\n\ndef unused(n):\n    return n < 9\n",
        "models/__init__.py": "",
        "models/page.py": "def double(n):\n    return n * 2\n",
        "tui/__init__.py": "",
        "tests/low/test_step.py": (
            "from localspec.low.step import is_step\n\n\ndef test_it():\n    assert is_step(1) and not is_step(0)\n"
        ),
        "tests/models/test_page.py": (
            "from localspec.models.page import double\n\n\ndef test_it():\n    assert double(2) == 4\n"
        ),
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\nmarkers = ["slow: long"]\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    return tmp_path


def test_a_folder_that_is_linked_into_the_package(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mutate.main(["--seed", "1", "-n", "1", "--only", "models"])
    assert "caught, tests/models/test_page.py::test_it |" in capsys.readouterr().out


def test_a_run_tells_what_the_tests_see(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run tries nothing again; a reason that somebody wrote down shows."""
    mutate.main(["--seed", "1", "-n", "2", "--only", "localspec"])
    rows = capsys.readouterr().out
    assert "| localspec/low/step.py:2 |" in rows
    assert "caught, tests/low/test_step.py::test_it |" in rows
    assert "survived, 1 tests |" in rows
    assert "| low | 2 | 1 | 1 | 0 | 0 | 50 % |" in rows
    results = small / "build" / "mutate-1.jsonl"
    records = [json.loads(line) for line in results.read_text().splitlines()]
    assert [record.get("result") for record in records if "key" in record].count("survived") == 1
    for record in records:
        if record.get("result") == "survived":
            record["harmless"] = "no caller"
    results.write_text("".join(json.dumps(record) + "\n" for record in records))
    mutate.main(["--seed", "1", "-n", "2", "--only", "localspec", "--resume", str(results)])
    output = capsys.readouterr()
    assert "harmless: no caller |" in output.out
    assert "| low | 2 | 1 | 0 | 1 | 0 | 100 % |" in output.out
    assert output.err == ""
    with pytest.raises(SystemExit):
        mutate.main(["--seed", "1"])
    assert (small / "localspec/low/step.py").read_text().startswith("def is_step(n):\n    return 0 < n\n")


def a_run(small: Path, module: str, test: str) -> list[str]:
    (small / "localspec/low/step.py").write_text(module)
    (small / "tests/low/test_step.py").write_text(f"import os, time\nfrom localspec.low.step import step\n\n{test}")
    mutate.main(["--seed", "1", "-n", "9", "--only", "localspec/low", "--limit", "1"])
    lines = (small / "build" / "mutate-1.jsonl").read_text().splitlines()
    return [f"{record['result']}, {record['by']}" for record in map(json.loads, lines) if "key" in record]


@pytest.mark.parametrize("waiting", ["pass", "time.sleep(9)"])
def test_a_change_that_never_ends_is_caught_by_time(small: Path, monkeypatch: pytest.MonkeyPatch, waiting: str) -> None:
    """It takes processor time, or none; the same test without the change ends."""
    monkeypatch.setattr("mutate_tests.PATIENCE", 0)
    monkeypatch.setattr("mutate_tests.HANG", 3)
    test = f"def test_it():\n    while step() > 3:\n        {waiting}\n"
    assert a_run(small, "def step():\n    return 3\n", test) == ["caught, time: tests/low/test_step.py::test_it"]


def test_of_equally_near_tests_the_quickest_come_first(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first change teaches that a file takes all the time there is; for the second the other file comes first."""
    (small / "tests/low/test_step.py").unlink()
    (small / "localspec/low/step.py").write_text("def step():\n    return 3\n\n\ndef other():\n    return 4\n")
    imports = "from time import process_time\nfrom localspec.low.step import step, other\n\n\ndef test_it():\n    "
    (small / "tests/low/test_a.py").write_text(f"{imports}while process_time() < 0.3: pass\n")
    (small / "tests/low/test_b.py").write_text(f"{imports}assert (step(), other()) == (3, 4)\n")
    mutate.main(["--seed", "1", "-n", "2", "--only", "localspec/low", "--limit", "0.2"])
    output = capsys.readouterr()
    first, second = output.err.splitlines()
    assert first.endswith("1 of 2 tests, no time for more")
    assert second.endswith("tests/low/test_b.py::test_it")
    assert json.loads((small / "build/mutate-seconds.json").read_text())["tests/low/test_a.py::test_it"] >= 0.2


def test_a_change_that_ends_the_process_is_caught(small: Path) -> None:
    test = "def test_it():\n    if step() != 3:\n        os.abort()\n"
    assert a_run(small, "def step():\n    return 3\n", test) == ["caught, its end: tests/low/test_step.py::test_it"]


def test_tests_that_something_else_kills_tell_nothing(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As where the memory is full; such a change is tried again."""
    test = "def test_it():\n    if step() != 3:\n        os.kill(os.getpid(), 9)\n"
    undecided = "undecided, killed at tests/low/test_step.py::test_it"
    assert a_run(small, "def step():\n    return 3\n", test) == [undecided]
    assert "| low | 1 | 0 | 0 | 0 | 1 |  |" in capsys.readouterr().out
    results = small / "build" / "mutate-1.jsonl"
    (small / "tests/low/test_step.py").write_text(
        "from localspec.low.step import step\ndef test_it(): assert step() == 3"
    )
    mutate.main(["--seed", "1", "-n", "9", "--only", "localspec/low", "--resume", str(results)])
    assert "| low | 1 | 1 | 0 | 0 | 0 | 100 % |" in capsys.readouterr().out


def test_tests_that_hang_without_the_change_tell_nothing(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mutate_tests.HANG", 2)
    (found,) = a_run(small, "def step():\n    return 3\n", "def test_it():\n    time.sleep(9)\n")
    assert found == "undecided, hung at tests/low/test_step.py::test_it, and so without the change"
