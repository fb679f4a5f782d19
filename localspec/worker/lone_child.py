"""The child that does one job without a pair: it reads the job from standard input, and writes its answers as events.

`localspec.worker.lone_jobs` starts it. What a library prints goes to standard error.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from localspec.engine.events import Failed, Inspected
from localspec.errors import InternalError, LocalspecError
from localspec.settings.lone_jobs import (
    BuildFacts,
    CopyOptions,
    LendDevices,
    LoneJob,
    MachineFacts,
    MeasureBandwidths,
    TrainOptions,
)
from localspec.worker.codec import CodecError, event_line, job_of, kinds

JOBS = kinds(LoneJob)


def answers(job: LoneJob) -> Iterator[dict[str, Any]]:
    # Late imports: each of them needs llama.cpp, some also PyTorch.
    match job:
        case BuildFacts():
            from localspec.backends.build import build_info

            yield dataclasses.asdict(build_info())
        case MachineFacts(servers):
            from localspec.backends.build import machine_facts

            yield machine_facts(servers)
        case MeasureBandwidths(servers):
            from localspec.backends.bandwidth import measure
            from localspec.backends.rpc import add_servers

            add_servers(servers)
            yield from map(dataclasses.asdict, measure())
        case LendDevices(endpoint, devices, threads):
            from localspec.backends.rpc import serving

            yield from serving(endpoint, devices, threads)
        case TrainOptions():
            from localspec.heads.make_head import train

            yield from train(job)
        case CopyOptions():
            from localspec.heads.make_copy import make_copy

            yield from make_copy(job)


def main() -> None:
    """Do the job of standard input, and end the process.

    Nothing is torn down then: a library may crash on its way out, and all has been said.
    """
    with open(os.dup(1), "wb", buffering=0) as out:
        os.dup2(2, 1)  # where libraries print
        try:
            for content in answers(_job(sys.stdin.readline())):
                out.write(event_line(Inspected(content), 0))
        except LocalspecError as error:
            out.write(event_line(Failed(error.to_wire()), 0))
    sys.stderr.flush()
    os._exit(0)


def _job(line: str) -> LoneJob:
    try:
        job: LoneJob = job_of(json.loads(line), JOBS)
    except CodecError as error:
        raise InternalError(f"the process that answers was asked for nonsense: {error}", hint="report this") from None
    return job


if __name__ == "__main__":
    main()
