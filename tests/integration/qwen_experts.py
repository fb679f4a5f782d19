"""Tiny models of the architectures qwen35moe and qwen3next: qwen35 with experts, and a block for further tokens."""

from functools import partial
from pathlib import Path

from tests.weights.stateful import ARCHS, Arrays, Draw, Size, Values, write_stateful

EXPERTS, USED = 4, 2
QWEN35, LAYERS = ARCHS["qwen35"]


def write(path: Path, arch: str) -> Path:
    """Write a random model of one of the two architectures; return its path."""
    return write_stateful(path, arch, plan=(partial(_build, arch), LAYERS))


def _build(arch: str, draw: Draw, size: Size) -> tuple[Arrays, Values]:
    dense, values = QWEN35(draw, size)
    found = {name: array for name, array in dense.items() if ".ffn_" not in name}
    for layer in range(size.layers + 1):
        found |= _experts(draw, size, f"blk.{layer}.")
        if arch == "qwen3next" and f"blk.{layer}.ssm_beta.weight" in found:
            for name in ("beta", "alpha"):
                del found[f"blk.{layer}.ssm_{name}.weight"]
            found[f"blk.{layer}.ssm_ba.weight"] = draw.linear(2 * size.rank, size.width)
    counts: Values = {
        "expert_count": ("u32", EXPERTS),
        "expert_used_count": ("u32", USED),
        "expert_feed_forward_length": ("u32", size.ff),
        "expert_shared_feed_forward_length": ("u32", size.ff),
    }
    return found, values | counts


def _experts(draw: Draw, size: Size, at: str) -> Arrays:
    found: Arrays = {
        f"{at}ffn_gate_inp.weight": draw.linear(EXPERTS, size.width),
        f"{at}ffn_gate_inp_shexp.weight": draw.noise(size.width, scale=size.width**-0.5),
    }
    up, down = (size.ff, size.width), (size.width, size.ff)
    for name, (rows, columns) in (("gate", up), ("up", up), ("down", down)):
        found[f"{at}ffn_{name}_exps.weight"] = draw.noise(EXPERTS, rows, columns, scale=columns**-0.5)
        found[f"{at}ffn_{name}_shexp.weight"] = draw.linear(rows, columns)
    return found
