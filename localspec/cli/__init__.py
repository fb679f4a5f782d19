"""The command line: the only part of localspec that prints, exits and reads the environment.

Only modules that Python has loaded already are imported at the top: until `main` has set its handler, Ctrl-C would
print a traceback.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def main() -> NoReturn:
    try:
        import signal

        is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background job ignores Ctrl-C
        if is_heard:
            signal.signal(signal.SIGINT, _leave)
    except KeyboardInterrupt:
        sys.exit(130)
    _fill_streams()
    import gc

    gc.set_threshold(20_000)  # nothing that is imported is garbage, and looking for it is a tenth of a start
    from localspec.cli.entry import flush, outcome

    code = outcome(sys.argv[1:], is_heard=is_heard)
    if is_heard:
        signal.signal(signal.SIGINT, _leave)
    flush()
    # Python remembers a Ctrl-C inside of an `exec`, as dataclasses have it, and would end by SIGINT, without `code`.
    exec("")
    sys.exit(code)


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Leave at once: nothing was begun yet, or all is done."""
    os._exit(130)


def _fill_streams() -> None:
    """Open /dev/null on every standard descriptor that was closed, or a pipe of ours would come to lie there."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free: `fd`
