"""Prompts and methods as people name them: what comes with the package, what a file may look like, what is refused."""

import contextlib
import gzip
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.contenders import parse_contenders, without_size
from localspec.bench.suites import SAMPLES, Prompt, Suite, choose, load_suite
from localspec.errors import NotFoundError, UsageError
from tests.recorded import recorded_expressions


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_ship_with_the_package(name: str) -> None:
    suite = load_suite(name)
    assert len(suite.prompts) == 20
    assert len({prompt.text for prompt in suite.prompts}) == 20
    assert suite.is_chat == SAMPLES[name][1]
    assert load_suite(name, is_chat=not suite.is_chat).is_chat != suite.is_chat


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_by_its_own_columns(tmp_path: Path, packed: bool) -> None:
    lines = (
        '{"task_id": "a/1", "prompt": "one"}\n\n{"question": "two", "category": "x"}\n{"turns": ["three", "four"]}\n'
    )
    path = tmp_path / ("p.jsonl.gz" if packed else "p.jsonl")
    path.write_bytes(gzip.compress(lines.encode()) if packed else lines.encode())
    suite = load_suite(str(path))
    assert suite.prompts == (Prompt("a/1", "one"), Prompt("3", "two", "x"), Prompt("4", "three"))
    assert not suite.is_chat


def test_a_column_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "no", "mine": "yes"}\n')
    assert load_suite(str(path), "mine").prompts[0].text == "yes"
    with pytest.raises(NotFoundError, match=r"p.jsonl:1 has no column 'yours': it has prompt, mine"):
        load_suite(str(path), "yours")


BAD = {
    "not JSONL": (b"Once upon a time\n", UsageError, "bad.jsonl:1 is not JSON: the file is not JSONL"),
    "a list": (b"[1, 2]\n", UsageError, "is no JSON object"),
    "torn": (b'{"prompt": "a"}\n{"prompt": "b\n', UsageError, "bad.jsonl:2 is not JSON"),
    "no column": (b'{"a": "b"}\n', NotFoundError, "has no column prompt or question"),
    "no text": (b'{"prompt": 5}\n', UsageError, "column 'prompt' holds no text"),
    "blank": (b'{"prompt": "  "}\n', UsageError, "holds no text"),
    "no turns": (b'{"turns": []}\n', UsageError, "holds no text"),
    "empty": (b"", UsageError, "there is no prompt in it"),
    "blank lines": (b"\n \n", UsageError, "there is no prompt in it"),
    "binary": (b"\xff\xfe\x00", UsageError, "is not UTF-8 text"),
    "deep": (b"[" * 100_000, UsageError, "is not JSON"),
}


def test_a_line_ends_where_json_says_so(tmp_path: Path) -> None:
    """Other separators of lines may stand in a JSON string as they are."""
    path = tmp_path / "p.jsonl"
    path.write_bytes('{"prompt": "a\u2028b\u0085c"}\r\n{"prompt": "d"}\n'.encode())
    assert [one.text for one in load_suite(str(path)).prompts] == ["a\u2028b\u0085c", "d"]


@pytest.mark.parametrize("case", BAD)
def test_files_that_are_no_suite(tmp_path: Path, case: str) -> None:
    content, error, words = BAD[case]
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(error) as raised:
        load_suite(str(path))
    assert words in raised.value.message
    assert raised.value.hint


def test_names_and_places_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as raised:
        load_suite("storys")
    assert raised.value.hint == "--suite stories"
    for name in ("nothing/there.jsonl", str(tmp_path) + "/", "a\0b.jsonl"):
        with pytest.raises(NotFoundError):
            load_suite(name)
    broken = tmp_path / "x.jsonl.gz"
    broken.write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="not a whole gzip file"):
        load_suite(str(broken))
    broken.write_bytes(gzip.compress(b'{"prompt": "a"}\n' * 1000)[:40])
    with pytest.raises(UsageError, match="not a whole gzip file"):
        load_suite(str(broken))


@given(st.binary(max_size=200))
def test_no_file_is_a_traceback(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        path.write_bytes(content)
        with contextlib.suppress(UsageError, NotFoundError):
            assert load_suite(str(path)).prompts


@given(st.integers(1, 50), st.integers(1, 60))
def test_a_choice_is_spread_over_the_suite(total: int, n: int) -> None:
    suite = Suite("s", tuple(Prompt(str(i), f"p{i}") for i in range(total)), False)
    ids = [int(prompt.id) for prompt in choose(suite, n).prompts]
    assert len(ids) == min(n, total)
    assert ids == sorted(set(ids))
    assert ids[0] == 0
    assert max((b - a for a, b in itertools.pairwise(ids)), default=1) <= -(-total // min(n, total))


def test_methods_as_people_write_them() -> None:
    text = "auto,draft-model:k=4,suffix,static:4,2,2,dyspec:16,draft-model:k=8:verify=coupled:draft-temp=0.6"
    found = {one.name: one for one in parse_contenders(text, has_draft=True)}
    assert next(iter(found)) == "plain"
    assert found["auto"].speculation.method == "auto"
    assert found["draft-model:k=4"].speculation.k == 4
    assert found["static:4,2,2"].speculation.tree == "static:4,2,2"
    assert (found["dyspec:16"].speculation.method, found["dyspec:16"].speculation.tree) == ("draft-model", "dyspec:16")
    last = found["draft-model:k=8:verify=coupled:draft-temp=0.6"]
    assert (last.speculation.k, last.speculation.verify, last.draft_temperature) == (8, "coupled", 0.6)
    assert len(found) == 7


def test_more_of_the_grammar() -> None:
    """A method's draft length after its colon, options with commas, lists by blanks, options of methods."""
    names = [one.name for one in parse_contenders("draft-model:4 dyspec:16,depth=4 plain", has_draft=True)]
    assert names == ["plain", "draft-model:4", "dyspec:16,depth=4"]
    (_, one) = parse_contenders("draft-model:length=confidence:0.4:k=6", has_draft=True)
    assert (one.speculation.length, one.speculation.k) == ("confidence:0.4", 6)


def test_budgets_multiply_what_has_no_size() -> None:
    names = [
        one.name
        for one in parse_contenders("plain,auto,dyspec,dyspec:8,suffix,draft-model:k=2", (4, 16), has_draft=True)
    ]
    assert names == [
        "plain", "auto", "dyspec:k=4", "dyspec:k=16", "dyspec:8", "suffix:k=4", "suffix:k=16", "draft-model:k=2",
    ]  # fmt: skip


def test_budgets_leave_alone_what_has_a_size_of_its_own() -> None:
    names = [one.name for one in parse_contenders("lookahead,static:2,2,draft-model", (4,), has_draft=True)]
    assert names == ["plain", "lookahead", "static:2,2", "draft-model:k=4"]


@pytest.mark.parametrize(("text", "has_draft"), [("plain,auto", True), ("draft-model:k=2", True), ("lookahead", False)])
def test_budgets_that_nothing_takes_are_refused(text: str, has_draft: bool) -> None:
    with pytest.raises(UsageError, match="--budgets reaches no method") as raised:
        parse_contenders(text, (4, 8), has_draft=has_draft)
    methods = raised.value.hint.split()[1]
    assert parse_contenders(methods, (4,), has_draft=has_draft)


def test_a_pair_without_a_draft_has_none_to_measure() -> None:
    with pytest.raises(UsageError, match="needs a draft model"):
        parse_contenders("dyspec:16", has_draft=False)


def test_the_sources_of_the_samples_are_told() -> None:
    from importlib.resources import files

    text = (files("localspec.bench") / "samples" / "SOURCES.md").read_text()
    assert all(f"`{name}.jsonl`" in text for name in SAMPLES)
    for name in SAMPLES:
        for line in (files("localspec.bench") / "samples" / f"{name}.jsonl").read_text().splitlines():
            json.loads(line)


test_what_is_recorded = recorded_expressions(__file__, parse_contenders, without_size)
