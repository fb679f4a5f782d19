"""What is open until it is closed: a worker, a model, a context."""

from typing import Self


class Closing:
    """Closed at the end of its `with` block."""

    def close(self) -> None:
        raise NotImplementedError  # each closes in its own way

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
