"""What may be asked of a process that holds a pair, one job after the other (`worker.client`): a frozen struct a job.

msgspec makes a struct in a fortieth of the time of a dataclass, and every command waits for these.
"""

from typing import TypeVar

from msgspec import Struct, structs

from localspec.settings.request import LoadSettings, Request
from localspec.tuning import SIZES


class Load(Struct, frozen=True):
    settings: LoadSettings


class Generate(Struct, frozen=True):
    request: Request


class ForkQuestion(Struct, frozen=True):
    """Where do two answers to `request` fork, and is it a tie? `seed` is that of the plain answer."""

    request: Request
    plain: tuple[int, ...]
    other: tuple[int, ...]
    seed: int


class DistributionQuestion(Struct, frozen=True):
    """Does the rule of `request` keep the target's distribution? Tried after its prompt and each of `continuations`.
    `alpha` is the error of one trial: how often a right rule would fail it."""

    request: Request
    continuations: tuple[tuple[int, ...], ...]
    draws: int
    alpha: float
    seed: int


class TextQuestion(Struct, frozen=True):
    """The `tokens` of `text`, the `text` of `tokens`, or the `prompt` that `request` gives: `wants` says which."""

    request: Request
    wants: str
    text: str = ""
    tokens: tuple[int, ...] = ()
    adds_special: bool = False  # BOS in front, where the vocabulary wants one
    parses_special: bool = True  # the text of a control token is that token


class RankQuestion(Struct, frozen=True):
    """Which of the items in the file `items` are the `top` likeliest answers to `request`? `is_whole`: the text ends
    behind the item. With `seed`, too, `top` distinct items are drawn."""

    request: Request
    items: str
    top: int
    is_whole: bool = False
    seed: int | None = None


class VerifyRound(Struct, frozen=True):
    """A round of an edge's `session`, which `hello` opened: messages of `remote.messages`, as they came. `prefixes`
    were sent since the round before."""

    session: str
    hello: bytes
    prefixes: tuple[bytes, ...]
    verify: bytes


PairQuestion = ForkQuestion | DistributionQuestion
Question = PairQuestion | TextQuestion | RankQuestion | VerifyRound


class SurveyRequest(Struct, frozen=True):
    """What is to be timed, in how many seconds. `sizes` are the target's widths; `is_kept`: the profile learns it.
    Without `sizes` nothing is timed, and the profile is asked for what it knows."""

    seconds: float = 10.0
    sizes: tuple[int, ...] = SIZES
    is_deep: bool = True
    is_kept: bool = False


LoadedJob = Generate | SurveyRequest | Question
PairJob = Load | LoadedJob
Asking = TypeVar("Asking", bound=PairQuestion)


def with_request(question: Asking, request: Request) -> Asking:
    return structs.replace(question, request=request)
