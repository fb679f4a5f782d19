"""A number and its noun agree, by one function."""

import re
from pathlib import Path

import pytest

from localspec.cli.rank import _summary
from localspec.settings.sizes import counted, three_digits
from tests.recorded import recorded_expressions

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


test_what_is_recorded = recorded_expressions(__file__, three_digits)
