"""What the passes of an answer took on the way to a verifier on another machine (docs/edge-and-cloud.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localspec.engine.events import Committed
from localspec.ui.speedup import median

if TYPE_CHECKING:
    from localspec.ui.json_fields import Edge  # late: a warm run does without all these fields


@dataclass(slots=True)
class Ways:
    """The account of one answer's rounds, the prompt's own left out: that one sends the text."""

    rounds: int = 0
    tokens: int = 0
    up: int = 0
    down: int = 0
    looked: int = 0  # drafted tokens whose law is known
    hard: int = 0
    ahead: int = 0  # passes of the draft model while a verdict was under way
    ready: int = 0  # tokens that could be drafted without a pass for that
    peak: int = 0  # bytes of the verifier's process
    share: float = 0.0  # of the verifier's cache
    text_bytes: int = 0  # that the prompt's own round sent
    _draft_ms: list[float] = field(default_factory=list)
    _judge_ms: list[float] = field(default_factory=list)
    _rtt_ms: list[float] = field(default_factory=list)

    def add(self, event: Committed) -> None:
        counts = event.way
        if counts is None:
            return
        self.looked += counts.n_looked
        self.hard += counts.n_hard
        self.ahead += counts.n_ahead
        self.ready += counts.n_ready
        self.peak, self.share = max(self.peak, counts.peak), counts.share
        if event.index == 0:
            self.text_bytes = counts.up
            return
        self.rounds += 1
        self.tokens += len(event.out)
        self.up += counts.up
        self.down += counts.down
        self._draft_ms.append(event.ms.draft)
        self._judge_ms.append(counts.judge_ms)
        self._rtt_ms.append(counts.ms - counts.judge_ms)

    @property
    def is_remote(self) -> bool:
        return self.rounds > 0

    @property
    def rtt_ms(self) -> float | None:
        return median(self._rtt_ms) if self._rtt_ms else None

    @property
    def bytes_per_token(self) -> float | None:
        return (self.up + self.down) / self.tokens if self.tokens else None

    def line(self) -> str:
        if self.rtt_ms is None or self.bytes_per_token is None:
            return ""
        figures = f"verifier {self.rtt_ms:.0f} ms away, {self.bytes_per_token:.0f} bytes a token"
        memory = f"; {self.peak / 2**20:.0f} MiB there" if self.peak else ""
        return f"{figures}, {100 * self.share:.0f} % of its cache{memory}"

    def wire(self) -> Edge | None:
        if not self.rounds:
            return None
        return {
            "rounds": self.rounds,
            "calls_per_token": self.rounds / self.tokens if self.tokens else None,
            "edge_ms": median(self._draft_ms),
            "verify_ms": median(self._judge_ms),
            "rtt_ms": median(self._rtt_ms),
            "up_bytes": self.up,
            "down_bytes": self.down,
            "text_bytes": self.text_bytes,
            "bytes_per_token": self.bytes_per_token,
            "hard_ratio": self.hard / self.looked if self.looked else None,
            "peak_bytes": self.peak or None,
            "cache_share": self.share,
            "ahead": self.ahead,
            "ahead_kept": self.ready,
        }
