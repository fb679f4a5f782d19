"""Texts and files that are made to be slow or deep: nothing is read for ever, and nothing nested ends a command."""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from localspec.backends import lib, tokenizer
from localspec.bench import contenders
from localspec.bench.result import Hashes
from localspec.chat import commands, message_commands  # noqa: F401 - it registers all in their order
from localspec.cli.output import Sentences
from localspec.control.profile import Profile
from localspec.conversations import records
from localspec.engine.text import TextStream
from localspec.errors import LocalspecError
from localspec.models.catalog import read_tables
from localspec.models.derived_files import _is_there
from localspec.models.exit_files import Exits
from localspec.models.gguf.header import read_header
from localspec.models.hub import problems
from localspec.models.hub.pulled import Receipts
from localspec.prompt import reasoning_marks
from localspec.settings import config_file, sizes, values
from tests.models.gguf_files import model as small_model

SECONDS = 20.0  # of processor time; hundreds of times what any of these takes, and nothing beside what they once took
N = 200_000
TEXTS = {
    "one word": "a" * N,
    "spaces": " " * N,
    "lines": "\n" * N,
    "a channel": "<|channel|>" + "a" * N,
    "channels": "<|channel|>" * (N // 10),
    "constraints": "<|channel|>a<|constrain|>" * (N // 20),
    "turns": "<|start|>assistant" * (N // 18),
    "back quotes": "`" * N,
    "tildes": "~" * N,
    "fences": "```\n" * (N // 4),
    "open fences": "~~~a\n" * (N // 5) + "x",
    "marks": "<|" * (N // 2),
    "one mark": "<" + "a" * N,
    "functions": "a: " * (N // 3),
    "addresses": "//a" * (N // 3),
    "options": "-a" * (N // 2),
    "digits": "1" * N,
}
SEARCHED = {
    "head of a channel": reasoning_marks._HEAD,
    "refused marks": reasoning_marks._REFUSED,
    "blocks of code": message_commands._BLOCK,
    "fences": records._FENCE,
    "control tokens": tokenizer._MARK,
    "places in llama.cpp": lib._WHERE,
    "contenders": contenders._BETWEEN,
    "escapes": values._ESCAPE,
    "tokens of the hub": problems._TOKEN,
    "passwords": problems._PASSWORD,
}
MATCHED = {"sizes": sizes._SIZE, "keys of config.toml": config_file._DEEP}


@contextmanager
def limited() -> Iterator[None]:
    """End what is done within this after SECONDS of processor time: it would go on for hours."""

    def end(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it takes too long")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("pattern", SEARCHED.values(), ids=SEARCHED)
def test_a_search_takes_as_long_as_its_text(pattern: re.Pattern[str]) -> None:
    with limited():
        for text in TEXTS.values():
            assert sum(1 for _ in pattern.finditer(text)) >= 0


@pytest.mark.parametrize("pattern", MATCHED.values(), ids=MATCHED)
def test_a_match_takes_as_long_as_its_text(pattern: re.Pattern[str]) -> None:
    with limited():
        found = [pattern.fullmatch(text) for text in TEXTS.values()]
    assert len(found) == len(TEXTS), "no text took so long that the limit ended it"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_in_pieces_takes_as_long_as_it_is(text: str) -> None:
    """With stop strings that the text is always about to say, and read in sentences."""
    stream, spoken = TextStream((text[:200] + "never", text[:1] * 300 + "never")), Sentences()
    said = ""
    with limited():
        for at in range(0, 20_000, 4):
            said += spoken.feed(stream.feed(text[at : at + 4].encode()))
        said += spoken.feed(stream.finish()) + spoken.finish()
    assert said == text[:20_000]


DEEP = '{"a":' * 50_000 + "1" + "}" * 50_000


def _receipt(file: Path) -> object:
    receipts = Receipts(file.parent)
    blob = file.parent / "blob"
    receipts._path(blob).write_text(DEEP)
    return receipts.any(blob)


def _tuned(file: Path) -> object:
    exits = Exits(read_header(small_model().write(file.parent / "m.gguf")), file.parent)
    exits._tuned_path.write_text(DEEP)
    return exits.tuned()


READERS: dict[str, Callable[[Path], object]] = {
    "a profile": lambda file: Profile(file)._read(),
    "hashes": lambda file: Hashes(file).stored() or None,
    "a receipt": _receipt,
    "the tuned exit": _tuned,
    "the source of an exit": lambda file: None if _is_there(file) else file,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_file_that_is_nested_too_deeply_is_one_that_cannot_be_read(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    """localspec's own files: damaged ones are done without."""
    file = tmp_path / "deep.json"
    file.write_text(DEEP)
    assert read(file) is None


@pytest.mark.parametrize("text", ["a = " + "[" * 50_000, "a" + ".a" * 3000 + " = 1", "[" + "a." * 3000 + "a]"])
@pytest.mark.parametrize("read", [lambda _: config_file.read_configuration(), read_tables])
def test_a_file_of_the_user_that_is_nested_too_deeply_is_refused_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object], text: str
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    file = config_file.config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    told = ""
    with limited():
        try:
            read(file)  # dotted names of any length are TOML
        except LocalspecError as error:
            told = error.message
    assert "\n" not in told
