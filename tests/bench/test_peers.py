"""The sweep of llama.cpp's server, and what its answers are taken for. The programs themselves are built by hand."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from localspec.bench.contenders import parse_contenders
from localspec.bench.measurement import Cell, Measurement
from localspec.bench.runner import WARM_UP, BenchJob
from localspec.bench.suites import Prompt, Suite
from localspec.settings.request import LoadSettings, Request
from scripts import peers
from scripts.llama_peers.bare import Bench
from scripts.llama_peers.build import Peers, features
from scripts.llama_peers.server import Server, settings
from scripts.llama_peers.texts import of_one_text
from tests.cli.harness import PAIR


def test_the_sweep_has_every_setting_once() -> None:
    found = settings([1, 2, 8], has_draft=True)
    assert len({one.name for one in found}) == len({one.options for one in found}) == len(found) == 6
    assert [one.needs_draft for one in found] == [False, True, True, True, False, False]
    assert not any(one.needs_draft for one in settings([1, 2, 8], has_draft=False))


def test_every_setting_is_tried_with_and_without_flash_attention() -> None:
    """The server has it by default, which on a processor is its slower half."""
    found = settings([2, 3], has_draft=True, types=("none", "ngram-mod+draft-simple"), attentions=("auto", "off"))
    assert [one.name for one in found] == [
        f"llama-server {kind}{said}"
        for said in ("", " fa=off")
        for kind in ("none", "ngram-mod+draft-simple n-max=2", "ngram-mod+draft-simple n-max=3")
    ]
    last = found[-1]
    assert last.options == ("--spec-type", "ngram-mod,draft-simple", "-fa", "off", "--spec-draft-n-max", "3")
    assert last.needs_draft


def test_the_servers_timings_are_ours() -> None:
    """Rates are of the tokens after the first; every pass commits its accepted tokens and one more."""
    server = Server(Path("none"), settings([4], has_draft=True)[1], Path("t"), Path("d"), 1, 512)
    timings = {"prompt_n": 9, "prompt_ms": 3.0, "predicted_n": 33, "predicted_ms": 64.0, "draft_n": 40,
               "draft_n_accepted": 20}  # fmt: skip
    cell = Cell(0, 0.0, server.setting.name, 0)
    answer = {"timings": timings, "stop_type": "limit", "content": " a king"}
    one = server._measured(cell, 1, answer)
    assert one.tok_per_s == pytest.approx(500.0)
    assert (one.passes, one.drafted, one.accepted, one.reason) == (13, 40, 20, "length")
    assert server._measured(cell, 1, {**answer, "stop_type": "eos"}).reason == "stop"


def test_only_answers_of_one_text_are_compared_pass_by_pass() -> None:
    """A near tie that two programs round apart makes two texts, of which one is easier to draft."""
    server = Server(Path("none"), settings([4], has_draft=True)[1], Path("t"), Path("d"), 1, 512)
    timings = {"prompt_n": 9, "prompt_ms": 3.0, "predicted_n": 33, "predicted_ms": 64.0}

    def wrote(name: str, texts: list[str], repeat: int = 0) -> list[Measurement]:
        answers = [{"timings": timings, "stop_type": "limit", "content": text} for text in texts]
        return [server._measured(Cell(i, 0.0, name, repeat), 1, answer) for i, answer in enumerate(answers)]

    ours = wrote("auto", ["a king", "a queen"]) + wrote("auto", ["a king", "a fox"], repeat=1)
    theirs = wrote("server", ["a king", "a fox"]) + wrote("server", ["a king", "a fox"], repeat=1)
    mine, others = of_one_text(ours, theirs)
    at = [(0, 0), (0, 1), (1, 1)]
    assert [(one.cell.prompt, one.cell.repeat) for one in mine] == at
    assert [(one.cell.prompt, one.cell.repeat) for one in others] == at


class Heard:
    """Workers that answer nothing and keep what they were asked."""

    def __init__(self) -> None:
        self.seeds: list[int | None] = []
        self.started = 0

    def __call__(self) -> Heard:
        self.started += 1
        return self

    def __enter__(self) -> Heard:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self, settings: LoadSettings) -> Iterator[Any]:
        """Load nothing."""
        return iter(())

    def generate(self, request: Request) -> Iterator[Any]:
        """Keep the seed; warm-up answers are not counted."""
        if request.max_tokens != WARM_UP:
            self.seeds.append(request.sampling.seed)
        return iter(())


def seeds(monkeypatch: pytest.MonkeyPatch, seed: int | None) -> tuple[list[int | None], list[int]]:
    """Return the seeds that localspec and a server got in two repetitions of three prompts."""
    posted, workers, started = list[int](), Heard(), list[str]()
    answer = {"timings": {"prompt_n": 9, "prompt_ms": 3.0, "predicted_n": 33, "predicted_ms": 64.0}, "content": ""}

    def post(self: Server, body: dict[str, Any]) -> dict[str, Any]:
        if body["n_predict"] != WARM_UP:
            posted.append(body["seed"])
        return answer

    monkeypatch.setattr(peers.Server, "_told", post)
    monkeypatch.setattr(peers.Server, "_start", lambda self: started.append(self.setting.name))
    monkeypatch.setattr(peers, "Worker", workers)
    monkeypatch.setattr(peers, "measured", lambda cell, stats: server._measured(cell, 1, answer))
    suite = Suite("three", tuple(Prompt(str(i), "a") for i in range(3)), is_chat=False)
    job = BenchJob(suite, parse_contenders("plain", has_draft=False), (0.8,), repeats=2, max_tokens=99, seed=seed)
    server = peers.Server(Path("none"), settings([], has_draft=False)[0], Path("t"), None, 1, 512)
    for repeat in range(job.repeats):
        list(peers.run(job, repeat, LoadSettings("t"), {server.setting.name: server}, {}))
    assert workers.started == len(started) == 6, "every answer has a process of its own"
    return workers.seeds, posted


def test_with_a_seed_every_contender_has_the_same_and_every_answer_another(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = seeds(monkeypatch, 40)
    assert ours == theirs
    assert len(set(ours)) == len(ours) == 6
    assert seeds(monkeypatch, 400)[0] != ours


def test_without_one_localspec_draws_its_own_and_no_two_of_the_servers_are_one_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = seeds(monkeypatch, None)
    assert ours == [None] * 6
    assert len(set(theirs)) == 6


class Recorded:
    """llama-bench that measures nothing and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []

    def ask(self, cell: Cell, depth: int, n: int) -> Measurement:
        """Keep prompt, depth and number of tokens."""
        self.asked.append((cell.prompt, depth, n))
        timings = {"prompt_n": depth, "prompt_ms": 3.0, "predicted_n": n, "predicted_ms": 64.0}
        return SERVER._measured(cell, 1, {"timings": timings, "content": ""})


SERVER = Server(Path("none"), settings([], has_draft=False)[0], Path("t"), None, 1, 512)


@pytest.mark.parametrize("repeat", [0, 1])
def test_llama_bench_is_asked_beside_every_answer_at_the_depth_of_its_prompt(
    repeat: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(cell: Cell, n: int) -> Measurement:
        timings = {"prompt_n": n, "prompt_ms": 3.0, "predicted_n": 33, "predicted_ms": 64.0}
        return SERVER._measured(cell, 1, {"timings": timings, "content": ""})

    monkeypatch.setattr(Server, "ask", lambda self, cell, request, text: answer(cell, len(text)))
    monkeypatch.setattr(peers, "measured", lambda cell, stats: answer(cell, 10 + cell.prompt))
    suite = Suite("three", tuple(Prompt(str(i), "a" * (10 + i)) for i in range(3)), is_chat=False)
    job = BenchJob(suite, parse_contenders("plain", has_draft=False), (0.8,), repeats=2, max_tokens=99, seed=1)
    bench = Recorded()
    benches = cast(Any, {"llama-bench fa=off": bench})
    monkeypatch.setattr(peers, "Worker", Heard())
    list(peers.run(job, repeat, LoadSettings("t"), {SERVER.setting.name: SERVER}, benches))
    assert bench.asked == [(0, 10, 99), (1, 11, 99), (2, 12, 99)]


def test_orders_are_drawn_and_llama_bench_is_never_first() -> None:
    """Fixed turns would give one contender the same neighbour every time."""
    suite = Suite("forty", tuple(Prompt(str(i), "a") for i in range(40)), is_chat=False)
    job = BenchJob(suite, parse_contenders("plain", has_draft=False), (0.0, 0.8), repeats=2, max_tokens=9)
    names, benches = ["llama-server none", "plain"], ["llama-bench fa=off", "llama-bench fa=on"]
    cells = list(peers.turns(job, 0, names, benches))
    assert cells == list(peers.turns(job, 0, names, benches))
    assert len(set(cells)) == len(cells) == 40 * 2 * 4
    orders = [tuple(cell.contender for cell in cells[start : start + 4]) for start in range(0, len(cells), 4)]
    assert {order[0] for order in orders} == set(names)
    assert len(set(orders)) == 12, "every order that has llama-bench later"
    again = [cell.contender for cell in peers.turns(job, 1, names, benches)]
    assert again != [cell.contender for cell in cells]


def test_llama_bench_says_what_tokens_take_or_why_it_does_not(tmp_path: Path) -> None:
    program = tmp_path / "llama-bench"
    program.write_text('#!/bin/sh\necho \'[{"n_gen": 50, "avg_ns": 1000000000}]\'')
    program.chmod(0o755)
    bench = Bench(program, Path("t"), 2, "off")
    one = bench.ask(Cell(0, 0.0, bench.name, 0), 180, 50)
    assert (one.tok_per_s, one.prompt_n, one.drafted) == (50.0, 180, 0)
    program.write_text("#!/bin/sh\necho 'loading' >&2\necho 'error: no such model' >&2\nexit 1")
    with pytest.raises(OSError, match=r"^llama-bench fa=off measures nothing: error: no such model$"):
        bench.ask(Cell(0, 0.0, bench.name, 0), 180, 50)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([{"content": " a", "stop": False}, {"content": "", "stop": True, "timings": {"prompt_n": 9}}], None),
        ([{"content": " a", "stop": False}], "llama-server none gives no answer: it breaks off"),
        ([{"error": "no slot"}], "llama-server none gives no answer: no slot"),
        ([], "llama-server none gives no answer: it says nothing"),
    ],
)
def test_the_server_tells_token_by_token(lines: list[dict[str, Any]], said: str | None) -> None:
    asked = list[dict[str, Any]]()

    class Telling(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            for line in lines:
                self.wfile.write(b"data: " + json.dumps(line).encode() + b"\n\n")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Telling) as loopback:
        threading.Thread(target=loopback.handle_request, daemon=True).start()
        server = replace(SERVER, _port=loopback.server_port)
        if said is None:
            told = server._told({"prompt": "Once"})
            assert (told["content"], told["timings"]) == (" a", {"prompt_n": 9})
        else:
            with pytest.raises(OSError, match=said):
                server._told({"prompt": "Once"})
    assert asked == [{"prompt": "Once", "stream": True}]


@pytest.mark.parametrize("text", ["-1", "x", str(2**32)])
def test_a_seed_that_the_server_could_not_take_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py", f"--seed={text}"])
    with pytest.raises(SystemExit):
        peers.arguments()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "draft-modle"], "draft-modle"),
        (["--suite", "nowhere"], "nowhere"),
        (["-m", "nowhere.gguf"], "nowhere.gguf"),
        (["--temps", "x"], "'x'"),
        (["--n-max", "x"], "'x'"),
        (["--types", "none,ngram-map"], "the server has no ngram-map: --types none, draft-simple"),
        (["--flash-attn", "yes"], "the server has no yes"),
        (
            ["-m", str(PAIR / "target-q8_0.gguf"), "--methods", "plain", "--types", "draft-simple"],
            "no setting of the server is left",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line_before_anything_is_built(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object) -> Peers:
        raise AssertionError("nothing is built")

    monkeypatch.setattr(peers, "build", build)
    monkeypatch.setattr(sys, "argv", ["peers.py", *words])
    with pytest.raises(SystemExit) as caught:
        peers.main()
    told = str(caught.value)
    assert told.startswith("peers.py: ")
    assert said in told
    assert "\n" not in told


@pytest.mark.parametrize("option", ["--repeats", "--prompts", "-n"])
def test_there_is_at_least_one_of_everything(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py", option, "0"])
    with pytest.raises(SystemExit):
        peers.arguments()


def broken(folder: Path) -> Path:
    """Write a program that loads no model and says why, in llama-server's manner."""
    program = folder / "llama-server"
    program.write_text(
        "#!/bin/sh\necho 'loading' >&2\necho 'error loading model: no such' >&2\necho 'main: exit'\nexit 1"
    )
    program.chmod(0o755)
    return program


def test_a_server_that_does_not_start_is_named_in_one_line(tmp_path: Path) -> None:
    server = Server(broken(tmp_path), settings([], has_draft=False)[0], Path("t"), None, 1, 512)
    with pytest.raises(OSError, match="none does not start") as caught:
        server.ask(Cell(0, 0.0, server.setting.name, 0), Request(prompt="a"), "a")
    assert str(caught.value) == "llama-server none does not start: error loading model: no such"
    server.close()


def test_what_was_measured_outlasts_a_server_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answered(
        job: BenchJob, repeat: int, load: LoadSettings, servers: dict[str, Server], benches: dict[str, Bench]
    ) -> Iterator[Measurement]:
        timings = {"prompt_n": 9, "prompt_ms": 3.0, "predicted_n": 33, "predicted_ms": 64.0}
        cell = Cell(0, 0.0, "plain", repeat)
        yield servers["llama-server none"]._measured(cell, 1, {"timings": timings, "content": " a king"})
        server = servers["llama-server ngram-mod"]
        yield server.ask(Cell(0, 0.0, server.setting.name, repeat), Request(prompt="a"), "a")

    program = broken(tmp_path)
    monkeypatch.setattr(peers, "build", lambda *given: Peers(program, program))
    monkeypatch.setattr(peers, "run", answered)
    monkeypatch.setattr(sys, "argv", ["peers.py", "--json", str(tmp_path / "found.json"), "--temps", "0"])
    with pytest.raises(SystemExit) as caught:
        peers.main()
    assert caught.value.code == "incomplete: llama-server ngram-mod does not start: error loading model: no such"
    told = capsys.readouterr()
    assert "| plain" in told.out
    assert (tmp_path / "found.json").exists()


def test_the_instruction_sets_are_those_that_are_installed() -> None:
    options = features()
    assert not options or options[0] == "GGML_NATIVE=OFF"
    assert all(option.endswith(("=ON", "=OFF")) for option in options)
