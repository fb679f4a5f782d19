"""`localspec rank` on the bundled pair: the items that scoring each alone finds, and what is refused."""

import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.ranking.best_first import log_normaliser, rank
from localspec.ranking.items import build
from tests.cli.harness import assert_one_line, needs_pair, run, run_engine
from tests.integration.pair import EXACT, TARGET

pytestmark = needs_pair
OPENING = "Once upon a time there was a"
FIRST = "little", "big", "old", "young", "good", "wise", "happy", "poor", "rich", "king", "queen", "girl", "boy", "dog"
SECOND = "who", "that", "in", "of", "and", "with", "by", "king", "girl", "boy", "dog", "cat", "bird", "tree", "man"
THIRD = "", " of", " was", " named"


def names(n: int) -> list[str]:
    texts = [f" {a} {b}{c}" for a in FIRST for b in SECOND for c in THIRD]
    return random.Random(3).sample(texts, n)


def call(items: Path, *more: str) -> Any:
    return run_engine("rank", "storyteller", "--raw", OPENING, "--items", str(items), *more)


def test_it_finds_what_scoring_each_alone_finds() -> None:
    with Model(TARGET) as model, LlamaBackend(model, EXACT) as backend:
        prompt = model.tokenize(OPENING, add_bos=True)
        paths = [model.tokenize(name) for name in names(500)]
        found = rank(build(paths), backend, prompt, 20, cancel=lambda: False)
        backend.check()
        every = []
        for path in paths:
            total = 0.0
            for n, token in enumerate(path):
                row = backend.prefill([*prompt, *path[:n]], lambda: False).logits(0)
                total += float(row[token]) - log_normaliser(row)
            every.append(total)
    best = sorted(range(len(paths)), key=lambda item: -every[item])[:20]
    assert np.allclose([one.logprob for one in found.found], [every[item] for item in best], rtol=0, atol=0.01)
    assert np.allclose([every[one.item] for one in found.found], [every[item] for item in best], rtol=0, atol=0.01)
    assert found.scored < 500


def test_the_table_and_the_object(tmp_path: Path) -> None:
    items = tmp_path / "items.txt"
    items.write_text("\n".join([*names(50), *names(3)]))
    shown = call(items, "--top", "3")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.decode().split()[:5] == ["log", "p", "p", "share", "item"]
    assert b"3 lines left out, which an earlier line says as well" in shown.stderr
    told = json.loads(call(items, "--top", "3", "--json").stdout)
    assert told["trie_was_kept"]
    assert (told["n_items"], told["n_double"]) == (50, 3)
    ranking = told["ranking"]
    lines = shown.stdout.decode().splitlines()[1:]
    assert [one["item"] for one in ranking] == [line.split("%")[1][2:] for line in lines]
    assert all(0.0 <= one["share"][0] <= one["share"][1] <= 1.0 for one in ranking)
    assert sum(one["share"][0] for one in json.loads(call(items, "--top", "50", "--json").stdout)["ranking"]) > 0.999


@pytest.mark.parametrize(
    ("raw", "code", "said"),
    [
        (None, 3, "No such file"),
        (b"", 2, "has no items"),
        (b"\xff", 2, "not UTF-8"),
        (b"a\n" + b"word " * 5000, 2, "item 2 has"),
    ],
)
def test_bad_items_are_refused_in_a_line(tmp_path: Path, raw: bytes | None, code: int, said: str) -> None:
    items = tmp_path / "items.txt"
    if raw is not None:
        items.write_bytes(raw)
    assert_one_line(call(items), code, said)
    assert json.loads(call(items, "--json").stdout)["error"]["code"] == code


def test_items_are_drawn(tmp_path: Path) -> None:
    """The same seed draws the same; a prompt that ends in the items' space is told of."""
    asked = ["rank", "storyteller", "--raw", OPENING, "--items", " king, queen, girl, little girl"]
    asked += ["--top", "2"]
    drawn = [json.loads(run_engine(*asked, "--draw", "--json", "--seed", str(n)).stdout) for n in (1, 2, 1, 3, 4)]
    assert [one["item"] for one in drawn[0]["ranking"]] == [one["item"] for one in drawn[2]["ranking"]]
    assert len({one["item"] for one in drawn[0]["ranking"]}) == 2
    assert drawn[0]["seed"] == 1
    assert len({tuple(one["item"] for one in each["ranking"]) for each in drawn}) > 1, "others draw others"
    joined = run_engine("rank", "storyteller", "--raw", OPENING + " ", "--items", "king,queen", "--draw")
    assert joined.returncode == 0
    assert b"2 of these items would have other tokens" in joined.stderr
    assert_one_line(run(*asked, "--seed", "1"), 2, "--seed is for --draw")


def test_items_must_be_named() -> None:
    assert_one_line(run("rank", "storyteller", "hi"), 2, "--items")


def test_items_come_from_standard_input_and_from_a_pipe(tmp_path: Path) -> None:
    """Both are read once, here, and needed twice: the engine makes the tokens."""
    text = "\n".join(names(20)).encode()
    done = run_engine("rank", "storyteller", "--raw", OPENING, "--items", "-", "--top", "3", "--json", stdin=text)
    assert done.returncode == 0, done.stderr
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(text,))
    writer.start()
    other = call(tmp_path / "pipe", "--top", "3", "--json")
    writer.join()
    told = [json.loads(each.stdout) for each in (done, other)]
    assert told[0]["n_items"] == 20
    assert told[0]["ranking"] == told[1]["ranking"]
