"""`localspec show` as people and programs read it."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.harness import PAIR, assert_one_line, needs_pair, run
from tests.models.gguf_files import model
from tests.models.test_shards import parts, write


@needs_pair
def test_the_bundled_target() -> None:
    done = run("show", "storyteller")
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode()
    for words in ("storyteller", "llama", "Q8_0", "8, ", "4096 tokens", "bos 0 '<|endoftext|>'", "chat template"):
        assert words in text, words
    assert all(len(line) <= 140 for line in text.splitlines())
    facts = text.partition("chat template")[0].splitlines()
    assert all(line[14] == " " != line[15] for line in facts), "no name runs into what it names"


@needs_pair
def test_the_template_of_a_chat_is_no_setting_of_show(tmp_path: Path) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path), "LOCALSPEC_TEMPLATE": "1"}
    assert run("show", "storyteller", env=env).stdout == run("show", "storyteller").stdout


@needs_pair
def test_json_with_hash() -> None:
    shown = json.loads(run("show", "storyteller", "--json", "--sha256").stdout)
    path = PAIR / "target-q8_0.gguf"
    assert shown["bytes"] == path.stat().st_size
    assert shown["sha256"] == {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
    assert shown["kv_bytes_per_token"]["f16"] == 8 * 2 * 64 * 2
    assert len(shown["weights"]["layers"]) == shown["n_layer"] == 8
    assert shown["tokenizer"]["eos"] == {"id": 0, "text": "<|endoftext|>"}
    assert len(shown["tokenizer"]["fingerprint"]) == 64


def test_nothing_from_the_file_reaches_the_terminal_raw(tmp_path: Path) -> None:
    evil = "\x1b]52;c;AAAA\x07\u202e\n[/red]"
    file = model([evil, *(f"w{i}" for i in range(15))]).set("general.name", "str", evil)
    path = file.set("tokenizer.chat_template", "str", evil * 9).write(tmp_path / "m.gguf")
    for args in ([], ["--template"]):
        text = run("show", str(path), *args).stdout.decode()
        assert not [c for c in text if not c.isprintable() and c != "\n"]
        assert "\u202e" not in text
    assert json.loads(run("show", str(path), "--json").stdout)["chat_template"] == evil * 9


def test_a_split_model(tmp_path: Path) -> None:
    first = write(tmp_path, parts())
    shown = json.loads(run("show", str(first.with_name("m-00002-of-00003.gguf")), "--json").stdout)
    assert shown["path"] == str(first)
    assert len(shown["files"]) == 3
    first.with_name("m-00003-of-00003.gguf").unlink()
    assert_one_line(run("show", str(first)), 3, "m-00003-of-00003.gguf is missing", "download")


@needs_pair
def test_of_a_pair_the_target_alone_is_looked_for(tmp_path: Path) -> None:
    """The draft may lie on another machine."""
    target = PAIR / "target-q8_0.gguf"
    done = run("show", f"{target}+{tmp_path}/gone.gguf", "--json")
    assert (done.returncode, json.loads(done.stdout)["path"]) == (0, str(target))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("qwen3-8b", "size           about 5.0 GB, Q4_K_M; also Q6_K 6.7 GB, Q8_0 8.7 GB"),
        ("gemma-3-270m", "size           about 290.0 MB, Q8_0"),
    ],
)
def test_a_model_of_the_catalogue_has_its_other_sizes(name: str, line: str, tmp_path: Path) -> None:
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "LOCALSPEC_HOME": str(tmp_path)}
    assert line in run("show", name, env=env).stdout.decode().splitlines()
