"""Count the tokens that models with a state read again: after an edit, a dropped thought, a stop text, and Ctrl-C.

  rereads.py                    granitehybrid and qwen35 at 700 and 4 000 tokens, with random weights
  rereads.py --chat 40          a chat of 40 turns with the bundled target, which outgrows 2 048 tokens

A chat counts the tokens of all prompts, those that were read, and how often turns were left out. It asks for nothing
that versions since 0.1 lack: with PYTHONPATH at the root of another tree it counts there.

The pair is written on the spot, with the bundled tokenizer and a draft whose guesses are often right. Counts depend on
no clock, but for the chunk that Ctrl-C comes in. `new` is what no run before has read: the message that changed, the
answer before it where that is a part of the prompt, and what Ctrl-C left. Beside that at most 512 tokens may be read
again; the exit code is 1 where there are more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stateful_models import ARCHS, TINY, write_stateful

import localspec
from localspec.engine import events
from localspec.engine.events import Finished, Prefilled, Started
from localspec.prompt.named_templates import CHATML
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
from localspec.worker.client import Worker

LEAST = 512  # tokens between two checkpoints
LENGTHS = (700, 4000)
STORY = "Once upon a time there was a king who had three sons, and the youngest of them went into the forest alone. "
ANSWER = 24  # tokens


@dataclass(frozen=True)
class Row:
    """What happened, tokens of the prompt, tokens that were read, and those of them that are new."""

    what: str
    prompt: int
    read: int
    new: int

    @property
    def is_well(self) -> bool:
        """Whether no more than the distance of two checkpoints was read again."""
        return self.read <= self.new + LEAST


class Reader:
    """One loaded pair, asked raw prompts."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.text = ""
        self._n: dict[str, int] = {}

    def ask(self, prompt: str, *, stop: str = "", stops_at: int | None = None) -> Prefilled | None:
        """Answer a prompt; the answer's text is in `text`. `stops_at`: cancel once so many tokens are read."""
        drafts = Speculation(method="draft-model", k=4)
        request = Request(prompt=prompt, max_tokens=ANSWER, sampling=Sampling(temperature=0.0), speculation=drafts)
        self.text, found = "", None
        for event in self._worker.generate(replace(request, stop=(stop,) if stop else ())):
            if stops_at is not None and isinstance(event, events.Reading) and event.n >= stops_at:
                self._worker.cancel()
            if isinstance(event, Prefilled):
                found = event
            self.text += getattr(event, "text", "") + (event.tail if isinstance(event, Finished) else "")
        return found

    def length(self, text: str) -> int:
        """Return the tokens of a text, by a prompt of it in an empty cache."""
        if text not in self._n:
            request = Request(prompt=text, max_tokens=1, cold=True)
            (found,) = (each for each in self._worker.generate(request) if isinstance(each, Prefilled))
            self._n[text] = found.prompt_n
        return self._n[text]


def rows(reader: Reader, length: int) -> Iterator[Row]:
    """Yield the four cases with a prompt of about `length` tokens."""
    head = STORY * (length // reader.length(STORY))
    first, other = " What did the youngest son do?", " Where was the king?"

    def row(what: str, prompt: str, *new: str) -> Row:
        found = reader.ask(prompt)
        assert found is not None
        return Row(what, found.prompt_n, found.prompt_n - found.cache_n, sum(map(reader.length, new)))

    for text in (first, other):
        reader.length(text)
    reader.ask(head + first)
    yield row("an edit of the last message", head + other, other)
    reader.ask(head + first)
    thought, answer = reader.text, " He went on."
    reader.ask(head + first + thought + other)
    yield row("a dropped thought", head + first + answer + other, answer, other)
    reader.ask(head + first)
    whole = reader.text
    stop = whole[len(whole) // 2 :][:3]
    reader.ask(head + first, stop=stop)
    cut = reader.text
    yield row("a stop text inside a draft", head + first + cut + other, cut, other)
    again = f"{length} " + head
    n = reader.length(again)
    other_one = f"{length + 1} " + head  # nothing of it was read
    reader.ask(other_one, stops_at=n // 2)
    found = reader.ask(other_one)
    assert found is not None
    yield Row("Ctrl-C in the middle of reading", found.prompt_n, found.prompt_n - found.cache_n, n - n // 2)


def chat(turns: int, most: int) -> None:
    """Print what a chat reads that outgrows its context: each question is of its own, answers are short."""
    model = Path(localspec.__file__).parents[1] / "models" / "storyteller" / "target-q8_0.gguf"
    cut: dict[str, Any] = {}
    messages: tuple[Message, ...] = ()
    prompts = read = cuts = 0
    with Worker() as worker:
        for _ in worker.load(LoadSettings(str(model), ctx=2048)):
            pass
        for turn in range(turns):
            messages += (Message("user", f"Tell me about day {turn} of the journey. {STORY}"),)
            request = Request(messages, max_tokens=most, template=CHATML, shorten=True,
                              sampling=Sampling(temperature=0.0), speculation=Speculation("plain"), **cut)  # fmt: skip
            text, before = "", cut
            for event in worker.generate(request):
                if isinstance(event, Started) and hasattr(event, "left_out"):
                    cut = {"left_out": event.left_out}
                if isinstance(event, Prefilled):
                    prompts, read = prompts + event.prompt_n, read + event.prompt_n - event.cache_n
                text += getattr(event, "text", "") + (event.tail if isinstance(event, Finished) else "")
            cuts += cut != before
            messages += (Message("assistant", text),)
    print(f"{turns} turns: {prompts} tokens of prompts, {read} read, the cut moved {max(0, cuts - 1)} times")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append", choices=ARCHS, help="default: granitehybrid and qwen35")
    parser.add_argument("--chat", type=int, metavar="TURNS")
    parser.add_argument("-n", type=int, dest="most", default=60, help="tokens of an answer of the chat")
    options = parser.parse_args()
    if options.chat:
        chat(options.chat, options.most)
        return 0
    print("| model | what | prompt | read | of it new |\n|---|---|---|---|---|")
    is_well = True
    for arch in options.arch or ("granitehybrid", "qwen35"):
        with tempfile.TemporaryDirectory() as folder, Worker() as worker:
            target, draft = Path(folder) / "target.gguf", Path(folder) / "draft.gguf"
            size = replace(TINY, layers=8, whole=ARCHS[arch][1], late=0.07)
            write_stateful(target, arch, size, "Q8_0", 0)
            write_stateful(draft, arch, replace(size, layers=ARCHS[arch][1], has_block=False), "Q8_0", 0)
            for _ in worker.load(LoadSettings(str(target), str(draft), ctx=8192, cache_disk="0")):
                pass
            reader = Reader(worker)
            for length in LENGTHS:
                for row in rows(reader, length):
                    print(f"| {arch} | {row.what} | {row.prompt} | {row.read} | {row.new} |", flush=True)
                    is_well &= row.is_well
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
