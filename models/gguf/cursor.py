"""A bounded reader over an open file: nothing is read or allocated because the file claims it is there.

Invariant: every length is compared with the bytes really left in the file, and with what is left of the limits,
before anything of that length is read.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from localspec.errors import IntegrityError

_CHUNK = 1 << 18


@dataclass(frozen=True)
class Limits:
    """What a header may cost: `metadata` bytes of the file, `entries` of each of its tables, `seconds` of work. Real
    models have some dozens of metadata entries and at most some ten thousand tensors. Only the processor time of the
    reading thread counts: a slow disk or another busy program makes no file malformed."""

    metadata: int = 64 << 20
    entries: int = 1 << 17
    seconds: float = 2.0


class HeaderCursor:
    """Reads forward through the first bytes of a file of `size` bytes. `name` is the file's printable name, `clock` its
    processor time in seconds. `data` holds everything read so far and `pos` is the reading position in it."""

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
        hint = hint or "download the file again; if that does not help, its maker has to fix it"
        return IntegrityError(f"{self.name} is not a valid GGUF file: {why}", hint=hint, detail={"file": self.name})

    def truncated(self, expected: int, where: str) -> IntegrityError:
        return IntegrityError(
            f"{self.name} is cut off: {expected} bytes expected{where}, {self.size} found",
            hint="download the file again",
            detail={"file": self.name, "expected_bytes": expected, "actual_bytes": self.size},
        )

    def tick(self) -> None:
        if self._clock() > self._deadline:
            raise self.bad(f"its header was not read within {self._limits.seconds:g} s of processor time")

    @property
    def most(self) -> int:
        return self._limits.metadata

    def left(self) -> int:
        """Return how many more bytes may be read: those left in the file, within the limit on metadata."""
        return min(self.size, self._limits.metadata) - self.pos

    def claim(self, count: int, each: int, what: str) -> None:
        """Raise IntegrityError if `count` things of at least `each` bytes cannot follow; `what` is their plural. A
        number that a header may have, in a file that is too short for it, shows that the file was cut off."""
        end = self.pos + count * each
        if self.size < end <= self._limits.metadata:
            raise self.truncated(end, f" to read {count} {what}, or more")
        if count * each > self.left():
            raise self.bad(f"it claims {count} {what}, more than a header of this size can hold")

    def claim_entries(self, count: int, each: int, what: str) -> None:
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
        if len(known) > self.left():
            return False
        self.need(len(known), what)
        is_same = self.data.startswith(known, self.pos)
        self.pos += len(known) if is_same else 0
        return is_same

    def seek(self, pos: int) -> None:
        self.pos = pos

    def take(self, n: int, what: str) -> bytes:
        self.need(n, what)
        self.pos += n
        return bytes(self.data[self.pos - n : self.pos])

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def string(self, what: str, limit: int) -> bytes:
        n = self.u64(f"the length of {what}")
        if n > limit:
            raise self.bad(f"{what} claims a length of {n} bytes (at most {limit} make sense)")
        return self.take(n, what)
