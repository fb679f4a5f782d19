"""What may be asked of llama.cpp without a pair, each by a process of its own: a frozen struct a job.

`worker.lone_jobs` starts the processes. Nothing here knows of the settings of a pair, whose import takes
as long as half of `localspec --version`.
"""

from typing import Any

from msgspec import Struct, structs

OUTPUTS = 8192  # tokens that a head is trained to draft, usually
EPOCHS = 8  # updates see the training text so many times, usually


class BuildFacts(Struct, frozen=True):
    """Tell the versions of the binding and of llama.cpp, and what it was built to compute on."""


class MachineFacts(Struct, frozen=True):
    """Tell the devices with their free memory, those of RPC servers too, and all that `BuildFacts` tells."""

    servers: tuple[str, ...] = ()


class MeasureBandwidths(Struct, frozen=True):
    """Measure how fast each device reads weights, those of RPC servers too."""

    servers: tuple[str, ...] = ()


class LendDevices(Struct, frozen=True):
    """Serve devices at `endpoint` to other machines, until the process ends; () are all GPUs, or the CPU."""

    endpoint: str
    devices: tuple[str, ...] = ()
    threads: int | None = None


class TrainOptions(Struct, frozen=True):
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

    def by_name(self) -> dict[str, Any]:
        return structs.asdict(self)


class CopyOptions(Struct, frozen=True):
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


LoneJob = BuildFacts | MachineFacts | MeasureBandwidths | LendDevices | TrainOptions | CopyOptions
