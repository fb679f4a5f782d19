"""A bounded reader over an open file: nothing is read or allocated because the file claims it is there.

Invariant: every length is compared with the bytes really left in the file, and with what is left of the limits,
before anything of that length is read.

Also here: opening a file that should be GGUF, which never blocks, and says what the file is when it is something
else.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import IntegrityError, NotFoundError
from localspec.sanitize import shown

_CHUNK = 1 << 18
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class Limits:
    """What a header may cost: `metadata` bytes of the file, `entries` of each of its tables, `seconds` of work.

    Real models have some dozens of metadata entries and at most some ten thousand tensors. Only the processor time of
    the reading thread counts: a slow disk or another busy program makes no file malformed.
    """

    metadata: int = 64 << 20
    entries: int = 1 << 17
    seconds: float = 2.0


class HeaderCursor:
    """Reads forward through the first bytes of a file of `size` bytes.

    `name` is the file's printable name, `clock` its processor time in seconds. `data` holds everything read so far and
    `pos` is the reading position in it.
    """

    def __init__(self, fd: int, name: str, size: int, limits: Limits, clock: Callable[[], float]) -> None:
        self.fd = fd
        self.name = name
        self.size = size
        self.pos = 0
        self.data = bytearray()
        self._limits = limits
        self._clock = clock
        self._deadline = clock() + limits.seconds

    def bad(self, why: str, hint: str = "") -> IntegrityError:
        """Return the error for malformed content, to be raised by the caller."""
        hint = hint or "download the file again; if that does not help, its maker has to fix it"
        return IntegrityError(f"{self.name} is not a valid GGUF file: {why}", hint=hint, detail={"file": self.name})

    def truncated(self, expected: int, where: str) -> IntegrityError:
        """Return the error for a file that ends before byte `expected`."""
        return IntegrityError(
            f"{self.name} is cut off: {expected} bytes expected{where}, {self.size} found",
            hint="download the file again",
            detail={"file": self.name, "expected_bytes": expected, "actual_bytes": self.size},
        )

    def tick(self) -> None:
        """Raise IntegrityError when the time for this header is used up."""
        if self._clock() > self._deadline:
            raise self.bad(f"its header was not read within {self._limits.seconds:g} s of processor time")

    @property
    def most(self) -> int:
        """The most bytes that anything of a header may have."""
        return self._limits.metadata

    def left(self) -> int:
        """Return how many more bytes may be read: those left in the file, within the limit on metadata."""
        return min(self.size, self._limits.metadata) - self.pos

    def claim(self, count: int, each: int, what: str) -> None:
        """Raise IntegrityError if `count` things of at least `each` bytes cannot follow; `what` is their plural.

        A number that a header may have, in a file that is too short for it, shows that the file was cut off.
        """
        end = self.pos + count * each
        if self.size < end <= self._limits.metadata:
            raise self.truncated(end, f" to read {count} {what}, or more")
        if count * each > self.left():
            raise self.bad(f"it claims {count} {what}, more than a header of this size can hold")

    def claim_entries(self, count: int, each: int, what: str) -> None:
        """Like `claim`, for the entries of a table, whose number is limited too."""
        if self._limits.entries < count <= self.left() // each:
            raise self.bad(f"it claims {count} {what}, and no more than {self._limits.entries} are read")
        if count > self._limits.entries:
            raise self.bad(f"it claims {count} {what}, more than a header of this size can hold")
        self.claim(count, each, what)

    def need(self, n: int, what: str) -> None:
        """Make `n` bytes from `pos` on available in `data`; raise IntegrityError if there are not that many."""
        end = self.pos + n
        if end > len(self.data):
            self._check(n, what)
            self._fill(end, what)

    def _check(self, n: int, what: str) -> None:
        if self.pos + n > self.size:
            raise self.truncated(self.pos + n, f" to read {what}")
        if self.pos + n > self._limits.metadata:
            raise self.bad(f"its header goes on beyond {self._limits.metadata >> 20} MiB in {what}")

    def _fill(self, end: int, what: str) -> None:
        want = min(max(end, len(self.data) + _CHUNK), self.size, self._limits.metadata)
        while len(self.data) < want:
            self.tick()
            try:
                chunk = os.pread(self.fd, min(want - len(self.data), 4 * _CHUNK), len(self.data))
            except OSError as error:
                raise self.bad(f"reading it failed: {error.strerror}", hint="check the disk it is on") from error
            if not chunk:
                # The file shrank after its size was taken.
                self.size = len(self.data)
                self._check(end - self.pos, what)
                return
            self.data += chunk

    def goes_on_with(self, known: bytes, what: str) -> bool:
        """Step over the next bytes if they are these; tell whether they are."""
        if len(known) > self.left():
            return False
        self.need(len(known), what)
        is_same = self.data.startswith(known, self.pos)
        self.pos += len(known) if is_same else 0
        return is_same

    def seek(self, pos: int) -> None:
        """Go to a position."""
        self.pos = pos

    def take(self, n: int, what: str) -> bytes:
        """Return the next `n` bytes."""
        self.need(n, what)
        self.pos += n
        return bytes(self.data[self.pos - n : self.pos])

    def u32(self, what: str) -> int:
        """Return the next little-endian 32-bit number."""
        self.need(4, what)
        self.pos += 4
        return int(_U32.unpack_from(self.data, self.pos - 4)[0])

    def u64(self, what: str) -> int:
        """Return the next little-endian 64-bit number."""
        self.need(8, what)
        self.pos += 8
        return int(_U64.unpack_from(self.data, self.pos - 8)[0])

    def string(self, what: str, limit: int) -> bytes:
        """Return the next length-prefixed string, of at most `limit` bytes."""
        n = self.u64(f"the length of {what}")
        if n > limit:
            raise self.bad(f"{what} claims a length of {n} bytes (at most {limit} make sense)")
        return self.take(n, what)


MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)

_PEEK = 512
_DOWNLOAD = "download the file itself: on its page choose 'download', not the address of the page"
_NO_MODEL = "name a model's file, which ends in .gguf, or a pair of: localspec pairs list"
_CONVERT = "convert it with llama.cpp's convert_hf_to_gguf.py, or download a GGUF version of the model"
# First bytes, what they mean, what to do.
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs",
        "it is a Git-LFS pointer, not the file it stands for",
        "fetch the file with: git lfs pull",
    ),
    (b"PK\x03\x04", "it is a zip archive, such as a PyTorch checkpoint", _CONVERT),
    (b"\x80\x02", "it is a Python pickle, such as a PyTorch checkpoint", _CONVERT),
    (
        b"FUGG",
        "it was written for a machine of the other byte order",
        "download the little-endian version of the model",
    ),
    (b"\x1f\x8b", "it is a gzip archive", "unpack it with gunzip"),
    (b"\x28\xb5\x2f\xfd", "it is a zstd archive", "unpack it with unzstd"),
    *(
        (magic, "it is of the GGML format that came before GGUF", _CONVERT)
        for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")
    ),
)


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[int, int]]:
    """Yield file descriptor and size in bytes of a regular file.

    Raises NotFoundError for whatever is missing, not readable or not a regular file; opening a FIFO or a device could
    block or have effects, so the kind is looked at first, and again once the file is open.
    """
    try:
        _check_regular(path, os.stat(path).st_mode)
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # ValueError: a zero byte or a lone surrogate in the path
        raise _unreadable(path, error) from error
    try:
        status = os.fstat(fd)
        _check_regular(path, status.st_mode)
        yield fd, status.st_size
    finally:
        os.close(fd)


def _check_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise NotFoundError(
            f"{shown(path)} is a directory, not a GGUF file", hint="give the path of a .gguf file in it"
        )
    if not stat.S_ISREG(mode):
        raise NotFoundError(
            f"{shown(path)} is a pipe or a device, not a GGUF file", hint="give the path of a .gguf file"
        )


def _unreadable(path: Path, error: OSError | ValueError) -> NotFoundError:
    name = shown(path)
    if isinstance(error, FileNotFoundError):
        hint = "the link points nowhere" if path.is_symlink() else "Check the path."
        return NotFoundError(f"{name} does not exist", hint=hint)
    if isinstance(error, PermissionError):
        return NotFoundError(
            f"{name} may not be read by this user", hint="give yourself the right with: chmod u+r FILE"
        )
    reason = (error.strerror or "it cannot be opened") if isinstance(error, OSError) else "it is not a possible path"
    return NotFoundError(f"{name} cannot be opened: {reason}", hint="Check the path.")


def check_magic(cursor: HeaderCursor) -> int:
    """Read magic and version, and return the version; raise IntegrityError that says what the file is instead."""
    if not cursor.size:
        raise cursor.bad("it is empty", hint="the download never started: download the file again")
    cursor.need(min(_PEEK, cursor.size), "the magic number")
    head = bytes(cursor.data[:_PEEK])
    if not head.startswith(MAGIC) and not MAGIC.startswith(head):
        what, hint = _what_it_is(head, cursor.size)
        raise cursor.bad(what, _NO_MODEL if hint == _DOWNLOAD and not cursor.name.lower().endswith(".gguf") else hint)
    cursor.take(4, "the magic number")
    version = cursor.u32("the version")
    if version and not version & 0xFFFF:
        raise cursor.bad(
            "its version has the other byte order: it was made for a big-endian machine",
            hint="download the little-endian version of the model",
        )
    if version not in SUPPORTED_VERSIONS:
        hint = (
            _CONVERT if version < min(SUPPORTED_VERSIONS) else "update with: pip install -U llama-cpp-python localspec"
        )
        raise cursor.bad(f"its version is {version}, and only versions 2 and 3 are supported", hint=hint)
    return version


def _what_it_is(head: bytes, size: int) -> tuple[str, str]:
    """Return what a file with these first bytes is, and what to do about it."""
    for magic, what, hint in _OTHERS:
        if head.startswith(magic):
            return what, hint
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it is a web page, probably an error message saved under this name", _DOWNLOAD
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < size:
        return "it is a safetensors file", _CONVERT
    if _is_text(head):
        return "it is a text file", _DOWNLOAD
    return (
        f"it starts with '{shown(head[:4])}' instead of 'GGUF'",
        "check that this is the file you meant, or download it again",
    )


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The peek may have cut the last character in two.
        if len(head) < _PEEK or error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    return all(c.isprintable() or c in "\t\n\r\f" for c in text)
