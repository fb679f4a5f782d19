"""Server, chats and downloads against each other, with everything that may go wrong, and one page at the end.

  soak.py 2                     two hours
  soak.py 0.05 --seed 7         three minutes, drawn by another seed

Fifty clients ask one server: some leave in the queue or in a stream, some sleep, some send nonsense. Beside them runs
and edges are interrupted and killed, chats are held and killed, and a model is pulled from a hub of this machine.
Engines are killed, the disk for states fills up, and a second server wants the same port. Every request must end in an
answer or in a clear error, every answer that a command gave must be among the conversations, and nothing may grow or be
left behind. A thread of the soak that dies counts as lost.

The exit code is 1 where that is not so.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from soaking.clients import Client, Record, chat, pull, talk
from soaking.machine import Machine
from soaking.samples import Samples

from localspec.conversations.store import Store
from tests.hub.models import whole
from tests.hub.server import serving

CLIENTS = 50
EDGES = 2  # at once, of the server as their verifier
QUEUE = 40  # requests that the server lets wait
RATE = 2e6  # bytes a second of the hub
LEAVES = 240.0  # seconds for the server to end, and for a command to be done


class Soak:
    """One soak of so many seconds."""

    def __init__(self, machine: Machine, seconds: float, seed: int, wanted: dict[str, bytes]) -> None:
        self.machine, self.seconds, self.seed, self.wanted = machine, seconds, seed, wanted
        self.record, self.samples, self.over = Record(), Samples(), threading.Event()
        self.kills = 0

    def run(self) -> None:
        """Start everything, wait, end everything."""
        words = ("serve", "storyteller", "--port", "0", "--json", "--queue", str(QUEUE), "--cache-ram", "32MB")
        with (self.machine.folder / "server.log").open("wb") as log:
            server = self.machine.start(*words, stdout=subprocess.PIPE, stderr=log.fileno())
            assert server.stdout is not None
            url = urlsplit(json.loads(server.stdout.readline())["url"])
            address = (str(url.hostname), int(url.port or 0))
            threads = self._threads(address)
            for thread in threads:
                thread.start()
            self._watch(server)
            self.over.set()
            for thread in threads:
                thread.join()
            self._settle(address)
            server.send_signal(signal.SIGTERM)
            try:
                code = server.wait(LEAVES)
                self.expect(code == 143, f"the server left with {code}")
            except subprocess.TimeoutExpired:
                server.kill()
                self.expect(False, f"the server did not leave in {LEAVES:g} s")
        self.machine.start("stop", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait(LEAVES)
        self._look_for_answers()
        for each in self.machine.remains():
            self.record.note("end", "lost", f"left behind: {each}")

    def expect(self, is_so: bool, why: str) -> None:
        """Count what is not so as lost."""
        if not is_so:
            self.record.note("end", "lost", why)

    def _threads(self, address: tuple[str, int]) -> list[threading.Thread]:
        """Return the threads of all works, not started; one that dies is counted as lost."""
        guarded = self.record.guarded
        return [threading.Thread(target=guarded, args=work, name=work[0]) for work in self._work(address)]

    def _work(self, address: tuple[str, int]) -> list[tuple[str, Callable[[], None]]]:
        """Return what is done beside each other, by the names that are counted."""
        clients = [
            Client(self.machine, address, self.record, Random(f"{self.seed} {i}"), self.over) for i in range(CLIENTS)
        ]
        given, verifier = (self.machine, self.record), f"ws://{address[0]}:{address[1]}"
        return [
            *(("client", client.run) for client in clients),
            ("run", lambda: talk(*given, Random(f"{self.seed} run"), self.over)),
            *(
                ("edge", partial(talk, *given, Random(f"{self.seed} edge {i}"), self.over, verifier))
                for i in range(EDGES)
            ),
            ("chat", lambda: chat(*given, Random(f"{self.seed} chat"), self.over)),
            ("pull", lambda: pull(*given, Random(f"{self.seed} pull"), self.over, self.wanted)),
            ("harm", lambda: self._harm(Random(f"{self.seed} harm"), address)),
        ]

    def _harm(self, random: Random, address: tuple[str, int]) -> None:
        """Kill engines and keepers, fill the disk, and start a second server on the port."""
        while not self.over.wait(random.uniform(5, 25)):
            what = random.choice(("engine", "engine", "engine", "keeper", "disk", "disk", "port"))
            if what == "disk":
                self.machine.fill(random.uniform(2, 10))
            elif what == "port":
                second = self.machine.start("serve", "storyteller", "--port", str(address[1]),
                                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
                _, errors = second.communicate(timeout=LEAVES)
                self.expect(second.returncode == 7 and b"is taken" in errors, f"a second server: {errors!r}")
            else:
                self.kills += self.machine.kill(what, random)

    def _watch(self, server: subprocess.Popen[bytes]) -> None:
        ends = time.monotonic() + self.seconds
        pause = min(30.0, max(1.0, self.seconds / 400))
        while time.monotonic() < ends and server.poll() is None:
            self.samples.take(self.machine)
            time.sleep(pause)
        self.expect(server.poll() is None, f"the server died: {server.returncode}")

    def _settle(self, address: tuple[str, int]) -> None:
        """Ask once more, with nobody else there: a queue that is stuck shows."""
        client = Client(self.machine, address, self.record, Random(0), threading.Event())
        try:
            self.expect(client.whole() == "answered", "the server answers no more")
        except Exception as error:
            self.expect(False, f"the server answers no more: {error}")

    def _look_for_answers(self) -> None:
        """Look for each answer that a command gave among the conversations."""
        with Store.open(self.machine.home / "data" / "conversations.db") as store:
            kept = {}
            for found in store.conversations():
                texts = [message.text.strip() for message in store.messages(found.id)]
                kept[texts[0] if texts else ""] = texts
            for prompt, answer in self.record.said.items():
                texts = kept.get(prompt, [])
                self.expect(len(texts) >= 2 and (not answer or texts[1] == answer), f"not kept: {prompt[:60]}")

    def page(self) -> str:
        """Return the page."""
        ends = self.record.ends
        kinds = sorted({kind for kind, _ in ends})
        lines = [f"# Soak of {self.seconds / 3600:.2f} h, seed {self.seed}", "",
                 f"{CLIENTS} clients of one server, {EDGES} edges, runs, chats, downloads; "
                 f"{self.kills} processes killed; "
                 f"{'a full disk of 12 MB' if self.machine.has_disk else 'no disk of its own'}.", "",
                 "| client | ends |", "|---|---|"]  # fmt: skip
        for kind in kinds:
            told = ", ".join(f"{n} {end}" for (of, end), n in sorted(ends.items()) if of == kind)
            lines.append(f"| {kind} | {told} |")
        growing, lost = self.samples.growing(), self.record.lost
        lines += ["", *self.samples.table(), "", f"Answers of commands that are kept: {len(self.record.said)}.", ""]
        lines += [f"- lost: {each}" for each in lost[:40]] + [f"- {each}" for each in growing]
        lines += [f"Verdict: {'nothing lost, nothing grows' if not lost and not growing else 'NOT FLAT OR LOST'}."]
        return "\n".join(lines) + "\n"

    @property
    def is_well(self) -> bool:
        """Whether nothing was lost and nothing grows."""
        return not self.record.lost and not self.samples.growing()


def main() -> int:
    """Run a soak and print its page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hours", type=float, help="how long, as 2 or 0.05")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default: 1)")
    parser.add_argument("--page", type=Path, help="write the page to this file too")
    options = parser.parse_args()
    repos = whole()
    with serving(repos) as hub:
        hub.faults.rate = RATE
        machine = Machine(Path(tempfile.mkdtemp(prefix="soak-")), hub.endpoint)
        soak = Soak(machine, 3600 * options.hours, options.seed, repos["tales/storyteller-GGUF"].files)
        is_over = False
        try:
            soak.run()
            is_over = True
        finally:
            machine.close(keeps=not (is_over and soak.is_well))
    page = soak.page()
    sys.stdout.write(page)
    if options.page is not None:
        options.page.write_text(page, "utf-8")
    if not soak.is_well:
        sys.stdout.write(f"Its folder is kept: {machine.folder}\n")
    return 0 if soak.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
