"""Drafts that cannot be: one line, exit code 2 or 6, on real models, with something to type that works."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli import harness
from tests.cli.harness import assert_one_line, needs_pair
from tests.integration.gguf_models import JAMBA, MAMBA, TINY, random_gguf

SHORT = ("run", "--raw", "--json", "-n", "6", "--temp", "0")


def run(home: Path, *args: str, has_engine: bool = True):
    runs = harness.run_engine if has_engine else harness.run
    return runs(*SHORT, *args, "abc", env={"LOCALSPEC_HOME": str(home)})


def error(done) -> dict[str, object]:
    return json.loads(done.stdout)["error"]


LOOKAHEAD = ["--method", "lookahead"]
EXIT = ["--method", "early-exit"]


@needs_pair
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([*LOOKAHEAD, "-o", "W=0"], ["W=0", "from 1 to 16", "-o W=4"]),
        ([*LOOKAHEAD, "-o", "W=17"], ["W=17", "from 1 to 16"]),
        ([*LOOKAHEAD, "-o", "W=2.5"], ["W=2.5", "from 1 to 16"]),
        ([*LOOKAHEAD, "-o", "N=1"], ["N=1", "from 2 to 8", "-o N=3"]),
        ([*LOOKAHEAD, "-o", "N=9"], ["N=9", "from 2 to 8"]),
        ([*LOOKAHEAD, "-o", "G=0"], ["G=0", "from 1 to 16", "-o G=4"]),
        ([*LOOKAHEAD, "-o", "G=many"], ["G=many", "from 1 to 16"]),
        ([*LOOKAHEAD, "-o", "w=4"], ["'w'", "W, N, G, prompt"]),
        ([*LOOKAHEAD, "-o", "W=16", "-o", "N=8"], ["139 nodes", "at most 127", "-o W=4 -o N=3"]),
        ([*LOOKAHEAD, "-k", "4"], ["sets its own size", "-k"]),
        ([*LOOKAHEAD, "--tree", "static:2"], ["chooses its own tree shape", "--tree"]),
        (["--tree", "static:33"], ["33 leaves", "the most is 32", "--tree static:4,2,2"]),
        (["--tree", "specinfer:6,6"], ["36 leaves", "--tree specinfer:4,2,2"]),
        (
            ["--tree", "spectr:64,drafts=33"],
            ["--tree spectr:64,drafts=33 is out", "from 1 to 32", "--tree spectr:64,drafts=4"],
        ),
        (["--tree", "eagle2:16,top=33"], ["top=33", "from 1 to 32"]),
        (["--tree", "dyspec:128"], ["from 1 to 127", "--tree dyspec:16"]),
        (["--tree", "sequoia:100000"], ["from 1 to 127", "--tree sequoia:16"]),
        (["--tree", "eagle2:0"], ["from 1 to 127"]),
        (["--tree", "static:32,1,1,1"], ["128 nodes", "at most 127"]),
        (["--tree", "static:2", "-k", "9"], ["sets its own size", "-k 9"]),
        ([*EXIT, "-o", "exit=0"], ["exit=0", "from 1"]),
        ([*EXIT, "-o", "exit=-1"], ["exit=-1", "from 1"]),
        ([*EXIT, "-o", "exit=8"], ["exit=8", "8 layers", "-o exit=2"]),
        ([*EXIT, "-o", "exit=99"], ["exit=99", "8 layers"]),
        ([*EXIT, "-o", "skip=8"], ["skip=8", "0 to 7"]),
        ([*EXIT, "-o", "skip=0,1,2,3,4,5,6,7"], ["leaves no layer"]),
        (["--approximate", "--verify", "typical:epsilon=2"], ["epsilon=2", "from 0 to 1"]),
        (["--verify", "typical:epsilon=0.2"], ["--approximate --verify typical:epsilon=0.2"]),
        (["--verify", "spectr:rho=0"], ["rho=0", "from 1"]),
        (["--verify", "block:eps=1"], ["block", "none"]),
    ],
    ids=lambda value: " ".join(value)[:48] if isinstance(value, list) else None,
)
def test_sizes_and_parameters(tmp_path: Path, args: list[str], words: list[str]) -> None:
    """Told before anything loads, but for how many layers a model has."""
    needs_model = EXIT[1] in args and not any(word in ("exit=0", "exit=-1") for word in args)
    done = run(tmp_path, *args, has_engine=needs_model)
    assert_one_line(done, 2, *words)
    assert error(done)["kind"] == "usage"
    assert error(done)["hint"]
    assert not (tmp_path / "cache" / "early-exit").exists()  # nothing was made for it


@needs_pair
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-k", "500"], "-k 500 is limited to 127, which is what one pass takes"),
        (["--tree", "dyspec", "-k", "500"], "-k 500 is limited to 127"),
        (["--ctx", "32", "-k", "40"], "-k 40 is limited to 31, which is what a context of 32 tokens holds"),
        (["--ctx", "32", "--tree", "dyspec:64"], "--tree dyspec:64 is limited to 31 of its 64 nodes"),
        (["--ctx", "32", "--tree", "static:4,2,2,1"], "--tree static:4,2,2,1 is limited to 31 of its 44 nodes"),
        (
            ["--ctx", "32", *LOOKAHEAD, "-o", "W=9", "-o", "N=4"],
            "--method lookahead -o W=9 -o N=4 is limited to 31 of its 38 nodes, which is what a context of 32 tokens",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_gives_way_is_told_as_it_was_asked(tmp_path: Path, args: list[str], said: str) -> None:
    done = run(tmp_path, *args)
    assert done.returncode == 0, done.stderr
    (warning,) = json.loads(done.stdout)["warnings"]
    assert warning["message"].startswith(said)


STATEFUL = {"recurrent": MAMBA, "hybrid": JAMBA}
TREES = (
    ["--method", "suffix", "-o", "branch=on"],
    LOOKAHEAD,
    ["--method", "draft-model", "--tree", "static:2,2"],
    ["--tree", "dyspec:8"],
)
CHAINS = (["--method", "suffix"], ["--method", "prompt-lookup", "-k", "3"], ["-k", "3"])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", STATEFUL)
@pytest.mark.parametrize("args", TREES, ids=" ".join)
def test_a_tree_for_a_target_that_keeps_a_state(tmp_path: Path, kind: str, args: list[str]) -> None:
    """The line says that only chains can be drafted; its hint drafts some."""
    target, draft = random_gguf(STATEFUL[kind]), random_gguf(replace(TINY, layers=1))
    needs_draft = args[0] == "--tree" or "draft-model" in args  # elsewhere a line says that it is not loaded
    pair = f"{target}+{draft}" if needs_draft else str(target)
    done = run(tmp_path, "-m", pair, *args)
    assert_one_line(done, 6, f"{STATEFUL[kind].arch} models cannot verify", "follows one path", "only chains")
    assert error(done)["kind"] == "incompatible"
    method = args[:2] if args[0] == "--method" else []
    again = run(tmp_path, "-m", pair, *method, *shlex.split(str(error(done)["hint"])))
    assert again.returncode == 0, again.stderr


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", STATEFUL)
@pytest.mark.parametrize("args", CHAINS, ids=" ".join)
def test_a_chain_for_a_target_that_keeps_a_state(tmp_path: Path, kind: str, args: list[str]) -> None:
    """It is drafted, by a copy or by a draft model."""
    draft = "none" if "--method" in args else str(random_gguf(replace(TINY, layers=1)))
    done = run(tmp_path, "-m", f"{random_gguf(STATEFUL[kind])}+{draft}", *args)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["warnings"] == []


@pytest.mark.parametrize("kind", STATEFUL)
def test_an_early_exit_of_a_state(tmp_path: Path, kind: str) -> None:
    done = run(tmp_path, "-m", str(random_gguf(STATEFUL[kind])), *EXIT)
    assert_one_line(done, 6, f"{STATEFUL[kind].arch} models keep a state", "no early exit", "--method plain")


@pytest.mark.parametrize("kind", STATEFUL)
def test_a_draft_model_that_keeps_a_state(tmp_path: Path, kind: str) -> None:
    """It drafts chains; a tree is refused in one line."""
    pair = f"{random_gguf(TINY)}+{random_gguf(STATEFUL[kind])}"
    done = run(tmp_path, "-m", pair, "--tree", "static:2,2")
    assert_one_line(done, 6, "the draft model cannot draft", f"{STATEFUL[kind].arch} models", "follows one path")
    assert error(done)["hint"] == "--tree chain"
    for args in ([], ["--method", "draft-model"], ["--method", "prompt-lookup"]):
        done = run(tmp_path, "-m", pair, *args)
        assert done.returncode == 0, done.stderr
    made = json.loads(run(tmp_path, "-m", pair, "--method", "draft-model").stdout)
    assert made["spec"]["drafted"] > 0


def test_models_without_an_early_exit(tmp_path: Path) -> None:
    """What llama.cpp's quantiser would write of them is no model: refused, with the reason, and nothing is written."""
    hybrid, single = random_gguf(JAMBA), random_gguf(replace(TINY, layers=1))
    done = harness.run_engine("early-exit", "tune", str(hybrid), env={"LOCALSPEC_HOME": str(tmp_path)})
    assert_one_line(done, 6, "has no early exit", "a value for each layer (jamba.attention.head_count_kv)")
    assert_one_line(run(tmp_path, "-m", str(single), *EXIT), 6, "has no early exit", "a single layer")
    assert not (tmp_path / "cache" / "early-exit").exists()
