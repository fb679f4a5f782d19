"""The case `peers` of scripts/bench, with small programs in place of llama-server and llama-bench."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from measuring import peers
from measuring.llama_build import features
from measuring.runner import main

from tests.cli.harness import PAIR, needs_pair

SERVER = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

words = sys.argv[1:]
if "ngram-mod" in words:
    sys.exit("loading\\nerror loading model: no such\\nmain: exit")

class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(json.dumps([words, body]), file=open({log!r}, "a"))
        timings = {{"prompt_n": 9, "prompt_ms": 3.0, "predicted_n": 33, "predicted_ms": 64.0}}
        timings |= {{"draft_n": 40, "draft_n_accepted": 20}} if "-md" in words else {{}}
        self.send_response(200)
        self.end_headers()
        for event in {events}:
            event = {{**event, "timings": timings}} if event.get("stop") else event
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\\n\\n")

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Server).serve_forever()
"""
BENCH = """#!/bin/sh
echo "$@" >> {log}
echo '[{{"n_gen": 8, "avg_ns": 500000000}}]'
"""
EVENTS = [{"content": " a"}, {"content": " king", "stop": True}]


class Programs:
    """A server and a bench that keep what they were asked."""

    def __init__(self, folder: Path) -> None:
        self.server, self.bench, self._log, self._asked = (folder / name for name in ("ls", "lb", "log", "asked"))
        self.write(EVENTS)
        self.bench.write_text(BENCH.format(log=self._asked))
        self.bench.chmod(0o755)

    def write(self, events: list[dict[str, Any]]) -> None:
        self.server.write_text(SERVER.format(python=sys.executable, log=str(self._log), events=events))
        self.server.chmod(0o755)

    @property
    def requests(self) -> list[tuple[list[str], dict[str, Any]]]:
        """The words of each server, and its second request: the first one warms up."""
        return [json.loads(line) for line in self._log.read_text().splitlines()][1::2]

    @property
    def depths(self) -> list[int]:
        lines = [line.split() for line in self._asked.read_text().splitlines()]
        return [int(words[words.index("-d") + 1]) for words in lines]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    programs = Programs(tmp_path)
    monkeypatch.setattr(peers, "build", lambda *_: (programs.server, programs.bench))
    return programs


def test_the_sweep_has_every_setting_once() -> None:
    types, attentions = ("none", "ngram-mod+draft-simple"), ("auto", "off")
    listed = peers.settings(types, attentions, [2, 3], has_draft=True)
    assert [one.name for one in listed] == [
        f"llama-server {kind}{suffix}"
        for suffix in ("", " fa=off")
        for kind in ("none", "ngram-mod+draft-simple n-max=2", "ngram-mod+draft-simple n-max=3")
    ]
    last = listed[-1]
    assert last.options == ("--spec-type", "ngram-mod,draft-simple", "-fa", "off", "--spec-draft-n-max", "3")
    assert last.needs_draft
    assert not any(one.needs_draft for one in peers.settings(types, attentions, [2, 3], has_draft=False))


@needs_pair
def test_all_of_a_round_answer_one_prompt(programs: Programs, capsys: pytest.CaptureFixture[str]) -> None:
    """With a seed all have the same and each round another. llama-bench decodes at the depth of localspec's prompt."""
    words = ["--methods", "plain", "--types", "none,draft-simple", "--flash-attn", "auto", "--seed", "40"]
    assert main(["peers", *words, "--rounds", "2", "-n", "8"]) == 0
    table = capsys.readouterr().out
    rate = "500 | 3000 | 0.0670"  # of the tokens after the first
    assert f"| llama-server none | {rate} |  |" in table
    assert f"| llama-server draft-simple n-max=3 | {rate} | 0.50 |" in table
    assert "| llama-bench fa=off | 16.0 |" in table
    asked = programs.requests
    assert sorted(body["seed"] for _, body in asked) == [40, 40, 41, 41]
    assert all(not body["cache_prompt"] and body["temperature"] == 0.0 for _, body in asked)
    prompts = {body["seed"]: body["prompt"] for _, body in asked}
    assert len(set(prompts.values())) == 2
    drafts = [words[words.index("-md") + 1] for words, _ in asked if "-md" in words]
    assert drafts == [str(PAIR / "draft-q8_0.gguf")] * 2
    assert len(programs.depths) == 4
    assert programs.depths[0] == programs.depths[1] > 0


@needs_pair
def test_a_server_that_does_not_start_is_named_in_a_line(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["peers", "--methods", "plain", "--types", "ngram-mod", "--flash-attn", "auto", "--rounds", "1"])
    assert capsys.readouterr().err.splitlines() == [
        "scripts/bench: llama-server ngram-mod does not start: error loading model: no such"
    ]


@needs_pair
@pytest.mark.parametrize(
    ("events", "said"),
    [([{"content": " a"}], "it breaks off"), ([{"error": "no slot"}], "no slot"), ([], "it is empty")],
)
def test_an_answer_without_an_end_is_an_error(
    programs: Programs, capsys: pytest.CaptureFixture[str], events: list[dict[str, Any]], said: str
) -> None:
    programs.write(events)
    assert main(["peers", "--methods", "plain", "--types", "none", "--flash-attn", "auto", "--rounds", "1"]) == 1
    assert capsys.readouterr().err == f"scripts/bench: llama-server gives no answer: {said}\n"


@needs_pair
def test_llama_bench_that_measures_nothing_says_why(programs: Programs, capsys: pytest.CaptureFixture[str]) -> None:
    programs.bench.write_text("#!/bin/sh\necho 'loading' >&2\necho 'error: no such model' >&2\nexit 1")
    main(["peers", "--methods", "plain", "--types", "none", "--flash-attn", "auto", "--rounds", "1", "-n", "8"])
    error = capsys.readouterr().err
    assert error.startswith("scripts/bench: llama-bench fa=")
    assert error.endswith(" measures nothing: error: no such model\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "draft-modle"], "draft-modle"),
        (["--suite", "nowhere"], "nowhere"),
        (["-m", "nowhere.gguf"], "nowhere.gguf"),
        (["--types", "none,ngram-map"], "the server has no ngram-map: --types none, draft-simple"),
        (["--flash-attn", "yes"], "the server has no yes"),
        (
            ["-m", str(PAIR / "target-q8_0.gguf"), "--methods", "plain", "--types", "draft-simple"],
            "no setting of the server is left",
        ),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_built(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*_: object) -> None:
        raise AssertionError("nothing is built")

    monkeypatch.setattr(peers, "build", build)
    assert main(["peers", *words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize("words", [["--seed=-1"], ["--seed=x"], ["--rounds", "0"], ["-n", "0"], ["--n-max", "x"]])
def test_numbers_are_from_1_on(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["peers", *words])


def test_the_instruction_sets_are_those_that_are_installed() -> None:
    options = features()
    assert not options or options[0] == "GGML_NATIVE=OFF"
    assert all(option.endswith(("=ON", "=OFF")) for option in options)
