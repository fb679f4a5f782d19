"""Count the tokens that models with a state read again: after an edit, a dropped thought, a stop text, and Ctrl-C.

  rereads.py                    granitehybrid and qwen35 at 700 and 4 000 tokens, with random weights

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

from stateful_models import ARCHS, TINY, write_stateful

from localspec.engine.events import Finished, Prefilled, Reading
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
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
            if isinstance(event, Reading) and stops_at is not None and event.n >= stops_at:
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


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append", choices=ARCHS, help="default: granitehybrid and qwen35")
    options = parser.parse_args()
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
