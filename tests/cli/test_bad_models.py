"""Files that are no model, given to the real program: refused before llama.cpp sees them, and nothing is left behind.

What the reader says of each lie in a header is checked in tests/models; here it is the exit code and the line that a
person gets.
"""

import json
import re
from pathlib import Path

import pytest

from tests.cli.harness import assert_one_line, needs_pair
from tests.cli.sandbox import Sandbox
from tests.integration.gguf_models import random_gguf
from tests.models.gguf_files import model
from tests.models.test_gguf_kinds import OTHER_KINDS
from tests.models.test_gguf_malformed import MALFORMED
from tests.models.test_shards import parts, write


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def _plain(case: str) -> str:
    return re.sub(r"^B\d\d ", "", case)


CRASHING = ["B08 entries 2^63", "B16 alignment 0", "B18 product overflow", "B22 byte token", "weights of integers"]


@pytest.mark.parametrize("case", CRASHING, ids=_plain)
def test_llama_cpp_never_sees_a_header_that_crashes_it(sandbox: Sandbox, case: str) -> None:
    content, text = MALFORMED[case]
    (sandbox.files / "bad.gguf").write_bytes(content)
    done = sandbox.run("run", "-m", "./bad.gguf", "--json", "hi")
    assert " — try: " in assert_one_line(done, 5, "bad.gguf", text)
    assert json.loads(done.stdout)["error"]["kind"] == "integrity"


@pytest.mark.parametrize(
    "case", ["LoRA", "projector by type", "encoder", "unknown architecture", "unknown rope scaling"]
)
def test_a_sound_file_of_another_kind_is_incompatible(sandbox: Sandbox, case: str) -> None:
    make, text = OTHER_KINDS[case]
    make().write(sandbox.files / "other.gguf")
    assert " — try: " in assert_one_line(sandbox.run("show", "./other.gguf"), 6, "other.gguf", text)


def test_a_split_model_with_a_part_missing_is_not_found(sandbox: Sandbox) -> None:
    first = write(sandbox.files, parts())
    first.with_name("m-00003-of-00003.gguf").unlink()
    done = sandbox.run("run", "-m", f"./{first.name}", "hi")
    assert "download" in assert_one_line(done, 3, "m-00003-of-00003.gguf is missing")


def test_what_only_llama_cpp_can_know_is_an_error_too(sandbox: Sandbox) -> None:
    """The header is sound, and the layers that it promises are not there: the engine says so and lives."""
    model().set("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5).write(sandbox.files / "odd.gguf")
    done = sandbox.run("run", "-m", "./odd.gguf", "hi")
    assert " — try: " in assert_one_line(done, 5, "odd.gguf")


def test_weights_that_are_no_numbers_end_the_answer(sandbox: Sandbox) -> None:
    """A header says nothing of them: what comes out of the model does."""
    content = random_gguf().read_bytes()
    (sandbox.files / "nan.gguf").write_bytes(content[:-65536] + b"\xff" * 65536)
    done = sandbox.run("run", "-m", "./nan.gguf", "--raw", "abc")
    assert_one_line(done, 1, "logits that are not numbers", "localspec show --sha256")
    assert done.stdout == b""
    model = str(random_gguf())
    done = sandbox.run("run", "-m", model, "-d", "./nan.gguf", "--method", "draft-model", "--raw", "abc", "-q")
    assert done.returncode == 1
    assert b"the draft: the model produced logits that are not numbers" in done.stderr
    assert b"-d none" in done.stderr


@needs_pair
def test_a_damaged_draft_is_named(sandbox: Sandbox) -> None:
    content, text = MALFORMED["B05 HTML"]
    (sandbox.files / "bad.gguf").write_bytes(content)
    done = sandbox.run("run", "--draft", "./bad.gguf", "hi")
    assert " — try: " in assert_one_line(done, 5, "bad.gguf", text)
