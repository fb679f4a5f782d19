"""Clients of a soak. Each does one thing, and says how it ended: an answer, a clear error, its own leaving, or lost.

Of HTTP a clear error is 429 or 503 with a sentence, or a stream whose last part is one. Of a command it is an exit code
of the documented ones with one line.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Lock
from typing import Any

from soaking.machine import Machine

PATIENCE = 240.0  # seconds after which a request counts as lost
CODES = {0, 4, 7, 9, 130, 143}  # of commands that were answered or end in a clear error
WORDS = ("the fox", "the sea", "a king", "his three sons", "an old mill", "the winter", "a golden bird", "the forest")


@dataclass
class Record:
    """What all clients have seen. `said` are prompts of commands that ended with an answer, by the first words."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def note(self, kind: str, end: str, why: str = "") -> None:
        """Count an end; "lost" comes with the reason."""
        with self.lock:
            self.ends[kind, end] += 1
            if end == "lost":
                self.lost.append(f"{time.strftime('%H:%M:%S')} {kind}: {why}"[:300])

    def guarded(self, kind: str, work: Callable[[], None]) -> None:
        """Do a thread's work; where it dies of an error, that is a loss, not an end in silence."""
        try:
            work()
        except Exception as error:
            self.note(kind, "lost", f"{type(error).__name__}: {error}")


class Client:
    """One client after the other, of kinds that are drawn."""

    def __init__(self, machine: Machine, address: tuple[str, int], record: Record, random: Random, over: Event) -> None:
        self._machine, self._address, self._record = machine, address, record
        self._random, self._over = random, over

    def run(self) -> None:
        """Go on until the soak is over."""
        kinds = [
            self.whole,
            self.stream,
            self.stream,
            self.leaver,
            self.leaver,
            self.sleeper,
            self.ollama,
            self.nonsense,
        ]
        while not self._over.wait(self._random.expovariate(1.0)):
            kind = self._random.choice(kinds)
            try:
                end, why = kind(), ""
            except Exception as error:
                end, why = ("left", "") if self._over.is_set() else ("lost", f"{type(error).__name__}: {error}")
            self._record.note(kind.__name__, end, why)

    def whole(self) -> str:
        """Ask for an answer as one object."""
        return self._judged(*self._ask("/v1/chat/completions", self._chat()))

    def ollama(self) -> str:
        """Ask as clients of Ollama do."""
        body = {**self._chat(), "options": {"num_predict": self._random.randint(1, 80)}, "stream": False}
        del body["max_tokens"]
        return self._judged(*self._ask("/api/chat", body))

    def nonsense(self) -> str:
        """Send what is no request."""
        raw = self._random.randbytes(self._random.randint(0, 2000))
        status, answer = self._ask("/v1/chat/completions", raw)
        assert status == 400, (status, answer[:100])
        return "refused"

    def stream(self) -> str:
        """Read a stream to its end."""
        with self._opened(self._chat(stream=True)) as response:
            if response.status != 200:
                return self._judged(response.status, response.read())
            last = [line for line in response.read().split(b"\n\n") if line.startswith(b"data:")][-1]
        if last == b"data: [DONE]":
            return "answered"
        return self._judged(503, last.removeprefix(b"data: "))

    def leaver(self) -> str:
        """Leave in the queue, or in the middle of a stream."""
        seconds, n = self._random.uniform(0.01, 8), self._random.randint(1, 4000)
        opened = self._opened(self._chat(stream=True, max_tokens=4000), seconds=seconds)
        with opened as response, contextlib.suppress(OSError):
            response.read(n)
        return "left"

    def sleeper(self) -> str:
        """Ask for much, and read nothing for a while: the server cuts off who reads nothing."""
        with self._opened(self._chat(stream=True, max_tokens=4000)):
            self._over.wait(self._random.uniform(1, 45))
        return "left"

    def _chat(self, **fields: Any) -> dict[str, Any]:
        random = self._random
        told = " ".join(random.choices(WORDS, k=random.choice((3, 10, 60, 300))))
        messages = [{"role": "system", "content": "Tell a story."}] * random.randint(0, 1)
        return {
            "messages": [*messages, {"role": "user", "content": told}],
            "max_tokens": random.randint(1, 120),
            **fields,
        }

    def _ask(self, path: str, body: dict[str, Any] | bytes) -> tuple[int, bytes]:
        with self._opened(body, path) as response:
            try:
                return response.status, response.read()
            except http.client.IncompleteRead as broken:  # after a sign of life an error is told, and all breaks off
                return 503, broken.partial

    @contextlib.contextmanager
    def _opened(self, body: Any, path: str = "/v1/chat/completions", seconds: float = PATIENCE) -> Any:
        connection = http.client.HTTPConnection(*self._address, timeout=seconds)
        try:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", path, raw)
            yield connection.getresponse()
        except TimeoutError:
            if seconds == PATIENCE:
                raise
            yield _Gone()
        finally:
            connection.close()

    def _judged(self, status: int, body: bytes) -> str:
        answer = json.loads(body)
        if status == 200:
            assert answer.get("choices") or answer.get("message"), body[:200]
            return "answered"
        error = answer["error"]
        message = error if isinstance(error, str) else error["message"]
        assert status in (429, 503), (status, message)
        assert message
        assert "Traceback" not in message, message
        return "refused"


class _Gone:
    """Stands for the response of one who left before it came."""

    status = 200

    def read(self, n: int = 0) -> bytes:
        """Return nothing."""
        return b""


def talk(machine: Machine, record: Record, random: Random, over: Event, verifier: str = "") -> None:
    """Run one prompt after the other on a warm engine, some interrupted and some killed; as an edge of a verifier."""
    n, kind = 0, "edge" if verifier else "run"
    place = ["--verifier", verifier] if verifier else ["--keep-alive", "30s", "--cache-ram", "32MB"]
    while not over.is_set():
        n += 1
        own = random.getrandbits(32)  # two that run at once may draw the same words
        prompt = f"{kind} {n}.{own:x} {' '.join(random.choices(WORDS, k=random.choice((2, 40))))}"
        words = ["run", "-q", *place, "-n", str(random.randint(5, 300)), prompt]
        process = machine.start(*words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        number = random.choice((None, None, signal.SIGINT, signal.SIGKILL, signal.SIGTERM))
        try:
            if number is not None:
                over.wait(random.uniform(0.2, 6))
                process.send_signal(number)
            out, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            record.note(kind, "lost", f"{prompt[:40]} hangs")
            continue
        if number is not None and process.returncode == -number:
            if number == signal.SIGTERM and out:  # Python ends without our handlers: all was done and is kept
                record.said[prompt] = out.decode().strip()
            record.note(kind, "killed")
        elif number == signal.SIGINT and b"KeyboardInterrupt" in errors and b"/localspec/" not in errors:
            record.note(kind, "killed")  # while Python began: no line of localspec had run
        elif process.returncode not in CODES or b"Traceback" in errors:
            record.note(kind, "lost", f"exit code {process.returncode}: {errors.decode('utf-8', 'replace')[-150:]}")
        else:
            if process.returncode == 0:
                record.said[prompt] = out.decode().strip()
            record.note(kind, "answered" if process.returncode == 0 else f"exit code {process.returncode}")


def chat(machine: Machine, record: Record, random: Random, over: Event) -> None:
    """Hold short chats in lines, some of which are killed."""
    n = 0
    while not over.wait(random.uniform(0, 5)):
        n += 1
        lines = [f"Chat {n}.{i} {random.choice(WORDS)}" for i in range(random.randint(1, 4))]
        process = machine.start("chat", "--plain", "-q", "-n", "40", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)  # fmt: skip
        is_killed = random.random() < 0.3
        try:
            if is_killed:
                over.wait(random.uniform(1, 6))
                process.kill()
            _, errors = process.communicate("".join(f"{line}\n" for line in lines).encode(), timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            record.note("chat", "lost", f"{lines[0]} hangs")
            continue
        is_well = is_killed or (process.returncode in CODES and b"Traceback" not in errors)
        if not is_well:
            record.note("chat", "lost", f"exit code {process.returncode}: {errors.decode('utf-8', 'replace')[-150:]}")
            continue
        record.note("chat", "killed" if is_killed else "answered" if process.returncode == 0 else "refused")
        if process.returncode == 0:
            record.said[lines[0]] = ""


def pull(machine: Machine, record: Record, random: Random, over: Event, wanted: dict[str, bytes]) -> None:
    """Pull a model, killed in the middle; the last try must end with the right bytes. Then remove it."""
    name = "hf:tales/storyteller-GGUF:Q8_0"
    while not over.wait(random.uniform(0, 10)):
        for _ in range(random.randint(0, 3)):
            process = machine.start("pull", "-y", name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            over.wait(random.uniform(0.5, 4))
            process.send_signal(random.choice((signal.SIGKILL, signal.SIGINT)))
            process.wait(PATIENCE)
            record.note("pull", "killed")
        process = machine.start("pull", "-y", name, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=PATIENCE)
        found = list(Path(machine.env["HF_HOME"]).rglob("storyteller-Q8_0.gguf"))
        is_right = process.returncode == 0 and [path.read_bytes() for path in found] == [
            wanted["storyteller-Q8_0.gguf"]
        ]
        why = f"exit code {process.returncode}, {len(found)} files: {errors.decode('utf-8', 'replace')[-150:]}"
        record.note("pull", "answered" if is_right else "lost", why)
        machine.start("rm", "-y", name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait(PATIENCE)
