"""`localspec bench`, `race` and `verify` as people run them, on the bundled pair with tiny budgets."""

import json
import os
import signal
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest

from localspec.bench.runner import BenchProgress
from localspec.models.exit_files import Exits, Tuned
from localspec.models.gguf.header import read_header
from tests.cli.harness import (
    PAIR,
    assert_one_line,
    home_of,
    localspec,
    needs_pair,
    run_engine,
)
from tests.integration.gguf_models import MAMBA, TINY, random_gguf
from tests.integration.test_split_model import split

pytestmark = needs_pair
# Without a seed one of 10 000 runs of `verify` fails by chance, and texts fork where rounding happens to decide.
SEED = ("--seed", "1")
SMALL = ("-n", "8", "--prompts", "2", "--repeats", "1", "--temps", "0", "--methods", "draft-model:k=3")


def call(home: Path, *args: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return run_engine(*args, env={**home_of(home), **env})


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result file of the bundled pair, with its table and page beside it."""
    folder = tmp_path_factory.mktemp("bench")
    done = call(folder, "bench", "storyteller", *SMALL, "--json", f"{folder}/a.json", "--markdown", f"{folder}/a.md")
    assert done.returncode == 0, done.stderr
    (folder / "a.txt").write_bytes(done.stdout)
    return folder / "a.json"


def test_a_bench_measures_what_was_asked(measured: Path) -> None:
    """Each contender answers each prompt with every token asked for; counts agree with each other."""
    made = json.loads(measured.read_text())
    assert made["schema"] == "localspec.bench/1"
    assert made["is_complete"]
    assert [row["contender"] for row in made["results"]] == ["plain", "draft-model:k=3"]
    assert len(made["measurements"]) == 4
    for one in made["measurements"]:
        assert (one["tokens"], one["decoded"], one["reason"]) == (8, 7, "length")
        assert one["tokens"] == one["accepted"] + one["passes"]
        assert sum(one["accepted_per_pos"]) == one["accepted"]
        assert 0 < one["ttft_ms"] < one["total_ms"]
        assert one["prefill_ms"] > 0
    plain, draft = made["results"]
    assert plain["tokens_per_pass"] == 1.0
    assert draft["tokens_per_pass"] > 1.0
    assert draft["verify"] == "block"
    assert [rows for rows, _ in made["row_costs"]][:4] == [1, 2, 3, 4], "the staircase of the target"
    assert all(ms > 0 for _, ms in made["row_costs"])
    assert "ms of a target pass by rows: 1 " in (measured.parent / "a.txt").read_text()
    pair = made["provenance"]["pair"]
    assert all(len(pair[key]["sha256"]) == 64 for key in ("target", "draft"))
    assert made["provenance"]["machine"]["cores"] >= 1
    page = (measured.parent / "a.md").read_text()
    assert "draft-model:k=3" in page
    assert "draft-model:k=3" in (measured.parent / "a.txt").read_text()


def test_an_early_exit_that_auto_takes_is_part_of_what_was_measured(tmp_path: Path) -> None:
    """After another tuning it is another method: such results are not one bench, nor gone on with."""
    model = random_gguf(TINY)
    exits = Exits(read_header(model), tmp_path / "cache" / "early-exit")
    asked = ("-n", "4", "--prompts", "1", "--repeats", "1", "--temps", "0", "--methods", "auto", "--json", "-")
    methods, layers = [], []
    for ratio in (None, 0.9, 1.1):
        if ratio is not None:
            exits.store(Tuned((0, 2), ratio))
            exits.file((0, 2))
        done = call(tmp_path, "bench", str(model), "-d", "none", *asked)
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)
        methods.append(made["results"][-1]["method"])
        layers.append(made["provenance"]["options"].get("early_exit"))
    assert methods == ["plain", "plain", "early-exit"]
    assert layers == [None, None, [0, 2]]


def test_prompts_are_cold_and_cut(tmp_path: Path) -> None:
    """Every answer reads its whole prompt, whoever answered it before; --prompt-tokens cuts it."""
    done = call(tmp_path, "bench", *SMALL, "--prompt-tokens", "20", "--repeats", "2", "--json", "-")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert {one["prompt_n"] for one in made["measurements"]} == {20}
    evaluated = [one["prefill_ms"] for one in made["measurements"]]
    assert len(evaluated) == 8
    assert not list((tmp_path / "cache" / "bench").glob("*.jsonl")), "a complete bench leaves no state"


def test_comparing_two_results(measured: Path, tmp_path: Path) -> None:
    done = call(tmp_path, "bench", "compare", str(measured), str(measured))
    assert done.returncode == 0, done.stderr
    assert b"draft-model:k=3" in done.stdout
    wire = json.loads(call(tmp_path, "bench", "compare", str(measured), str(measured), "--json", "-").stdout)
    assert wire["differences"] == []
    assert {change["ratio"]["median"] for change in wire["changes"]} == {1.0}


def test_a_baseline_of_another_model_is_refused_before_anything_loads(measured: Path, tmp_path: Path) -> None:
    other = json.loads(measured.read_text())
    other["provenance"]["pair"]["target"]["sha256"] = "0" * 64
    baseline = tmp_path / "other.json"
    baseline.write_text(json.dumps(other))
    assert_one_line(call(tmp_path, "bench", *SMALL, "--baseline", str(baseline)), 6, "different target models")
    assert_one_line(call(tmp_path, "bench", "compare", str(measured), str(baseline)), 6, "different target models")


def test_a_read_only_cache_is_said_and_no_more(tmp_path: Path) -> None:
    """A file stands where the cache folder would be made."""
    (tmp_path / "cache").write_text("")
    done = call(tmp_path, "bench", *SMALL)
    assert done.returncode == 0, done.stderr
    assert b"hashes of models are not kept" in done.stderr
    assert b"plain" in done.stdout


def test_a_method_that_a_model_cannot_do_costs_no_other(tmp_path: Path) -> None:
    """A state follows one path, so copies that branch are impossible; those that are measured by themselves do not."""
    model = random_gguf(MAMBA)
    small = ("-n", "6", "--prompts", "2", "-r", "1", "--temps", "0", "--prompt-tokens", "8")
    done = call(tmp_path, "bench", str(model), *small, "--methods", "plain,auto,suffix:branch=on", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert b"suffix:branch=on was left out: " in done.stderr
    made = json.loads(done.stdout)
    assert made["is_complete"]
    assert [row["contender"] for row in made["results"]] == ["plain", "auto"]
    assert "only chains" in made["refused"]["suffix:branch=on"]
    by_itself = json.loads(call(tmp_path, "bench", str(model), *small, "--json", "-").stdout)
    assert [row["contender"] for row in by_itself["results"]] == ["plain", "suffix", "auto"]
    assert not by_itself["refused"]


def test_a_method_that_is_told_what_cannot_be_costs_no_other(tmp_path: Path) -> None:
    """That there are no 99 layers is known once the model is."""
    small = ("-n", "6", "--prompts", "1", "-r", "1", "--temps", "0", "--methods", "plain,early-exit:exit=99,suffix")
    done = call(tmp_path, "bench", "storyteller", *small, "--json", "-")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert [row["contender"] for row in made["results"]] == ["plain", "suffix"]
    assert "99" in made["refused"]["early-exit:exit=99"]


def test_what_was_measured_before_an_interruption_is_shown(tmp_path: Path) -> None:
    answers: list[str] = []

    def interrupt(progress: BenchProgress) -> str:
        answers.append(progress.cell.contender)
        if len(answers) == 3:
            signal.raise_signal(signal.SIGINT)
        return ""

    with patch("localspec.cli.bench_run._status", interrupt):
        done = call(tmp_path, "bench", *SMALL, "--json", "-")
    assert done.returncode == 130
    assert done.stderr == b"stopped\n"
    made = json.loads(done.stdout)
    assert not made["is_complete"]
    assert len(made["measurements"]) == 2


def test_a_race_tells_speed_and_text(tmp_path: Path) -> None:
    """The texts are one at any temperature, with two rounds in turned order."""
    done = call(tmp_path, "race", "storyteller", "Once upon a time", "--raw", "-n", "24", "--repeat", "2", *SEED,
                "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["schema"] == "localspec.race/1"
    assert made["output"]["is_explained"]
    assert made["text"] == made["plain_text"] or made["output"]["fork"]["is_tie"]
    assert len(made["rounds"]) == 2
    assert made["rounds"][0]["plain"]["seed"] != made["rounds"][1]["plain"]["seed"]
    for one in made["rounds"]:
        assert (one["plain"]["method"], one["speculative"]["method"]) == ("plain", "draft-model")
        assert one["plain"]["seed"] == one["speculative"]["seed"]
        assert one["speculative"]["verify"] == "coupled"
        assert (one["speedup"] is None) == (one["speculative"]["acceptance"] is None)  # auto may draft nothing


def test_a_race_for_people(tmp_path: Path) -> None:
    done = call(tmp_path, "race", "storyteller", "Once upon a time", "--raw", "-n", "16", "--temp", "0", "--method",
                "draft-model")  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[-2] == "1 round does not show whether speculation pays; 6 that agree do: --repeat 6"
    assert lines[-1].startswith(("identical output, 16 tokens", "diverged at token"))
    other = call(tmp_path, "race", "storyteller", "Once", "--raw", "-n", "8", "--verify", "block")
    assert "texts are not compared" in other.stdout.decode()


@pytest.mark.parametrize("extra", [(), ("--tree", "static:2,2"), ("--method", "suffix")])
def test_verify_finds_nothing_wrong(tmp_path: Path, extra: tuple[str, ...]) -> None:
    """On a prompt that repeats itself: copies are then tried whatever rounding makes of the text."""
    suite = tmp_path / "repeats.jsonl"
    suite.write_text(json.dumps({"prompt": "The cat sat on the mat. " * 12}) + "\n")
    asked = ("--suite", str(suite), "--prompts", "1", "-n", "64", "--draws", "200", *SEED, "--json")
    done = call(tmp_path, "verify", "storyteller", *asked, *extra)
    assert done.returncode == 0, done.stdout
    made = json.loads(done.stdout)
    assert made["passed"]
    assert [one["check"] for one in made["checks"]] == ["greedy", "coupled", "law"]
    assert all(one["drafted"] > 0 for one in made["checks"][:2]), "of texts that nobody drafted nothing is known"
    dist = made["checks"][-1]
    assert len(dist["trials"]) == 2
    assert all(one["impossible"] == 0 and one["n"] == 200 for one in dist["trials"])
    assert 0 < dist["detectable"] < 1


def test_verify_that_cannot_begin_is_one_error(tmp_path: Path) -> None:
    done = call(tmp_path, "verify", "storyteller", "--ctx", "16", "--json")
    assert (done.returncode, list(json.loads(done.stdout))) == (8, ["error"])


def test_verify_compares_every_text_with_reproducible(tmp_path: Path) -> None:
    asked = ("--prompts", "1", "-n", "32", "--draws", "200", *SEED, "--json")
    done = call(tmp_path, "verify", "storyteller", "--reproducible", *asked)
    assert done.returncode == 0, done.stdout
    texts, dist = json.loads(done.stdout)["checks"]
    assert (texts["check"], dist["check"]) == ("reproducible", "law")
    assert texts["drafted"] > 0
    assert [one["id"].partition(", ")[2] for one in texts["prompts"]] == [
        f"--temp {temp}, --method {method}" for temp in ("0", "0.8") for method in ("draft-model", "auto", "suffix")
    ]
    assert all(one["is_equal"] for one in texts["prompts"])


def test_without_a_pair_the_one_that_is_set_is_taken(tmp_path: Path) -> None:
    """It is config.toml's, or the environment's; one that is named goes before both."""
    target = tmp_path / "mine.gguf"
    os.link(PAIR / "target-q8_0.gguf", target)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text(f"model = '{target}+storyteller'\n")
    small = ("--prompts", "1", "-n", "8", "--draws", "100", *SEED)
    done = call(tmp_path, "verify", *small)
    assert done.stdout.endswith(b"the output of mine.gguf+storyteller has the target's distribution\n"), done
    bench = ("bench", *SMALL, "--methods", "plain", "--json", "-")
    made = json.loads(call(tmp_path, *bench).stdout)
    assert made["provenance"]["pair"]["target"]["path"] == str(target)
    made = json.loads(call(tmp_path, *bench, "storyteller").stdout)
    assert made["provenance"]["pair"]["target"]["path"] != str(target)
    assert_one_line(call(tmp_path, *bench[:-2], "storyteller", "-m", "storyteller"), 2, "the pair is named twice")


def test_verify_catches_a_lossy_rule(tmp_path: Path) -> None:
    """A rule that changes the distribution by design is what a wrong one looks like: exit code 10."""
    # A flat draft is often rejected, and it is after a rejection that the rule draws from the wrong distribution.
    lossy = ("--approximate", "--verify", "typical", "-k", "3", "--draft-temp", "4", "--temp", "1", *SEED)
    done = call(tmp_path, "verify", "storyteller", "--prompts", "1", "-n", "8", "--draws", "1000", *lossy)
    assert done.returncode == 10, done.stdout
    text = done.stdout.decode()
    assert "FAIL distribution" in text
    assert "NOT lossless: --verify typical" in text


def test_a_result_that_cannot_be_written_is_not_lost(tmp_path: Path) -> None:
    """The disk is full: what was measured is shown."""
    done = call(tmp_path, "bench", *SMALL, "--json", "/dev/full")
    assert done.returncode == 7
    assert b"cannot write /dev/full" in done.stderr
    assert b"draft-model:k=3" in done.stdout


def test_a_command_that_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    """A file's name is any bytes; the page shows the command, and is written after everything was measured."""
    page = os.fsencode(tmp_path) + b"/p\xff.md"
    done = localspec("bench", *SMALL, "--markdown", page, env={"LOCALSPEC_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    with open(page, encoding="utf-8") as file:
        written = file.read()
    assert "p\\udcff.md" in written
    assert "draft-model:k=3" in written


def test_a_split_model_is_known_by_any_of_its_parts(tmp_path: Path) -> None:
    split(PAIR / "target-q8_0.gguf", tmp_path, 2)
    last = f"{tmp_path}/t-00002-of-00002.gguf"
    done = call(tmp_path, "bench", last, "-n", "4", "--prompts", "1", "-r", "1", "--methods", "plain", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["provenance"]["pair"]["target"]["sha256"]) == 64


def test_a_page_that_cannot_be_written_is_no_second_object(tmp_path: Path) -> None:
    done = call(tmp_path, "bench", *SMALL, "--json", "-", "--markdown", "/dev/full")
    assert done.returncode == 7
    assert done.stderr.startswith(b"localspec: cannot write /dev/full")
    assert json.loads(done.stdout)["is_complete"]


def test_a_suite_of_questions_goes_through_the_chat_template(tmp_path: Path) -> None:
    """Raw and chat prompts of one suite differ in their tokens; the preset cuts both."""
    found = []
    for way in ("--raw", "--chat"):
        done = call(tmp_path, "bench", *SMALL, "--suite", "gsm8k", way, "--json", "-")
        assert done.returncode == 0, done.stderr
        found.append([one["prompt_n"] for one in json.loads(done.stdout)["measurements"]])
    assert all(chat > raw for raw, chat in zip(*found, strict=True))


def test_the_preset_is_the_papers_protocol(tmp_path: Path) -> None:
    """What is given by hand goes before it."""
    done = call(tmp_path, "bench", "--preset", "paper", *SMALL, "--json", "-")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    options = made["provenance"]["options"]
    assert (options["prompt_tokens"], options["max_tokens"]) == (128, 8)
    assert options["sampling"]["draft_temperature"] == 0.6
    assert {one["prompt_n"] for one in made["measurements"]} == {128}


def test_contenders_are_compared_under_a_schema(tmp_path: Path) -> None:
    done = call(tmp_path, "bench", *SMALL, "--schema", "a_long_name bool", "--methods", "plain,auto", "--json", "-")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert json.loads(made["provenance"]["options"]["schema"])["required"] == ["a_long_name"]
    wrong = call(tmp_path, "bench", *SMALL, "--schema", "missing.json")
    assert wrong.returncode == 3
    assert b"no file missing.json" in wrong.stderr


def test_a_model_that_has_no_end_is_not_read(tmp_path: Path) -> None:
    """Hashing comes after the header, which is bounded: pipes, devices and folders are told, not waited for."""
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "text.gguf").write_text("not a model")
    for name, code in (("pipe.gguf", None), ("text.gguf", 5)):
        done = call(tmp_path, "bench", str(tmp_path / name), "--draft", "none", "--methods", "plain")
        assert_one_line(done, done.returncode if code is None else code)
        assert done.returncode in (3, 5)


def test_a_race_that_runs_out_of_time_says_so(tmp_path: Path) -> None:
    """Before a round is finished there is nothing to show but the reason."""
    args = ("Once upon a time", "--raw", "-n", "900", "--repeat", "50", "--timeout", "0.01", "--json")
    done = call(tmp_path, "race", "storyteller", *args)
    assert done.returncode == 124
    assert json.loads(done.stdout)["error"]["kind"] == "timeout"


def test_text_of_a_result_is_no_terminal_code(measured: Path, tmp_path: Path) -> None:
    """A result is other people's file: its words are shown, its escape sequences are not obeyed."""
    wire = json.loads(measured.read_text())
    wire["provenance"]["machine"]["processor"] = "\x1b]0;title\x07"
    other = tmp_path / "b.json"
    other.write_text(json.dumps(wire))
    done = call(tmp_path, "bench", "compare", str(measured), str(other))
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert "␛]0;title" in done.stdout.decode()
