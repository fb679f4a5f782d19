"""What a server has done since it started, as Prometheus reads it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from localspec.ui.stats import Stats


@dataclass(slots=True)
class Totals:
    """Sums over all answers. Only the thread of the engine adds to them."""

    answers: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    predicted_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    passes: int = 0
    prompt_seconds: float = 0.0
    predicted_seconds: float = 0.0

    def add(self, stats: Stats) -> None:
        """Take the figures of a request that has ended; one that was stopped counts with the tokens it got."""
        if stats.finished is None:
            self.failures += 1
        else:
            self.answers += 1
        if stats.prefilled is not None:
            self.prompt_tokens += stats.prefilled.prompt_n
            self.cached_tokens += stats.prefilled.cache_n
            self.prompt_seconds += stats.prefilled.ms / 1e3
        self.predicted_tokens += stats.emitted
        self.drafted_tokens += stats.drafted
        self.accepted_tokens += stats.accepted
        self.passes += stats.passes
        self.predicted_seconds += stats.decode_ms / 1e3

    def text(self, *, waiting: int, is_busy: bool) -> str:
        """Return the counters, and how full the queue is, in Prometheus's format."""
        lines = []
        for name, value in asdict(self).items():
            lines += [f"# TYPE localspec_{name}_total counter", f"localspec_{name}_total {value:.10g}"]
        for name, value in (("requests_waiting", waiting), ("requests_answered_now", int(is_busy))):
            lines += [f"# TYPE localspec_{name} gauge", f"localspec_{name} {value}"]
        return "\n".join(lines) + "\n"
