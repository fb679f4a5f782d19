"""`localspec plan` as people and programs read it."""

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.cli.plan_table import Judgement, Loads, verdict
from localspec.settings.sizes import read_size
from tests.cli.harness import PAIR, REAL, Terminal, json_of, localspec, needs_pair, run
from tests.integration.pair import TARGET
from tests.models.hollow import LLAMA_1B, LLAMA_8B, write
from tests.recorded import recorded_expressions

GIB = 2**30


def test_a_target_that_is_here_is_planned_with_a_draft_that_is_not() -> None:
    draft = "hf:bartowski/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q8_0"
    done = run("plan", f"{TARGET}+{draft}", "--offline", "--vram", "8G", "--ram", "16G")
    assert done.returncode == 0, done.stderr
    assert "a context of 1024 tokens" in done.stdout.decode(), "the target's own header was read"


@pytest.mark.parametrize(
    ("speed", "is_measured", "line"),
    [
        (0.99, True, "small.gguf does not pay here: copies only."),
        (1.0, False, "small.gguf is not expected to pay here: copies only."),
        (1.01, True, "small.gguf gains little here: 1.01 times the speed without a draft."),
        (1.04, False, "small.gguf is expected to gain little here: 1.04 times the speed without a draft."),
        (1.05, True, "small.gguf pays here: 1.05 times the speed without a draft."),
        (1.05, False, "small.gguf is expected to pay here: 1.05 times the speed without a draft."),
    ],
)
def test_a_gain_of_less_than_a_twentieth_is_little(speed: float, is_measured: bool, line: str) -> None:
    judged = Judgement("small.gguf", 1, speed, 1.0, 0.5, "measured here", is_measured=is_measured)
    assert verdict({judged.name: judged}, Loads("")) == line


@pytest.mark.parametrize(
    ("loads", "line"),
    [
        (Loads(""), "No draft for it is on this machine: copies only."),
        (Loads("", has_none=True), "No draft, as asked: copies only."),
        (Loads("", has_drafts=True), "No draft fits into memory beside it: copies only."),
    ],
)
def test_why_no_draft_is_judged(loads: Loads, line: str) -> None:
    assert verdict({}, loads) == line


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An 8B shape and a 1B shape, in files without weights."""
    folder = tmp_path_factory.mktemp("hollow")
    return f"{write(folder / 'big.gguf', LLAMA_8B)}+{write(folder / 'small.gguf', LLAMA_1B)}"


def test_a_machine_one_does_not_have(pair: str) -> None:
    done = run("plan", pair, "--vram", "8G", "--ram", "16G", "--bandwidth", "gpu=448,cpu=50")
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith(
        "small.gguf is expected to pay here: 1.69 times the speed without a draft, if the assumed"
    )
    assert "--measure" not in lines[0], "another machine cannot be tried"
    assert lines[1].startswith("It fits: ")
    assert lines[1].endswith(" of 8.6 GB GPU0, with a context of 4096 tokens in f16.")
    chosen = lines[4].split()
    assert chosen[:4] == ["small.gguf", "0.70?", "GPU0", "GPU0"]
    assert chosen[-1] == "173"  # (3 x 0.729 + 4.357) GB at 448 GB/s for 2.533 tokens
    assert "5.8" in chosen
    assert max(map(len, lines[3:9])) <= 80
    assert "A pass with 3 guesses gives 2.53 tokens" in done.stdout.decode()
    assert "(70% right, assumed)" in done.stdout.decode()
    assert "bandwidths: given" in done.stdout.decode()


def test_a_model_that_memory_does_not_hold_fits_with_layers_on_disk(pair: str) -> None:
    target = pair.partition("+")[0]
    machine = ("--vram", "0", "--ram", "4G", "--bandwidth", "cpu=50,disk=2")
    lines = run("plan", target, "-d", "none", *machine).stdout.decode().splitlines()
    found = json_of(run("plan", target, "-d", "none", *machine, "--json"))
    n, seconds = found["layers_on_disk"], found["seconds_per_token"]
    assert 0 < n < 32
    reads = f"each pass reads the whole file: about {seconds:.1f} seconds a token."
    fits = f"It runs with {n} of 32 layers on disk, and {reads}"
    assert found["fits"] == lines[1] == fits
    assert seconds > 1.0, "5 GB, mostly at 2 GB/s"


def test_no_number_without_a_figure(pair: str) -> None:
    text = run("plan", pair, "--vram", "8G", "--ram", "16G").stdout.decode()
    assert "Speeds are not measured (localspec calibrate --machine" in text
    wire = json_of(run("plan", pair, "--vram", "8G", "--ram", "16G", "--json"))
    assert [one["tokens_per_s"] for one in (wire["chosen"], *wire["alternatives"])] == [None] * 4


def test_json(pair: str) -> None:
    args = (
        "--vram",
        "6G,2G",
        "--ram",
        "16G",
        "--bandwidth",
        "gpu0=448,gpu1=200,cpu=50",
        "--acceptance",
        "0.5",
        "--json",
    )
    wire = json_of(run("plan", pair, "--ctx", "2048", *args))
    assert [one["memory"] for one in wire["machine"]["devices"]] == [6 * GIB, 2 * GIB]
    assert wire["acceptance"] == wire["chosen"]["acceptance"] == {"value": 0.5, "basis": "assumed"}
    chosen = wire["chosen"]
    assert chosen["n_ctx"] == 2048
    assert chosen["tokens_per_s"] >= max(one["tokens_per_s"] for one in wire["alternatives"])
    for one in (chosen, *wire["alternatives"]):
        for name, limit in (("GPU0", 6 * GIB), ("GPU1", 2 * GIB), ("CPU", 16 * GIB)):
            use = one["memory"].get(name, {"total": 0})
            assert use["total"] <= limit
            assert use["total"] == sum(value for key, value in use.items() if key != "total")


@needs_pair
def test_every_draft_on_this_machine_is_compared_where_none_is_named() -> None:
    """The bundled heads lie beside their target. Their training counted what is accepted."""
    target = str(TARGET)
    args = ("--vram", "40M", "--ram", "200M", "--bandwidth", "gpu=900,cpu=50")
    text = run("plan", target, *args).stdout.decode()
    for name in ("eagle3-q8_0.gguf", "medusa-q8_0.gguf", "draft-q8_0.gguf", "copies only"):
        assert any(line.startswith(name) for line in text.splitlines()), name
    assert "right, counted when the head was trained)" in text
    wire = json_of(run("plan", target, *args, "--json"))
    name = wire["chosen"]["draft_name"]
    command = f"localspec run -m {target} -d {name}"
    assert f"localspec run loads no draft here, for none is named; to load the first of these: {command}\n" in text
    assert "draft-q8_0.gguf here, for it belongs to that name; to" in run("plan", "storyteller", *args).stdout.decode()
    assert wire["loaded_draft"] is None, "a bare file is loaded alone"
    found = json_of(run("plan", target, "--draft", name, *args, "--json"))
    assert found["chosen"] == wire["chosen"]
    assert {row["draft_name"] for row in found["alternatives"]} == {name, None}


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_draft_of_another_vocabulary_says_so(tmp_path: Path, columns: int) -> None:
    """Lines are wrapped at words, and the table fits."""
    target = write(tmp_path / "big.gguf", replace(LLAMA_8B, vocab=1000))
    for name, word in (
        ("a-draft-of-the-same-family-q4_k_m.gguf", "w"),
        ("one-of-another-family-with-a-name.gguf", "v"),
    ):
        write(tmp_path / name, replace(LLAMA_1B, vocab=1000, word=word))
    machine = ("--vram", "80G", "--ram", "160G", "--bandwidth", "gpu=448,cpu=50")
    terminal = Terminal(["plan", str(target), *machine], columns=columns)
    assert terminal.wait() == 0, terminal.text
    told = " ".join(terminal.text.split())
    assert told.count("it has another vocabulary") == 1
    assert "one-of-another-family-with-a-name.gguf: " in told
    assert any(line.startswith("a-dra") and "GPU0" in line for line in terminal.lines)
    wire = json_of(run("plan", str(target), *machine, "--json"))
    told = {Path(row["draft_name"] or "none").name: row["has_other_vocabulary"] for row in
            (wire["chosen"], *wire["alternatives"])}  # fmt: skip
    assert told == {"one-of-another-family-with-a-name.gguf": True, "a-draft-of-the-same-family-q4_k_m.gguf": False,
                    "none": False}  # fmt: skip


@needs_pair
def test_this_machine() -> None:
    wire = json_of(run("plan", "storyteller", "--json"))
    assert wire["machine"]["ram"] > 0
    assert wire["chosen"]["threads"] >= 1
    assert wire["chosen"]["memory"]["CPU"]["total"] < 50e6


def test_a_long_name_loses_its_middle_where_a_terminal_has_no_room(tmp_path: Path) -> None:
    draft = tmp_path / f"{'long-' * 20}draft-q8_0.gguf"
    draft.write_bytes((PAIR / "draft-q8_0.gguf").read_bytes())
    words = ["plan", str(PAIR / "target-q8_0.gguf"), "-d", str(draft)]
    terminal = Terminal(words, program=REAL, columns=90, env={"LOCALSPEC_HOME": str(tmp_path / "home")})
    assert terminal.wait() == 0
    (line,) = [each for each in terminal.lines if "…" in each]
    assert line.startswith("long-long-")
    assert "q8_0.gguf" in line
    assert f"{draft.name}: " in localspec(*words).stdout.decode(), "its own line has it whole"


test_what_is_recorded = recorded_expressions(__file__, read_size)
