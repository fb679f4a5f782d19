"""llama-bench as a contender: what the target makes by itself, without choosing tokens or telling them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from localspec.bench.measurement import Cell, Measurement, hashed


@dataclass(frozen=True)
class Bench:
    """One setting of flash attention, on or off: localspec has none on a processor, llama-bench has by itself."""

    program: Path
    target: Path
    threads: int
    attention: str

    @property
    def name(self) -> str:
        return f"llama-bench fa={self.attention}"

    def ask(self, cell: Cell, depth: int, n: int) -> Measurement:
        """Return what `n` tokens after `depth` take in a process of their own, which has no prompt to read otherwise.

        Raises OSError, with its name, where it does not say.
        """
        command = [
            str(self.program), "-m", str(self.target), "-t", str(self.threads), "-p", "0", "-n", str(n),
            "-d", str(depth), "-fa", self.attention, "-r", "1", "-o", "json",
        ]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
        try:
            (found,) = json.loads(done.stdout)
            took = float(found["avg_ns"]) / 1e6
        except (ValueError, KeyError, TypeError) as error:
            said = (done.stderr.strip() or "it says nothing").splitlines()[-1]
            raise OSError(f"{self.name} measures nothing: {said}") from error
        return Measurement(
            cell=cell, seed=0, method=self.name, tree="chain", length="fixed", k=0, verify="none", reason="length",
            prompt_n=depth, prefill_ms=0.0, ttft_ms=0.0, total_ms=0.0, tokens=n, decoded=n, decode_ms=took, passes=n,
            drafted=0, accepted=0, tested_per_pos=(), accepted_per_pos=(), reached_per_pos=(), draft_ms=0.0,
            verify_ms=took, host_ms=0.0, peak_memory=0, text_hash=hashed(""),
        )  # fmt: skip
