"""`--server URL`: run, chat and race with the pair of a server, as on another machine; and jobs that harm it."""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.settings.jobs import Generate
from localspec.settings.request import Message, Request, Sampling, Speculation
from localspec.worker.codec import job_line
from localspec.worker.served import ServedWorker
from tests.cli.harness import REAL, Terminal, assert_one_line, environment, needs_pair, run_engine, wait_for
from tests.server.serving import LONG, Server, serving

pytestmark = needs_pair
KEY = "s3cret"
WORDS = ("--temp", "0", "-n", "16", LONG)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--api-key", KEY, "--ctx", "200000") as server:
        yield server


@pytest.fixture
def far(server: Server, tmp_path: Path) -> dict[str, str]:
    return {"LOCALSPEC_HOME": str(tmp_path), "LOCALSPEC_SERVER": server.url, "LOCALSPEC_API_KEY": KEY}


def test_run_has_the_text_of_this_machine_and_its_figures(far: dict[str, str]) -> None:
    """A conversation is kept here and goes on, and nothing of the model is."""
    here = json.loads(run_engine("run", "--json", "--method", "draft-model", "-k", "3", *WORDS).stdout)
    done = run_engine("run", "--json", "--method", "draft-model", "-k", "3", *WORDS, env=far)
    there = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert there["text"] == here["text"]
    assert there["timings"]["predicted_n"] == 16
    assert there["spec"]["drafted"] > 0
    assert there["pair"]["name"].startswith("storyteller at 127.0.0.1:")
    assert there["pair"]["draft"]["n_params"] == here["pair"]["draft"]["n_params"]
    more = json.loads(run_engine("run", "-c", "--json", *WORDS, env=far).stdout)
    assert more["session"] == there["session"]
    assert more["timings"]["prompt_n"] > there["timings"]["prompt_n"]


def test_every_output_of_run(far: dict[str, str]) -> None:
    steps = [json.loads(line) for line in run_engine("run", "--events", *WORDS, env=far).stdout.splitlines()]
    assert steps[-1]["type"] == "end"
    assert sum(len(each["out"]) for each in steps if each["type"] == "step") == 16
    with_tokens = json.loads(run_engine("run", "--json", "--logprobs", "2", *WORDS, env=far).stdout)
    assert len(with_tokens["tokens"]) == 16
    bare = run_engine("run", "--raw", "--logit-bias", "2=-inf", *WORDS, env=far)
    assert (bare.returncode, bare.stderr) == (0, b"")


def test_race_and_chats(far: dict[str, str]) -> None:
    done = run_engine("race", "storyteller", *WORDS, env=far)
    assert done.returncode == 0, done.stderr
    assert b"identical output, 16 tokens" in done.stdout
    said = b"Once\n/regen\n/model storyteller\nOnce\n"
    done = run_engine("chat", "--plain", "-n", "8", "--temp", "0", stdin=said, env=far)
    assert b"is for" not in done.stderr
    assert done.stdout.count(b"Assistant:") == 3
    assert b"this chat cannot change its pair" in done.stderr
    chat = Terminal(["chat", "-n", "8"], program=REAL, env=far)
    chat.wait_for(lambda: "storyteller at" in chat.text)
    chat.type("Once\r")
    chat.wait_for(lambda: " tokens ·" in chat.text)
    chat.type("\x11")
    assert chat.wait() == 0


def test_ctrl_c_stops_the_answer_there(server: Server, far: dict[str, str]) -> None:
    command = [*REAL, "run", "--raw", "--events", "--logit-bias", "2=-inf", "Once"]
    client = subprocess.Popen(command, env=environment(far), stdout=subprocess.PIPE)
    assert client.stdout is not None
    while json.loads(client.stdout.readline())["type"] != "step":
        pass
    client.send_signal(signal.SIGINT)
    last = json.loads(client.stdout.read().splitlines()[-1])
    client.stdout.close()
    assert client.wait() == 130
    assert last["result"]["finish_reason"] == "interrupted"
    assert last["result"]["text"]
    wait_for(lambda: server.queue() == (False, 0))


def test_a_client_that_is_killed_frees_the_server(server: Server, far: dict[str, str]) -> None:
    command = [*REAL, "run", "--raw", "--logit-bias", "2=-inf", "Once"]
    client = subprocess.Popen(command, env=environment(far), stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.read(1)
    client.kill()
    client.wait()
    client.stdout.close()
    wait_for(lambda: server.queue() == (False, 0))


class Other(BaseHTTPRequestHandler):
    """A server that is not ours: it says yes to everything, or nothing at all."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_one_clear_line(server: Server, far: dict[str, str]) -> None:
    """Where the server cannot be reached, wants another key, has no such model, or is none of ours."""
    run = ("run", *WORDS)
    unreachable = run_engine(*run, env={**far, "LOCALSPEC_SERVER": "http://127.0.0.1:9"})
    assert_one_line(unreachable, 4, "no server answers at http://127.0.0.1:9: Connection refused", "localspec serve")
    wrong = run_engine(*run, env={**far, "LOCALSPEC_API_KEY": "wrong"})
    assert_one_line(wrong, 4, "does not take this key", "--api-key KEY")
    without = run_engine(*run, env={**far, "LOCALSPEC_API_KEY": ""})
    assert_one_line(without, 4, "wants its API key", "--api-key KEY")
    assert KEY not in wrong.stderr.decode()
    assert_one_line(
        run_engine("run", "-m", "smollm", *WORDS, env=far), 3, "there is no model 'smollm' here", "/v1/models"
    )
    assert_one_line(run_engine(*run, env={**far, "LOCALSPEC_SERVER": "ftp://x"}), 2, "--server 'ftp://x' is no address")
    assert_one_line(run_engine("run", "--ctx", "512", *WORDS, env=far), 2, "--ctx is for who loads the pair")
    assert_one_line(run_engine("run", "--corpus", ".", *WORDS, env=far), 2, "--corpus names files of this machine")
    other = HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{other.server_address[1]}"
        assert_one_line(
            run_engine(*run, env={**far, "LOCALSPEC_SERVER": url}), 4, f"at {url} is no server of localspec"
        )
    finally:
        other.shutdown()
        thread.join()
        other.server_close()


def test_a_server_that_dies_in_an_answer(tmp_path: Path) -> None:
    with serving("--ctx", "200000") as server:
        env = {"LOCALSPEC_HOME": str(tmp_path), "LOCALSPEC_SERVER": server.url}
        command = [*REAL, "run", "--raw", "--logit-bias", "2=-inf", "Once"]
        client = subprocess.Popen(command, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert client.stdout is not None
        assert client.stdout.read(1)
        server.close()
        assert b"broke off its answer" in client.communicate()[1]
        assert client.returncode == 4


def ask(server: Server, job: dict[str, Any]) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {KEY}"}
    return server.ask("POST", "/v1/events", {"job": job}, headers)[:2]


def wire(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(job_line(Generate(request)))
    return found


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (Request(prompt="x", speculation=Speculation(corpus=("/etc",))), "--corpus names files"),
        (Request(prompt="x", reads_ahead=True), "not for clients"),
        (Request(messages=(Message("user", "x"),), tools="[]"), "not for clients"),
        (Request(prompt="x", sampling=Sampling(temperature=-1.0)), "--temp"),
        (Request(prompt="x", max_tokens=0), "--max-tokens"),
        (Request(prompt="x", stop=("a" * 10_000,)), "texts that end an answer"),
        (Request(prompt="x", regex="a" * 300_000), "characters"),
        (Request(prompt="x", grammar=f'root ::= "{"a" * 40_000}"'), "characters"),
        (Request(prompt="x", template_args=(("messages", []),)), "variable"),
        (Request(prompt="x", speculation=Speculation(method="nonsense")), "nonsense"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_job_that_would_harm(server: Server, request_: Request, told: str) -> None:
    status, answer = ask(server, wire(request_))
    assert (status, told in answer["error"]["message"]) == (400, True), answer


def test_what_is_no_job(server: Server) -> None:
    load = {"seq": 0, "command": "load", "settings": {"target": "/etc/passwd"}}
    fork = {"command": "forkquestion", "request": wire(Request(prompt="x"))["request"], "seed": 1}
    for job in ({}, load, {"command": "generate"}, {"command": "generate", "request": 1}, {"command": "lenddevices"},
                {**fork, "plain": [10**9], "other": [1]}, {**fork, "plain": [-1], "other": [1]}):  # fmt: skip
        status, answer = ask(server, job)
        assert (status, answer["error"]["param"]) == (400, "job"), answer
    status, found = ask(server, wire(Request(messages=(Message("user", "x", ids=(10**9, -5)),), max_tokens=1)))
    assert status == 200
    assert b'"type":"finished"' in found, "tokens of a client are not read"


def test_addresses() -> None:
    for url in ("", "http://", "ftp://host", "http://host:port"):
        with pytest.raises(UsageError, match="is no address"):
            ServedWorker(url)
    for url in ("host", "host:8080", "http://host:8080/v1", "https://host/base/v1/"):
        assert ServedWorker(url)
