"""`run --pretty` indents JSON on standard output and nowhere else."""

from __future__ import annotations

import json

import pytest

from tests.cli.harness import needs_pair, run, run_engine

ONE = {"properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
SCHEMA = json.dumps({"type": "object", **ONE})


@needs_pair
def test_the_answer_is_indented_and_kept_as_it_is() -> None:
    done = run_engine("run", "storyteller", "--schema", SCHEMA, "--pretty", "--temp", "0", "Once")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert done.stdout.decode() == json.dumps(value, indent=2) + "\n"
    conversation = json.loads(run("logs", "--json", "-n", "1").stdout)["conversations"][0]["id"]
    kept = run("logs", "show", conversation, "--json").stdout.decode()
    assert json.dumps(json.dumps(value, separators=(",", ":"))) in kept


@pytest.mark.parametrize("more", [(), ("--schema", "a", "--json"), ("--schema", "a", "--tokens"), ("--regex", "a")])
def test_there_must_be_json_to_indent(more: tuple[str, ...]) -> None:
    done = run("run", "--pretty", *more, "hi")
    assert done.returncode == 2
    assert b"--pretty indents" in done.stderr
