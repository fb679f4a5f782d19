"""`localspec heads`, and a pair whose draft is a head."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.heads.head_file import HeadOrigin, Kind, write_head
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.header import read_header
from tests.cli.harness import assert_one_line, home_of, run_engine
from tests.heads.dflash import BLOCK_SIZE, write_random_dflash
from tests.heads.reference import TARGET, random_weights, storyteller_shape

KINDS: tuple[Kind, ...] = ("eagle3", "eagle1", "mtp", "medusa")


def call(home: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    return run_engine(*args, env=home_of(home))


def write(path: Path, kind: Kind = "eagle3", *, target: str | None = None, accepted: tuple[float, ...] = ()) -> Path:
    """Write a head of random weights for the bundled target."""
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = HeadOrigin(file_fingerprint(TARGET) if target is None else target, 1000, 20, accepted, 0)
    shape = storyteller_shape(kind)
    write_head(path, shape, random_weights(shape), facts, read_header(TARGET))
    return path


def answer(home: Path, pair: str, *args: str) -> dict:
    done = call(home, "run", "-m", pair, "--raw", "Once upon", "-n", "24", "--temp", "0", "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_heads_the_list_names_the_folder(tmp_path: Path) -> None:
    done = call(tmp_path, "heads", "list")
    assert done.returncode == 0
    assert done.stdout.decode() == (f"no heads in {tmp_path}/data/heads; localspec heads train TARGET makes one\n")


def test_list_show_and_rm(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "heads"
    write(folder / "one.gguf", accepted=(0.5, 0.25))
    write(folder / "two.gguf", "mtp")
    (folder / "bad.gguf").write_text("no head")
    done = call(tmp_path, "heads", "list")
    first, second = done.stdout.decode().splitlines()
    assert first.split() == ["one", *first.split()[1:3], "eagle3", "1.75", "tokens", "a", "pass", "of", "2", "guesses"]
    assert second.split()[-1] == "mtp"
    assert b"bad.gguf" in done.stderr
    made = json.loads(call(tmp_path, "heads", "list", "--json").stdout)
    assert [(one["name"], one["kind"], one["accepted"]) for one in made["heads"]] == [
        ("one", "eagle3", [0.5, 0.25]),
        ("two", "mtp", []),
    ]
    shown = call(tmp_path, "heads", "show", "one").stdout.decode()
    assert "reads       the inputs of the layers 2, 4, 7, 192 numbers each\n" in shown
    assert "trained on  1000 tokens, 20 steps\n" in shown
    assert "first 2     25 % accepted\n" in shown
    assert_one_line(call(tmp_path, "heads", "rm", "one"), 11, "one would be removed", "-y removes without asking")
    assert call(tmp_path, "heads", "rm", "-y", "one").stdout == b"removed one\n"
    assert not (folder / "one.gguf").exists()


@pytest.mark.parametrize("args", [("show", "nothing"), ("rm", "nothing"), ("rm", str(TARGET))])
def test_what_is_no_head_is_refused(tmp_path: Path, args: tuple[str, ...]) -> None:
    done = call(tmp_path, "heads", *args)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert b"localspec heads list" in done.stderr
    assert TARGET.exists()


def test_a_model_is_no_head(tmp_path: Path) -> None:
    assert_one_line(call(tmp_path, "heads", "show", str(TARGET)), 6, "holds no draft head", "localspec heads list")


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_drafts_and_the_text_stays(tmp_path: Path, kind: Kind) -> None:
    head = write(tmp_path / "head.gguf", kind)
    pair = f"{TARGET}+{head}"
    plain = answer(tmp_path, pair, "--method", "plain")
    drafted = answer(tmp_path, pair, "--method", kind, "-k", "3")
    tree = answer(tmp_path, pair, "--method", kind, "--tree", "eagle2:8")
    assert plain["text"] == drafted["text"] == tree["text"]
    assert drafted["params"]["method"] == tree["params"]["method"] == kind
    assert drafted["spec"]["drafted"] > 24
    assert answer(tmp_path, pair)["params"]["method"] == kind, "auto drafts with the head"


def test_a_block_drafts_and_the_text_stays(tmp_path: Path) -> None:
    pair = f"{TARGET}+{write_random_dflash(tmp_path / 'head.gguf')}"
    plain = answer(tmp_path, pair, "--method", "plain")
    drafted = answer(tmp_path, pair, "--method", "dflash")
    tree = answer(tmp_path, pair, "--method", "dflash", "--tree", "eagle2:12")
    assert plain["text"] == drafted["text"] == tree["text"] == answer(tmp_path, pair)["text"]
    assert BLOCK_SIZE - 2 < drafted["spec"]["drafted"] / drafted["spec"]["drafting_passes"] <= BLOCK_SIZE - 1


@pytest.mark.parametrize(
    "command",
    [
        ("bench", "--methods", "plain,eagle3:k=2", "--suite", "stories", "--prompts", "1", "-n", "8", "-r", "1"),
        ("race", "Once", "-n", "8", "--seed", "1"),
        ("verify", "--prompts", "1", "-n", "8", "--draws", "200", "--seed", "1"),
        ("plan",),
        ("show",),
    ],
    ids=lambda command: command[0],
)
def test_commands_take_a_pair_with_a_head(tmp_path: Path, command: tuple[str, ...]) -> None:
    head = write(tmp_path / "head.gguf")
    name, *options = command
    done = call(tmp_path, name, str(head) if name == "show" else f"{TARGET}+{head}", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_auto_takes_the_head_that_was_trained_for_this_file(tmp_path: Path) -> None:
    """The better of two; one of another file is left alone."""
    folder = tmp_path / "data" / "heads"
    write(folder / "worse.gguf", accepted=(0.3,))
    write(folder / "better.gguf", "mtp", accepted=(0.6,))
    write(folder / "other.gguf", target="0" * 64, accepted=(0.9,))
    assert answer(tmp_path, f"{TARGET}+auto")["pair"]["draft"]["path"] == str(folder / "better.gguf")


def test_a_head_of_another_file_warns(tmp_path: Path) -> None:
    head = write(tmp_path / "head.gguf", target="0" * 64)
    done = call(tmp_path, "run", "-m", f"{TARGET}+{head}", "--raw", "Once", "-n", "2")
    assert done.returncode == 0
    assert b"the head was trained for another file than target-q8_0.gguf" in done.stderr


def test_a_truncated_head_is_refused(tmp_path: Path) -> None:
    head = write(tmp_path / "head.gguf")
    head.write_bytes(head.read_bytes()[:-1000])
    done = call(tmp_path, "run", "-m", f"{TARGET}+{head}", "x")
    assert_one_line(done, 5, "head.gguf", "")


def test_layers_beyond_the_targets_are_refused(tmp_path: Path) -> None:
    head = tmp_path / "head.gguf"
    shape = replace(storyteller_shape("eagle3"), layers=(2, 4, 8))
    write_head(head, shape, random_weights(shape), HeadOrigin("", 0, 0, (), 0), read_header(TARGET))
    done = call(tmp_path, "run", "-m", f"{TARGET}+{head}", "x")
    assert_one_line(done, 6, "the head reads the layers 2, 4, 8, and the target has the layers 0 to 7", "a head of")
