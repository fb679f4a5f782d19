"""An engine with four clients, one of whose processes is killed at a moment that a seed draws.

Each client that lives gets its whole text, or the start of it and one error. Nothing of the engine is left.
With LOCALSPEC_KILLS=500 it kills 500 times, else ten.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from random import Random

import pytest

from localspec.engine.events import Committed, Event, Finished, Prefilled, Started, Waiting
from localspec.errors import WorkerDiedError
from localspec.settings.request import LoadSettings, Request, Sampling
from localspec.worker.engines import engines_in_memory
from localspec.worker.keep_policy import KeepAlive
from localspec.worker.runtime import runtime_folder
from localspec.worker.shared import SharedWorker
from tests.cli.harness import TIMEOUT, is_running, needs_pair, wait_for

STORYTELLER = files("localspec.models") / "storyteller"
PAIR = LoadSettings(
    target=str(STORYTELLER / "target-q8_0.gguf"),
    draft=str(STORYTELLER / "draft-q8_0.gguf"),
    ctx=2048,
    reproducible=True,
    parallel=4,
)
PROMPTS = ("Once upon a time", "There was a fox", "The old king " * 60, "A girl walked")
REQUESTS = [Request(prompt=text, max_tokens=60, sampling=Sampling(temperature=0.0)) for text in PROMPTS]
KINDS: list[type[Event]] = [Waiting, Started, Prefilled, Committed, Finished]
KEEP = KeepAlive(0.5)

CLIENT = """
import json, sys
from localspec.engine.events import Committed
from tests.worker.test_engine_kills import KEEP, PAIR, REQUESTS
from localspec.worker.shared import SharedWorker
with SharedWorker("client", keep_alive=KEEP) as worker:
    list(worker.load(PAIR))
    for event in worker.generate(REQUESTS[int(sys.argv[1])]):
        print(json.dumps([type(event).__name__, getattr(event, "text", "") + getattr(event, "tail", "")]), flush=True)
"""


@dataclass
class Client:
    """One that asks in a thread. `ended` is how its answer ended."""

    number: int
    moment: threading.Event  # set after `n` events of `kind`
    kind: type[Event] | None = None
    n: int = 1
    text: str = ""
    ended: object = None
    errors: list[WorkerDiedError] = field(default_factory=list)

    def run(self) -> None:
        with SharedWorker("thread", keep_alive=KEEP) as worker:
            for _ in range(2):
                try:
                    list(worker.load(PAIR))
                    self._answer(worker)
                except WorkerDiedError as error:
                    self.errors.append(error)
                else:
                    return

    def _answer(self, worker: SharedWorker) -> None:
        self.text, n = "", 0
        for event in worker.generate(REQUESTS[self.number]):
            if isinstance(event, Committed):
                self.text += event.text
            elif isinstance(event, Finished):
                self.text += event.tail
                self.ended = event.reason
            if self.kind is not None and isinstance(event, self.kind):
                n += 1
                if n == self.n:
                    self.moment.set()


@pytest.fixture(scope="module")
def whole() -> list[str]:
    """The texts that nobody disturbs."""
    clients = [Client(i, threading.Event()) for i in range(len(REQUESTS))]
    with SharedWorker() as worker:
        list(worker.load(PAIR))
        for client in clients:
            client._answer(worker)
    return [client.text for client in clients]


@needs_pair
@pytest.mark.parametrize("seed", range(int(os.environ.get("LOCALSPEC_KILLS", "10"))))
def test_whoever_is_killed_the_others_go_on(
    seed: int, whole: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    draw = Random(seed)
    victim = draw.choice(["child", "engine", "client"])
    moment = threading.Event()
    clients = [Client(i, moment) for i in range(3)]
    watched = draw.choice(clients)
    watched.kind, watched.n = draw.choice(KINDS), draw.randint(1, 12)
    other = subprocess.Popen([sys.executable, "-c", CLIENT, "3"], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    moment.wait(draw.uniform(0.2, 2.0))
    time.sleep(draw.uniform(0.0, 0.02))
    facts = next((each for each in engines_in_memory() if "id" in each), None)
    pids = {"client": other.pid}
    if facts is not None:
        pids |= {"child": facts["pid"], "engine": facts["engine_pid"]}
    killed = pids.get(victim) or other.pid
    os.kill(killed, signal.SIGKILL)
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    out, _ = other.communicate(timeout=TIMEOUT)
    for client in clients:
        assert client.text == whole[client.number], (client, victim)
        assert client.ended in ("stop", "length")
        assert len(client.errors) <= (killed != other.pid), client
    said = "".join(text for _, text in map(json.loads, out.splitlines()))
    assert whole[3].startswith(said)
    wait_for(lambda: not any(is_running(pid) for pid in pids.values()))
    wait_for(lambda: not engines_in_memory())
    assert os.listdir(runtime_folder()) == []
