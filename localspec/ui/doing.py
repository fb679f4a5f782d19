"""The engine's work before the first token, in words, for every status line: what loads, and how far the prompt is."""

from localspec.engine.events import Event, Loaded, Loading, Prefilled, Reading, Started, Waiting
from localspec.settings.sizes import count

_SHOWN = {"first measurement": "timing this machine…", "trial of the draft": "trying the draft model…"}
_MODELS = {"target": "model", "draft": "draft model"}


class Doing:
    """`words` follow the events of one engine; "" where there is nothing to say. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.words = ""
        self._prompt_n = 0
        self._first: tuple[float, int] | None = None  # when it was first told how much is read, and how much that was

    def observe(self, at: float, event: Event) -> bool:
        match event:
            case Loading(what, fraction):
                model = _MODELS.get(what)
                self.words = f"loading the {model} {fraction:.0%}" if fraction < 1 else f"warming up the {model}"
                self.words = self.words if model else _SHOWN.get(what, f"{what}…")
            case Waiting(n):
                self.words = "waiting for the answer before this one" if n == 1 else f"waiting for {n} answers"
            case Loaded():
                self.words = "starting"
            case Started(prompt_n=n):
                self._prompt_n, self._first = n, None
                self.words = f"reading {count(n)} token{'' if n == 1 else 's'}"
            case Reading(n) if self._prompt_n:
                self.words = f"reading {count(n)} of {count(self._prompt_n)} tokens{self._rate(at, n)}"
            case Prefilled():
                self.words, self._prompt_n = "answering", 0
            case _:
                return False
        return True

    def _rate(self, at: float, n: int) -> str:
        began, read = self._first = self._first or (at, n)
        return f", {(n - read) / (at - began):.0f} tok/s" if at > began and n > read else ""
