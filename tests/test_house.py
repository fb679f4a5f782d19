"""scripts/house: the figures of a small source, and of this one."""

from __future__ import annotations

from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
FILES = {
    "localspec/__init__.py": "",
    "localspec/tuning.py": "A = 1\nB: int = 2\n",
    "localspec/low/step.py": "from localspec.high import step\n\n\nclass Step: ...\n",
    "localspec/high/step.py": "class Step: ...\n\n\ndef long(values: int) -> None:\n    pass\n    go(a=it.values)\n",
    "models/__init__.py": "",
    "tui/app.py": "from localspec.high.step import Step\n\n\ndef short() -> Step: ...\n",
    "tests/test_architecture.py": 'ROOMS = ("tuning", "low", "high", "models", "tui")\n',
    "tests/test_one.py": "def test_one() -> None: ...\n",
}


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import house

    return house


def test_figures_of_a_small_source(tmp_path: Path, house: object) -> None:
    """An import from a room above counts; a commit without rooms or tuned constants has dashes there."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = vars(house)["House"](tmp_path).table()
    assert found["Python files directly in localspec/"] == "2"
    assert found["product files"] == "6"
    assert found["of them code"] == "50.0%"  # eight of sixteen lines
    assert found["imports against the order of rooms"] == "1"
    assert found["module names used twice"] == "1"
    assert found["class names used twice"] == "1"
    assert found["function lines p50/p95/max"] == "3/3/3"
    assert found["walk of values: functions/calls"] == "1/1"
    assert found["walk of settings: functions/calls"] == "0/0"
    assert found["tuned constants"] == "2"
    assert found["test functions"] == "1"
    (tmp_path / "tests" / "test_architecture.py").unlink()
    (tmp_path / "localspec" / "tuning.py").unlink()
    older = vars(house)["House"](tmp_path).table()
    assert older["imports against the order of rooms"] == older["tuned constants"] == "-"


def test_this_source(capsys: pytest.CaptureFixture[str], house: object) -> None:
    """A row for each figure, a column for the working tree; no import against the order, no class of two meanings."""
    vars(house)["main"]([])
    head, marks, *rows = capsys.readouterr().out.splitlines()
    assert head.split("|")[2].strip() == "now"
    assert set(marks) <= set("|:-")
    assert all(row.count("|") == 3 for row in rows)
    for name in ("order of rooms", "class names used twice"):
        (row,) = (row for row in rows if name in row)
        assert row.split("|")[2].strip() == "0"
