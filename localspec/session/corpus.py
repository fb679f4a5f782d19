"""The corpus of a request: files that people name, as tokens of the target, indexed beside the answer and kept on disk.

Files are read in groups, and each group is a `CorpusSegment` in a file of the cache folder. Its name says which files
it holds as they were, and by which tokenizer. So a file that changes costs its own group only.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from localspec.engine.corpus import Corpus, CorpusSegment
from localspec.engine.events import Warned
from localspec.engine.protocols import Cancel
from localspec.models.gguf.vocab import Vocab
from localspec.sanitize import decoded
from localspec.session.loaded_model import LoadedModel
from localspec.settings.folders import answers_folder, cache_folder, replacing
from localspec.settings.sizes import counted
from localspec.settings.text_files import files_below, ignored_by_git, is_binary

LARGEST = 256 << 20  # bytes of texts in one corpus
LARGEST_FILE = 4 << 20  # longer texts are data, as a rule
LARGEST_KEPT = 2 << 30  # bytes of segments in the cache folder
GROUP = 2 << 20, 16 << 20  # bytes of a group: from the first on it may end, at the second it does
GROUP_ENDS = 32  # files of 256 that may end a group. Their names decide: a longer file moves no other group's end
NICE = 10  # the priority of the thread that reads: an answer goes first
FORMAT = 1
LOOKS = 0.1  # seconds between looks at a cancel


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of a corpus, as it was when it was listed."""

    path: Path
    bytes: int
    changed_ns: int


def listed(names: Sequence[str]) -> Iterator[TextFile]:
    """Yield the files that names stand for, LARGEST bytes at most; not all need be texts."""
    left = LARGEST
    for name in names:
        path = Path(name)
        files = list(files_below(path, lambda reason: None)) if path.is_dir() else [path]
        ignored = ignored_by_git(files) if path.is_dir() and path != answers_folder() else set()
        for file in files:
            with suppress(OSError):
                status = file.stat()
                is_hidden = path.is_dir() and file.name.startswith(".")
                if file not in ignored and not is_hidden and 0 < status.st_size <= min(left, LARGEST_FILE):
                    left -= status.st_size
                    yield TextFile(file, status.st_size, status.st_mtime_ns)


def groups(files: Iterator[TextFile]) -> Iterator[list[TextFile]]:
    least, most = GROUP
    group: list[TextFile] = []
    size = 0
    for file in files:
        group.append(file)
        size += file.bytes
        if size >= most or (size >= least and hashlib.sha256(os.fsencode(file.path)).digest()[0] < GROUP_ENDS):
            yield group
            group, size = [], 0
    if group:
        yield group


@dataclass(slots=True)
class CorpusReader:
    """The corpus of the last request, which a thread of its own reads."""

    _names: tuple[str, ...] = ()
    _corpus: Corpus = field(default_factory=Corpus)
    _thread: threading.Thread | None = None
    _is_closed: threading.Event = field(default_factory=threading.Event)
    _was_read: bool = False  # to its end, once

    def corpus(
        self, names: tuple[str, ...], target: LoadedModel, cancel: Cancel, *, waits: bool = False
    ) -> Corpus | None:
        """Return the corpus of files and folders, None where none is named; it grows while it is read.

        Each request looks for what changed. With `waits` all of it is read first, unless `cancel()`.
        """
        if not names:
            return None
        if names != self._names:
            self.close()
            self._names, self._corpus = names, Corpus()
        if self.is_ready:
            self._was_read = self._thread is not None
            self._is_closed = threading.Event()
            job = _Job(names, self._corpus, target.model.tokenize, target.info.vocab, self._is_closed.is_set)
            self._thread = threading.Thread(target=job.read, daemon=True)
            self._thread.start()
        while waits and self._thread is not None and not self.is_ready and not cancel():
            self._thread.join(LOOKS)
        return self._corpus

    @property
    def is_ready(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def lacks(self, names: tuple[str, ...]) -> Iterator[Warned]:
        """Tell what an answer with the corpus `names` missed of it. Nobody named the files of earlier answers."""
        n_files = self._corpus.n_files
        if not set(names) - {str(answers_folder())}:
            return
        if not (self.is_ready or self._was_read):
            more = f"the next answer has more of it than {counted(n_files, 'file')}"
            yield Warned("corpus", f"the corpus was not read to its end: {more}")
        elif not n_files:
            yield Warned("corpus", "the corpus has no text")

    def close(self) -> None:
        """Stop reading, and wait for that: the tokenizer may end then."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None


@dataclass(frozen=True, slots=True)
class _Job:
    """What a thread reads. It stops early once `is_closed()`."""

    names: tuple[str, ...]
    corpus: Corpus
    tokenize: Callable[[str], Sequence[int]]
    vocab: Vocab
    is_closed: Callable[[], bool]

    def read(self) -> None:
        with suppress(OSError, AttributeError):  # only Linux has priorities of threads
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        folder, tokenizer = cache_folder("corpus"), _identity(self.vocab)
        seen = []
        for group in groups(listed(self.names)):
            name = _name(tokenizer, group)
            seen.append(name)
            if name in self.corpus:
                continue
            file = folder / f"{name}.npy"
            segment = _stored_segment(file)
            if segment is None:
                segment = CorpusSegment.of([tokens for file in group if (tokens := self._tokens(file))])
                if self.is_closed():
                    return
                _keep(file, segment)
            self.corpus.add(name, segment)
        self.corpus.keep(seen)

    def _tokens(self, file: TextFile) -> Sequence[int]:
        if self.is_closed():
            return ()
        try:
            data = file.path.read_bytes()[:LARGEST_FILE]
        except OSError:
            return ()
        return () if is_binary(data) else self.tokenize(decoded(data, errors="replace"))


def _identity(vocab: Vocab) -> str:
    """Return what tells a tokenizer from most others. A mistake costs drafts, never text."""
    digest = hashlib.sha256(f"{FORMAT} {vocab.type} {vocab.model} {vocab.pre}".encode())
    for token in vocab.tokens:
        digest.update(b"\0" + bytes(token))
    return digest.hexdigest()


def _name(tokenizer: str, group: list[TextFile]) -> str:
    digest = hashlib.sha256(tokenizer.encode())
    for file in group:
        digest.update(os.fsencode(file.path) + f"\0{file.bytes} {file.changed_ns}\0".encode())
    return digest.hexdigest()[:32]


def _stored_segment(file: Path) -> CorpusSegment | None:
    try:
        numbers = np.load(file, mmap_mode="r")
        os.utime(file)
        return CorpusSegment(numbers) if numbers.dtype == np.uint32 and numbers.ndim == 1 else None
    except (OSError, ValueError, EOFError):
        return None


def _keep(file: Path, segment: CorpusSegment) -> None:
    """Write a segment, and remove those that were not used for longest beyond LARGEST_KEPT bytes."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(file) as out:
            np.save(out, segment.numbers)
        others = sorted(file.parent.glob("*.npy"), key=lambda path: path.stat().st_mtime, reverse=True)
        size = 0
        for other in others:
            size += other.stat().st_size
            if size > LARGEST_KEPT:
                other.unlink(missing_ok=True)
