"""A number and its noun agree, by one function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localspec.cli.rank import _summary
from localspec.settings.sizes import counted, three_digits

ROOT = Path(__file__).parents[2]
BY_HAND = re.compile(r"""\{['"]e?s['"] (?:if|\*)""")


@pytest.mark.parametrize(
    ("n", "noun", "told"),
    [(1, "pass", "1 pass"), (2, "pass", "2 passes"), (0, "token", "0 tokens"), (1, "token", "1 token")],
)
def test_a_number_and_its_noun(n: int, noun: str, told: str) -> None:
    assert counted(n, noun) == told


def test_an_irregular_noun() -> None:
    assert [counted(n, "leaf", "leaves") for n in (1, 2)] == ["1 leaf", "2 leaves"]


def test_a_search_of_one_pass() -> None:
    found = {"trie_was_kept": True, "scored": 1, "n_items": 1, "passes": 1, "rows": 1, "search_s": 0.5}
    assert _summary(found) == "1 of 1 item scored in 1 pass, 1 row, 0.50 s · trie kept"


def test_no_plural_is_made_by_hand() -> None:
    files = [file for room in ("localspec", "models", "tui") for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 300
    assert [str(file) for file in files if BY_HAND.search(file.read_text())] == []


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.00004, "0"),
        (0.0001, "0.0001"),
        (0.1234, "0.123"),
        (45.67, "45.7"),
        (999.4, "999"),
        (999.6, "1000"),
        (1243.0, "1243"),
        (1e6, "1000000"),
    ],
)
def test_a_number_is_never_a_power_of_ten(value: float, told: str) -> None:
    assert three_digits(value) == told
