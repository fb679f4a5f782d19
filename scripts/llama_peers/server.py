"""llama-server with one setting, as a contender: the same requests, measured by its own timings."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from localspec.bench.measurement import Cell, Measurement, hashed
from localspec.bench.runner import WARM_UP
from localspec.settings.request import Request
from localspec.worker.client import FRAME

START = 300.0  # seconds for a model to load
EVENT = b"data: "
TYPES = ("none", "draft-simple", "ngram-simple", "ngram-mod")
HEADS = ("draft-eagle3", "draft-mtp")  # with a draft head, only where they are asked for
ATTENTIONS = ("auto", "on", "off")


@dataclass(frozen=True)
class Setting:
    """`name` in the table and the options that make it."""

    name: str
    options: tuple[str, ...]
    needs_draft: bool = False


def settings(
    n_max: Sequence[int], *, has_draft: bool, types: Sequence[str] = TYPES, attentions: Sequence[str] = ("auto",)
) -> list[Setting]:
    """Return the sweep: every type of speculation (several with a plus between), those with a draft at every length.

    Each with every kind of flash attention: the server's own choice, "auto", is to have it, and localspec's is not.
    """
    found = []
    for attention in attentions:
        said = "" if attention == "auto" else f" fa={attention}"
        for kind in types:
            words = kind.split("+")
            options = ("--spec-type", ",".join(words), "-fa", attention)
            if not {"draft-simple", *HEADS}.intersection(words):
                found.append(Setting(f"llama-server {kind}{said}", options))
            elif has_draft:
                found += [
                    Setting(f"llama-server {kind} n-max={n}{said}", (*options, "--spec-draft-n-max", str(n)), True)
                    for n in n_max
                ]
    return found


@dataclass
class Server:
    """One setting, which answers with one slot, each time by a process of its own."""

    program: Path
    setting: Setting
    target: Path
    draft: Path | None
    threads: int
    ctx: int
    _process: subprocess.Popen[bytes] | None = None
    _port: int = 0
    _log: Any = field(default_factory=tempfile.TemporaryFile)

    def ask(self, cell: Cell, request: Request, text: str) -> Measurement:
        """Return the account of one answer, from an empty cache; raises OSError, with its name, where there is none.

        A request with messages goes through the chat template of the model, as localspec's does.
        """
        sampling, seed = request.sampling, _seed(cell, request)
        try:
            self._start()
            self._told({"prompt": "Once", "n_predict": WARM_UP, "cache_prompt": False})
            answer = self._told(
                {
                    "prompt": self._rendered(text) if request.messages else text,
                    "n_predict": request.max_tokens, "cache_prompt": False, "seed": seed,
                    "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p,
                    "min_p": sampling.min_p,
                }
            )  # fmt: skip
            return self._measured(cell, seed, answer)
        finally:
            self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        draft = ["-md", str(self.draft)] if self.setting.needs_draft else []
        threads = [option for name in ("-t", "-tb") for option in (name, str(self.threads))]
        threads += ["--spec-draft-threads", str(self.threads)] if draft else []
        self._log.seek(0)
        self._log.truncate()  # what the process before said
        self._process = subprocess.Popen(
            [
                str(self.program), "-m", str(self.target), *draft, *threads, *self.setting.options, "-c", str(self.ctx),
                "-np", "1", "--host", "127.0.0.1", "--port", str(self._port), "--cache-ram", "0", "--offline",
            ],
            stdout=self._log, stderr=self._log,
        )  # fmt: skip
        deadline = time.monotonic() + START
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                self._get("/health")
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"{self.setting.name} does not start: {self._said()}")
            time.sleep(0.1)

    def _said(self) -> str:
        """Return the line of the log that tells most of what went wrong: the first error, or the last line."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return next((line for line in lines if "error" in line.lower()), (lines or ["it says nothing"])[-1])

    def _get(self, path: str) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
            answer.read()

    def _told(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the last event of an answer that is told token by token, with the whole `content` in it."""
        asked = json.dumps({**body, "stream": True}).encode()
        head = (
            "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(asked)}\r\n\r\n"
        )
        received = bytearray()
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=3600) as connection:
                connection.sendall(head.encode() + asked)
                while chunk := connection.recv(1 << 20):
                    received += chunk
                    time.sleep(FRAME)  # as localspec reads its own engine, and what it says is looked at afterwards
            events = _events(bytes(received))
            if events and "timings" in events[-1]:
                return {**events[-1], "content": "".join(event.get("content", "") for event in events)}
            raise ValueError(events[-1].get("error", "it breaks off") if events else "it says nothing")
        except (OSError, HTTPException, ValueError) as error:
            raise OSError(f"{self.setting.name} gives no answer: {error}") from error

    def _rendered(self, text: str) -> str:
        """Return a question as the chat template writes it."""
        body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
        url = f"http://127.0.0.1:{self._port}/apply-template"
        asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            prompt: str = json.load(answer)["prompt"]
        return prompt

    def _measured(self, cell: Cell, seed: int, answer: dict[str, Any]) -> Measurement:
        """Return the server's timings as ours: its `predicted_ms` begins after the first token, as ours does.

        What the draft model reads of the prompt is in its `prompt_ms`, and in localspec's time of the tokens after the
        first: only the time of the whole answer compares that, which is both programs' own, without who reads them.
        """
        timings = answer["timings"]
        total_ms = timings["prompt_ms"] + timings["predicted_ms"]
        n, accepted = int(timings["predicted_n"]), int(timings.get("draft_n_accepted", 0))
        reason = "length" if answer.get("stop_type") == "limit" else "stop"
        return Measurement(
            cell=cell, seed=seed, method=self.setting.name, tree="chain", length="fixed", k=0,
            verify="match", reason=reason, prompt_n=int(timings["prompt_n"]), prefill_ms=timings["prompt_ms"],
            ttft_ms=timings["prompt_ms"], total_ms=total_ms, tokens=n, decoded=max(0, n - 1),
            decode_ms=timings["predicted_ms"], passes=n - accepted, drafted=int(timings.get("draft_n", 0)),
            accepted=accepted, tested_per_pos=(), accepted_per_pos=(), reached_per_pos=(), draft_ms=0.0,
            verify_ms=0.0, host_ms=0.0, peak_memory=0, text_hash=hashed(answer["content"]),
        )  # fmt: skip


def _events(received: bytes) -> list[dict[str, Any]]:
    """Return what a whole HTTP answer tells; raises HTTPException or ValueError for one that is none."""
    link: Any = SimpleNamespace(makefile=lambda *_: BytesIO(received))  # all that http.client asks of a socket
    answer = HTTPResponse(link)
    answer.begin()
    lines = answer.read().splitlines()
    if answer.status != HTTPStatus.OK:
        raise ValueError(b" ".join(lines)[:200].decode(errors="replace") or answer.reason)
    return [json.loads(line.removeprefix(EVENT)) for line in lines if line.startswith(EVENT)]


def _seed(cell: Cell, request: Request) -> int:
    """Return the seed that was asked for, or one for every prompt and repetition: what is drawn twice is one sample."""
    return 1 + cell.prompt + 1000 * cell.repeat if request.sampling.seed is None else request.sampling.seed
