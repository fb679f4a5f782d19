"""How fast a placed pair decodes, as far as reading weights and caches decides it.

A pass over one token reads every weight that the token uses once, wherever it is, one layer after the other:

    seconds = sum over places of bytes / rate(rows)

A pass over n rows reads the same, at the rate for n rows; of routed experts it reads all that some row uses, taken to
be drawn evenly, N (1 - (1 - used/N)^n). Speculation with k draft tokens, of which the first i all stand with the
probability a_i, yields 1 + a_1 + ... + a_k tokens a pass for k draft passes and one of k + 1 rows. Where each token is
accepted with the probability a, that is (1 - a^(k+1)) / (1 - a) (arXiv 2211.17192). Launches, samplers and copies of
memory are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from localspec.models.gguf.layer_sizes import Anatomy
from localspec.models.gguf.types import TENSOR_TYPES
from localspec.models.plan.machine import CPU, DISK, Machine
from localspec.models.plan.memory_use import Read
from localspec.tuning import LOW_BIT_ON_CPU

LONGEST_DRAFT = 16
FEW_BITS = frozenset(kind.name for kind in TENSOR_TYPES.values() if 8 * kind.size < 4 * kind.block)


def pass_seconds(
    machine: Machine, parts: Anatomy, read: Mapping[str, Read], rows: int, *, is_paged: bool = False
) -> float:
    """Return the time of a pass of `rows` rows; `is_paged`: main memory does not hold its share of the weights.

    The system drops the pages that were used longest ago, and a pass comes round to each in turn, so what does not fit
    altogether is read from the disk altogether.
    """
    share = 1 - (1 - min(1.0, parts.used_share)) ** rows
    total = max(1, sum(n for _, n in parts.types))
    seconds = 0.0
    for place, one in read.items():
        n_bytes = one.steady + share * one.routed
        a_byte = sum(n / total * _seconds_per_byte(machine, place, kind, rows) for kind, n in parts.types)
        seconds += n_bytes * a_byte
        if place == CPU and is_paged:
            seconds += n_bytes * machine.rates(DISK).seconds_per_byte("Q8_0", 1)
    return seconds


def _seconds_per_byte(machine: Machine, place: str, kind: str, rows: int) -> float:
    """Return the time for a byte of weights of a type; a processor that was not measured with few bits is slower."""
    rates = machine.rates(place)
    slower = LOW_BIT_ON_CPU if place == CPU and kind in FEW_BITS and kind not in rates.points else 1.0
    return slower * rates.seconds_per_byte(kind, rows)


def assumed(acceptance: float) -> tuple[float, ...]:
    """Return the probabilities that the first k tokens all stand, for k from 1, if each does with `acceptance`."""
    return tuple(acceptance**k for k in range(1, LONGEST_DRAFT + 1))
