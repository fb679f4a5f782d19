"""Drafts that cannot be: one line, exit code 2 or 6, on real models, with something to type that works."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli import harness
from tests.cli.harness import assert_one_line
from tests.integration.gguf_models import JAMBA, MAMBA, TINY, random_gguf

SHORT = ("run", "--raw", "--json", "-n", "6", "--temp", "0")


def run(home: Path, *args: str, has_engine: bool = True):
    runs = harness.run_engine if has_engine else harness.run
    return runs(*SHORT, *args, "abc", env=harness.home_of(home))


def error(done) -> dict[str, object]:
    return json.loads(done.stdout)["error"]


LOOKAHEAD = ["--method", "lookahead"]
EXIT = ["--method", "early-exit"]


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
