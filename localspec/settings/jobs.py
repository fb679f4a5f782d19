"""What may be asked of a process that holds llama.cpp: one frozen dataclass a job.

`PairJob`s are for a child with a loaded pair, one after the other (`worker.client`). A `LoneJob` needs no pair, and has
a process of its own (`worker.ask`).
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.settings.request import LoadSettings, Request
from localspec.tuning import SIZES

OUTPUTS = 8192  # tokens that a head is trained to draft, usually
EPOCHS = 8  # updates see the training text so many times, usually


@dataclass(frozen=True, slots=True)
class Load:
    """Load a pair in place of the one that is loaded."""

    settings: LoadSettings


@dataclass(frozen=True, slots=True)
class Generate:
    """Answer a request."""

    request: Request


@dataclass(frozen=True, slots=True)
class ForkQuestion:
    """Where do two answers to `request` fork, and is it a tie? `seed` is that of the plain answer."""

    request: Request
    plain: tuple[int, ...]
    other: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class DistributionQuestion:
    """Does the rule of `request` keep the target's distribution? Tried after its prompt and each of `continuations`.

    `alpha` is the error of one trial: how often a right rule would fail it.
    """

    request: Request
    continuations: tuple[tuple[int, ...], ...]
    draws: int
    alpha: float
    seed: int


@dataclass(frozen=True, slots=True)
class TextQuestion:
    """The `tokens` of `text`, the `text` of `tokens`, or the `prompt` that `request` gives: `wants` says which."""

    request: Request
    wants: str
    text: str = ""
    tokens: tuple[int, ...] = ()
    adds_special: bool = False  # BOS in front, where the vocabulary wants one
    parses_special: bool = True  # the text of a control token is that token


@dataclass(frozen=True, slots=True)
class RankQuestion:
    """Which of the items in the file `items` are the `top` likeliest answers to `request`?

    `is_whole`: the text ends behind the item. With `seed`, too, `top` distinct items are drawn.
    """

    request: Request
    items: str
    top: int
    is_whole: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class VerifyRound:
    """A round of an edge's `session`, which `hello` opened: messages of `remote.messages`, as they came.

    `prefixes` were sent since the round before.
    """

    session: str
    hello: bytes
    prefixes: tuple[bytes, ...]
    verify: bytes


PairQuestion = ForkQuestion | DistributionQuestion
Question = PairQuestion | TextQuestion | RankQuestion | VerifyRound


@dataclass(frozen=True, slots=True)
class SurveyRequest:
    """What is to be timed, in how many seconds. `sizes` are the target's widths; `is_kept`: the profile learns it.

    `has_attention`: the kinds of attention are timed first.
    The first `least` of the sizes are timed whatever that takes. Without `sizes` nothing is timed, and the profile
    is asked for what it knows.
    """

    seconds: float = 10.0
    sizes: tuple[int, ...] = SIZES
    is_deep: bool = True
    is_kept: bool = False
    least: int = 1
    has_attention: bool = False


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """Tell the versions of the binding and of llama.cpp, and what it was built to compute on."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Tell the devices with their free memory, those of RPC servers too, and all that `BuildFacts` tells."""

    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureBandwidths:
    """Measure how fast each device reads weights, those of RPC servers too."""

    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LendDevices:
    """Serve devices at `endpoint` to other machines, until the process ends; () are all GPUs, or the CPU."""

    endpoint: str
    devices: tuple[str, ...] = ()
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Train a head. `prompts` are asked through the chat template of the target, `raw` are texts to continue.

    `output` is the file of the head, "" for the folder of heads. `folder` keeps text and checkpoints on the way.
    `minutes` limits the training, not the making of the text; None: updates see the text `epochs` times. `outputs`
    tokens can be drafted, the most frequent ones. `device` is cpu or cuda.
    """

    target: str
    output: str
    folder: str
    prompts: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()
    kind: str = "auto"
    tokens: int = 200_000
    outputs: int = OUTPUTS
    epochs: int = EPOCHS
    minutes: float | None = None
    device: str = "cpu"
    seed: int = 0
    threads: int | None = None
    gpu: str = "auto"


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Make a copy of `target` in fewer bits. `bits` is 2, 3 or mixed; the layers `dropped` are left out.

    `kind` is llama.cpp's mix. `prompts` are read through the chat template and `raw` as they are, for the importance
    matrix, `tokens` of them at most; 0 makes the copy without one. `folder` keeps matrices. `pays`: noted in the file.
    `output` is the file, "" for the folder of such copies.
    """

    target: str
    folder: str
    bits: str
    kind: str
    dropped: tuple[int, ...] = ()
    prompts: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()
    tokens: int = 4096
    pays: bool = True
    output: str = ""
    threads: int | None = None
    gpu: str = "auto"


LoadedJob = Generate | SurveyRequest | Question
PairJob = Load | LoadedJob
LoneJob = BuildFacts | MachineFacts | MeasureBandwidths | LendDevices | TrainOptions | CopyOptions
