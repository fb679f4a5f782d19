"""What goes to stdout: the text exactly, one JSON object, or a stream of lines that a program can rely on."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest

from localspec import __version__
from localspec.cli.app import cli
from localspec.cli.entry import flush
from localspec.cli.options import (
    model_options,
    prompt_options,
    reply_options,
    sampling_options,
    screen_options,
    speculation_options,
)
from localspec.cli.run import format_options
from localspec.cli.version import version_line
from localspec.errors import UsageError
from tests.cli import harness
from tests.cli.harness import FAKE, TIMEOUT, environment, needs_pair, run_engine, wait_for, wait_until_idle

ANSWER = "Once upon a time there was a king."


def run(*args: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return harness.run("run", "hi", *args, env=env)


def events(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_color_always() -> None:
    assert b"\x1b[" in run("--stats", "--color", "always").stderr


def check_result(made: dict[str, Any]) -> None:
    """Check the object of --json: every field, and the identities between them."""
    assert set(made) >= {
        "schema", "text", "finish_reason", "seed", "pair", "params", "timings", "spec", "memory", "warnings",
        "versions",
    }  # fmt: skip
    assert made["schema"] == "localspec.result/1"
    assert made["finish_reason"] in ("stop", "length", "context", "interrupted", "timeout")
    timings, spec = made["timings"], made["spec"]
    assert set(timings) == {
        "cache_n", "prompt_n", "prepare_ms", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms",
        "predicted_per_second", "draft_n", "draft_n_accepted", "ttft_ms", "first_token_ms", "wall_ms",
        "parts_ms", "load_ms",
    }  # fmt: skip
    if timings["wall_ms"]:
        assert sum(timings["parts_ms"].values()) == pytest.approx(timings["wall_ms"])
        assert (timings["first_token_ms"] or 0.0) <= timings["wall_ms"]
    assert set(spec) == {
        "cause", "k", "passes", "drafting_passes", "drafted", "accepted", "emitted", "cut", "tokens_per_pass",
        "acceptance",
        "accepted_length", "accepted_length_over_k", "mean_alpha", "tested_per_pos", "accepted_per_pos",
        "reached_per_pos", "tokens_by_source", "ms", "baseline", "verdict", "speedup", "speedup_ci95",
        "reproducible", "widths", "asked", "drafters", "forced",
    }  # fmt: skip
    assert spec["emitted"] == spec["accepted"] + spec["forced"] + spec["passes"] - spec["cut"] == timings["predicted_n"]
    assert sum(spec["accepted_per_pos"]) == spec["accepted"] == timings["draft_n_accepted"]
    assert sum(one["drafted"] for one in spec["drafters"].values()) == spec["drafted"]
    assert sum(spec["tokens_by_source"].values()) == spec["emitted"]
    assert abs(sum(spec["ms"].values()) - (timings["predicted_ms"] or 0.0)) < 0.01
    if spec["baseline"] is None:
        assert spec["speedup"] is spec["speedup_ci95"] is None
    if spec["baseline"] is not None:
        assert set(spec["baseline"]) == {"tok_per_s", "source", "n_tokens", "ctx", "age_s"}


def test_json() -> None:
    done = run("--json")
    assert done.stdout.count(b"\n") == 1
    made = json.loads(done.stdout)
    check_result(made)
    assert made["text"] == ANSWER
    assert [piece["s"] for piece in json.loads(run("--json", "--tokens").stdout)["tokens"]][:2] == ["Once upon", ""]


def check_stream(stream: list[dict[str, Any]], last: str) -> None:
    """Check what a reader relies on: numbered lines, one start, one end."""
    assert [line["seq"] for line in stream] == list(range(len(stream)))
    assert all(line["v"] == 1 for line in stream)
    times = [line["t"] for line in stream]
    assert times == sorted(times)
    types = [line["type"] for line in stream]
    assert types[0] == "start"
    assert types[-1] == last
    assert types.count("start") == types.count("end") + types.count("error") == 1


def test_events() -> None:
    stream = events(run("--events"))
    check_stream(stream, "end")
    check_result(stream[-1]["result"])
    text = "".join(line["text"] for line in stream if line["type"] == "step") + stream[-1]["tail"]
    assert text == stream[-1]["result"]["text"] == ANSWER


FIELDS = {
    "start": {"run", "pair", "params", "seed", "n_ctx", "baseline"},
    "load": {"what", "frac"},
    "prefill": {"prompt_n", "cache_n", "ms", "prepare_ms", "seed", "n_ctx", "params"},
    "step": {
        "i",
        "pos",
        "k",
        "depth",
        "rows",
        "n_accepted",
        "n_forced",
        "draft",
        "out",
        "text",
        "ms",
        "cum",
        "reasoning",
        "drafter",
        "why",
        "expected",
        "probe",
        "way",
    },
    "probe": {"plain_ms", "ctx", "age_s"},
    "warn": {"code", "message"},
    "end": {"tail", "result"},
    "error": {"error"},
}


def check_lines(stream: list[dict[str, Any]]) -> None:
    cum = {"emitted": 0, "drafted": 0, "accepted": 0, "forced": 0, "passes": 0}
    for line in stream:
        assert set(line) == {"v", "seq", "t", "type", *FIELDS[line["type"]]}
        if line["type"] == "step":
            assert line["i"] == cum["passes"]
            assert set(line["ms"]) == {"draft", "verify", "sample", "other"}
            rest = {"p", "logprob", "top_logprobs"}
            assert all(set(token) - rest == {"id", "s", "src"} for token in [*line["draft"], *line["out"]])
            cum["emitted"] += len(line["out"])
            cum["drafted"] += line["k"]
            cum["accepted"] += line["n_accepted"]
            cum["forced"] += line["n_forced"]
            cum["passes"] += 1
            assert {name: line["cum"][name] for name in cum} == cum
            assert "tok_per_s" in line["cum"]


def test_events_have_their_names_and_fields() -> None:
    stream = events(run("--events", "--seed", "42"))
    check_lines(stream)
    types = [line["type"] for line in stream]
    assert [kind for i, kind in enumerate(types) if kind not in types[:i]] == [
        "start", "load", "prefill", "step", "probe", "end",
    ]  # fmt: skip
    by_type = {line["type"]: line for line in reversed(stream)}
    assert (by_type["start"]["seed"], by_type["start"]["n_ctx"], by_type["start"]["baseline"]) == (42, None, None)
    assert by_type["start"]["run"]
    assert by_type["start"]["params"]["verify"] == "auto"  # as asked; what it came to is with the prompt
    assert by_type["prefill"]["params"]["verify"] == "block"
    assert (by_type["prefill"]["seed"], by_type["prefill"]["n_ctx"], by_type["prefill"]["prompt_n"]) == (42, 1024, 16)
    assert by_type["step"]["out"] == [{"id": 100, "s": "Once upon", "src": "plain"}]
    assert by_type["probe"]["plain_ms"] == 10.0
    assert [line["frac"] for line in stream if line["type"] == "load"] == [0.0, 0.5, 1.0]
    assert by_type["end"]["result"]["spec"]["passes"] == types.count("step")


@pytest.mark.parametrize("at", ["0", "2"])
def test_events_of_a_dead_engine(at: str) -> None:
    done = run("--events", FAKE_DIES=at)
    assert done.returncode == 9
    stream = events(done)
    check_stream(stream, "error")
    assert stream[-1]["error"]["code"] == 9


@pytest.mark.parametrize(("number", "code"), [("INT", 130), ("TERM", 143), ("HUP", 129)])
def test_events_end_whatever_the_signal(number: str, code: int) -> None:
    process = subprocess.Popen(
        [*FAKE, "run", "--events", "hi"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        env=environment({"FAKE_PAUSE": "300"}), text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = []
    while not lines or '"step"' not in lines[-1]:
        lines.append(process.stdout.readline())
    process.send_signal(getattr(signal, f"SIG{number}"))
    rest, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == code
    stream = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    check_stream(stream, "end")
    assert errors == ("stopped\n" if number == "INT" else "")
    assert stream[-1]["result"]["finish_reason"] == "interrupted"


def test_events_before_anything_started() -> None:
    stream = events(harness.run("run", "--events", "--temp", "nan", "hi"))
    check_stream(stream, "error")
    check_lines(stream)
    assert [line["type"] for line in stream] == ["start", "error"]
    told = harness.run("run", "--events", "--temp", "nan", "hi", env={"LOCALSPEC_JSON": "1"})
    assert [line["type"] for line in events(told)] == ["start", "error"], "what is typed wins over the environment"


def test_a_load_that_was_stopped_has_no_numbers(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*FAKE, "run", "--json", "--stats", "hi"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL, env=environment({"FAKE_LOAD_PAUSE": "300", "FAKE_LOADS": str(tmp_path / "loads")}),
        text=True,
    )  # fmt: skip
    wait_for((tmp_path / "loads").exists)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    made = json.loads(out)
    check_result(made)
    unknown = ("ttft_ms", "prompt_n", "cache_n", "prepare_ms", "prompt_ms", "predicted_ms")
    assert [made["timings"][name] for name in unknown] == [None] * len(unknown)
    assert made["memory"]["peak_bytes"] is None
    assert errors == "stopped\n"


def test_a_stream_that_is_gone_is_replaced_and_the_other_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python would complain of it on the way out."""
    ends, end = os.pipe()
    os.close(ends)
    with open(end, "w") as gone, (tmp_path / "told").open("w") as whole:
        for stream, name in ((gone, "stdout"), (whole, "stderr")):
            stream.write("told")
            monkeypatch.setattr(sys, name, stream)
        flush()
        assert (tmp_path / "told").read_text() == "told"
    monkeypatch.setattr(sys, "stdout", None)
    flush()


@pytest.mark.parametrize("form", ["--json", "--events"])
def test_what_goes_wrong_after_the_end_adds_nothing_to_it(form: str) -> None:
    """Ctrl-C while the stats line waits for a stderr that is full."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(1 << 12))
    os.set_blocking(write, True)
    process = subprocess.Popen(
        [*FAKE, "run", form, "--stats", "hi"], stdout=subprocess.PIPE, stderr=write, stdin=subprocess.DEVNULL,
        env=environment(), text=True,
    )  # fmt: skip
    os.close(write)
    assert process.stdout is not None
    last = ""
    while '"finish_reason"' not in last:
        last = process.stdout.readline()
    wait_until_idle(process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    while os.read(read, 1 << 16):
        pass
    os.close(read)
    assert (process.communicate(timeout=TIMEOUT)[0], process.returncode) == ("", 130)


SETTINGS = "localspec.settings.jobs localspec.settings.request"
HEAVY = "llama_cpp textual huggingface_hub jinja2"
# What a new process does, and what it does without: modules of others, of another command, or of what comes later.
WITHOUT = {
    "told('--help', shows='Commands:')": f"{HEAVY} numpy",
    "told('run', '--help')": HEAVY,
    "told('methods')": HEAVY,
    "told('methods', '--json')": HEAVY,
    "told('--version')": HEAVY,
    "import localspec.cli.chat, localspec.cli.run, localspec.tui.launch": (  # the first screen of the chat
        "numpy markdown_it localspec.models.pull llama_cpp huggingface_hub"
    ),
    "import localspec.cli.serving, localspec.server.app, localspec.server.listening": "numpy",
    "import localspec.cli.run": "localspec.ui.json_fields",
    # A child, for its load and for a question about llama.cpp.
    "import localspec.session.loading": "ssl websockets localspec.remote localspec.settings.lone_jobs localspec.ui",
    "import localspec.worker.lone_child, localspec.backends.build": f"{SETTINGS} localspec.settings.declaration",
    "import localspec.cli.app, localspec.cli.version": f"{SETTINGS} importlib.metadata localspec.engine.events",
}
TOLD = """
import io, sys
def told(*args, shows=""):
    from localspec.cli.entry import outcome
    sys.stdout = io.TextIOWrapper(io.BytesIO())
    assert outcome([*args]) == 0
    sys.stdout.seek(0)
    assert shows in sys.stdout.read()
"""


@pytest.mark.parametrize("code", WITHOUT)
def test_a_process_imports_no_more_than_it_needs(code: str) -> None:
    script = f"{TOLD}\n{code}\nprint(*({{*{WITHOUT[code].split()}}} & {{*sys.modules}}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (0, b"\n"), done.stderr.decode()


# Nothing on the way to the start of the engine needs these.
LATE = {
    "asyncio",
    "ssl",
    "tomlkit",
    "importlib.metadata",
    "localspec.worker.engines",
    "localspec.ui.json_fields",
    "localspec.models.hub.cache",
}


@needs_pair
def test_the_engine_starts_before_the_command_checks_what_was_asked(tmp_path: Path) -> None:
    """Both processes import at the same time; the child has llama.cpp to import as well."""
    script = (
        "import sys\nfrom localspec.cli.entry import outcome\nfrom localspec.worker.process import Child\n"
        "start = Child.start\n"
        "def started(*given):\n"
        "    print(*sorted(sys.modules), file=sys.stderr)\n"
        "    return start(*given)\n"
        "Child.start = started\n"
        "sys.exit(outcome(['run', '-q', '-n', '1', 'Once']))"
    )
    env = environment({"LOCALSPEC_HOME": str(tmp_path)})
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    modules = {*done.stderr.decode().split()}
    assert "localspec.cli.run" in modules
    assert not modules & {*LATE, "numpy", "localspec.speculation.resolve", "localspec.worker.codec"}


def test_version_names_every_part() -> None:
    line = harness.localspec("--version").stdout.decode()
    assert line.count("\n") == 1
    for part in ("localspec ", "llama-cpp-python ", "llama.cpp ", "GPU: "):
        assert part in line


def test_a_version_without_an_engine_names_the_binding_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_: object) -> None:
        raise UsageError("it does not start")

    monkeypatch.setattr("localspec.cli.version.ask", ask)
    found = importlib.metadata.version("llama-cpp-python")
    tail = "not available (it does not start)"
    assert version_line() == f"localspec {__version__} · llama-cpp-python {found} · llama.cpp: {tail}"


def test_methods() -> None:
    made = json.loads(harness.run("methods", "--json").stdout)
    assert {"plain", "draft-model"} <= {method["name"] for method in made["methods"]}
    listing = harness.run("methods").stdout.decode()
    for axis in ("tree", "length", "verify"):
        for entry in made[axis]:
            assert entry["summary"]
            assert f"  {entry['name']}" in listing


@pytest.mark.parametrize(
    "group",
    [
        model_options,
        reply_options,
        prompt_options,
        speculation_options,
        sampling_options,
        format_options,
        screen_options,
    ],
)
def test_every_option_has_help(group: Any) -> None:
    command = group(click.command()(lambda **values: None))
    assert all(param.help for param in command.params)


@pytest.mark.parametrize("name", ["run", "race", "chat", "doctor", "bench", "pull"])
@pytest.mark.parametrize("width", [80, 100])
def test_help_breaks_no_command_line_after_its_first_word(name: str, width: int) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    with click.Context(command, info_name=name, terminal_width=width, max_content_width=width) as context:
        lines = command.get_help(context).splitlines()
    assert not [line for line in lines if line.split()[-1:] == ["localspec"]]


@needs_pair
@pytest.mark.parametrize("method", ["plain", "draft-model"])
def test_the_real_thing_as_json(method: str) -> None:
    args = ["--method", method, "--temp", "0", "-n", "128", "--json", "Once upon a time"]
    done = run_engine("run", *args)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    check_result(made)
    assert made["finish_reason"] in ("length", "stop")
    if method == "draft-model":
        assert made["spec"]["accepted_length"] > 0.6


@needs_pair
def test_log_probabilities() -> None:
    """The same in both forms of JSON, by the token that they belong to."""
    args = ["run", "-n", "20", "--seed", "1", "--method", "plain", "Once upon a time", "--logprobs", "3"]
    made = json.loads(run_engine(*args, "--json").stdout)
    check_result(made)
    assert len(made["tokens"]) == made["timings"]["predicted_n"] == 20
    for token in made["tokens"]:
        logprobs = [likely["logprob"] for likely in token["top_logprobs"]]
        assert logprobs == sorted(logprobs, reverse=True)
        assert len(logprobs) == 3
        assert token["logprob"] <= logprobs[0] <= 0
    stream = events(run_engine(*args, "--events"))
    check_lines(stream)
    told = [token for line in stream if line["type"] == "step" for token in line["out"]]
    names = ("id", "logprob", "top_logprobs")
    assert [[token[name] for name in names] for token in told] == [
        [token[name] for name in names] for token in made["tokens"]
    ]
    after = json.loads(run_engine(*args, "--json", "--post-sampling", "--temp", "0").stdout)
    assert {token["logprob"] for token in after["tokens"]} == {0.0}


@needs_pair
def test_a_changed_distribution_is_said() -> None:
    """A lossy rule runs only when asked for, and the line and the JSON say what it did."""
    args = ["-n", "20", "--method", "draft-model", "--verify", "typical", "Once upon a time"]
    assert run_engine("run", *args).returncode == 2
    done = run_engine("run", "--approximate", "--stats", *args)
    assert b"typical changes the distribution" in done.stderr
    made = json.loads(run_engine("run", "--approximate", "--json", *args).stdout)
    assert made["params"]["is_lossless"] is False
    assert json.loads(run_engine("run", "--json", "hi", "-n", "2").stdout)["params"]["is_lossless"] is True


@needs_pair
def test_reproducible_is_said() -> None:
    """With the rows that a pass may have; a draft that needs more is refused."""
    args = ["--reproducible", "--method", "draft-model", "--seed", "3", "-n", "60", "Once upon a time"]
    done = run_engine("run", "--stats", *args)
    made = json.loads(run_engine("run", "--json", *args).stdout)
    widths = made["spec"]["widths"]
    assert widths == list(range(1, len(widths) + 1))
    assert made["spec"]["reproducible"] is made["params"]["reproducible"] is True
    assert made["spec"]["drafted"] > 0 or widths == [1]
    assert f"reproducible, widths 1 to {len(widths)}".encode() in done.stderr
    assert done.stdout.decode() == made["text"] + "\n"
    plain = json.loads(run_engine("run", "--json", *args[:2], "plain", *args[3:]).stdout)
    assert plain["text"] == made["text"]
    refused = run_engine("run", "-k", "40", *args)
    assert (refused.returncode, b"-k 40 needs passes of 41 rows" in refused.stderr) == (2, True)
    other = json.loads(run_engine("run", "--json", "hi", "-n", "2").stdout)["spec"]
    assert (other["reproducible"], other["widths"]) == (False, None)


@needs_pair
def test_the_real_thing_as_events() -> None:
    done = run_engine("run", "-n", "40", "--events", "--seed", "1", "Once upon a time")
    stream = events(done)
    check_stream(stream, "end")
    check_lines(stream)
    passes = [line for line in stream if line["type"] == "step"]
    assert "".join(line["text"] for line in passes) + stream[-1]["tail"] == stream[-1]["result"]["text"]
    assert all(len(line["draft"]) == line["k"] for line in passes)
    assert all(line["n_accepted"] == sum(t["src"] == "accepted" for t in line["out"]) for line in passes)
    assert any(line["type"] == "probe" for line in stream)
