"""A long call of llama.cpp, in a thread of its own, which tells how far it is."""

import queue
import threading
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")


def reported(call: Callable[[Callable[[float], None]], T]) -> Generator[float, None, T]:
    """Run `call(report)` in a thread; yield what it reports, return its result, raise its error."""
    news: queue.SimpleQueue[float | None] = queue.SimpleQueue()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call(news.put))
        except BaseException as error:  # carried to the caller's thread, where it is raised
            errors.append(error)
        finally:
            news.put(None)

    threading.Thread(target=run, daemon=True, name="load").start()
    while (fraction := news.get()) is not None:
        yield fraction
    if errors:
        raise errors[0]
    return results[0]
