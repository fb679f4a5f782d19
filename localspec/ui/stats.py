"""Counters folded from events: the only place where a number shown to a person is computed.

Definitions (`localspec` prints nothing that is not one of these):

* A *pass* is one evaluation of the target that commits tokens: a `Committed` event. The prompt's own evaluation is
  the first of them, for it yields the first token.
* *drafted* counts draft tokens the target tested; *accepted* those it kept. A pass commits its accepted tokens and one
  token of the target's own, unless a stop rule cut it inside the accepted run: then the pass is *cut*. *forced* counts
  the tokens that a form alone allowed, and that a pass took before its draft: no figure of drafts has them.
* Position i is a level of the draft below the pending token. `tested[i]` passes had a draft deeper than i,
  `accepted_per_pos[i]` kept more than i tokens, and `reached[i]` are those whose fate at i was decided at all: every
  earlier position was accepted. `accepted_per_pos[i] / reached[i]` is the conditional acceptance at i.
* *acceptance* = accepted / drafted, over the whole answer. *mean alpha* = sum accepted[i] / sum reached[i]: the
  probability that a draft token which the verifier looks at is kept, each look counted once (the maximum-likelihood
  estimate of alpha of 2211.17192 section 3.1).
* *la* = accepted tokens per drafting pass, *la/k* = the mean over drafting passes of accepted / depth.
* *speedup* = plain milliseconds a token / the answer's, both as medians and of decoding alone (neither the prompt nor
  the token it yields). docs/figures.md defines it and says when none is shown; `Stats.comparison` computes it.

Identities: emitted = accepted + forced + passes - cut; sum accepted_per_pos = accepted for chains and trees alike.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from localspec.engine import events
from localspec.models.store import is_bundled
from localspec.ui.speedup import FEWEST, PLACES, Comparison, Passes, median
from localspec.ui.ways import Ways

SOURCES = ("accepted", "corrected", "bonus", "plain", "forced")
MIN_DRAFTED_SHARE = 0.1  # share of the decoding passes: where fewer drafted, no speedup is shown
LOOK = 50  # of so many passes one more is no reason to compare them again


@dataclass(frozen=True, slots=True)
class Baseline:
    """The time of plain decoding here: the median of `n` plain passes of this answer and of earlier ones."""

    ms_per_token: float
    n: int
    ctx: int
    age_s: float

    @property
    def tok_per_s(self) -> float:
        return 1000.0 / self.ms_per_token


@dataclass(frozen=True, slots=True)
class Waited:
    """Milliseconds that a person waited for an answer, from Enter to its end, by part. Together they are the whole.
    `start` is what the others are not: starting the engine, waiting for another answer, a first measurement."""

    start: float
    load: float
    read: float
    write: float

    @property
    def total(self) -> float:
        return self.start + self.load + self.read + self.write


@dataclass(slots=True)
class Foreseen:
    """Passes of one drafter with what its plans promised of them and what came: tokens and milliseconds, summed."""

    passes: int = 0
    fewest: int = 0
    most: int = 0
    promised_tokens: float = 0.0
    promised_ms: float = 0.0
    tokens: int = 0
    ms: float = 0.0

    def add(self, event: events.Committed) -> None:
        assert event.expected_tokens is not None
        assert event.expected_ms is not None
        self.passes += 1
        self.fewest = min(self.fewest or event.rows, event.rows)
        self.most = max(self.most, event.rows)
        self.promised_tokens += event.expected_tokens
        self.promised_ms += event.expected_ms
        self.tokens += len(event.out)
        self.ms += event.ms.draft + event.ms.verify + event.ms.sample + event.ms.other


@dataclass(slots=True)
class Stats:
    """The account of one answer. `observe` every event of its load and its generation, in order."""

    clock: Callable[[], float] = time.monotonic
    asked_at: float | None = None  # the clock's time when somebody pressed Enter, None where nobody waits
    loaded: events.Loaded | None = None
    started: events.Started | None = None
    prefilled: events.Prefilled | None = None
    finished: events.Finished | None = None
    warnings: list[events.Warned] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # those that came beside the text, to be told below it
    passes: int = 0
    drafting_passes: int = 0
    wide_passes: int = 0  # with a draft or forced tokens
    prompt_logprobs: tuple[events.Logprob, ...] = ()
    emitted: int = 0
    reasoning_tokens: int = 0  # of these up to the last that is part of a thought
    drafted: int = 0
    accepted: int = 0
    cut: int = 0
    tested: list[int] = field(default_factory=list)
    accepted_per_pos: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    drafters: dict[str, list[int]] = field(default_factory=dict)  # tokens drafted and accepted, by drafter
    foreseen: dict[str, Foreseen] = field(default_factory=dict)  # by drafter
    by_source: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    sample_ms: float = 0.0
    other_ms: float = 0.0
    context_n: int = 0
    ways: Ways = field(default_factory=Ways)  # to a verifier on another machine
    logprobs: list[events.Logprob] = field(default_factory=list)  # of the tokens so far, where they were asked for
    _first_at: float | None = None  # the clock's time of the first pass
    _loading_at: float | None = None  # the clock's time of a load's first report
    _load_ms: float = 0.0  # of a load within this answer
    _ended_at: float | None = None  # the clock's time of the end
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _kept_share: float = 0.0
    _decoded: int = 0
    _plain: list[events.Probed] = field(default_factory=list)
    _plain_at: float = 0.0  # the clock's time of the last of them
    _timed: Passes = field(default_factory=Passes)
    _compared: tuple[int, Comparison | None] = (0, None)  # after how many passes

    def observe(self, event: events.Event) -> None:
        """Take one event into account; those that carry no number are ignored."""
        match event:
            case events.Loading():
                self._loading_at = self.clock() if self._loading_at is None else self._loading_at
            case events.Loaded():
                self.loaded = event
                if self._loading_at is not None:
                    self._load_ms, self._loading_at = 1e3 * (self.clock() - self._loading_at), None
            case events.Started():
                self.started, self.loaded = event, grown(self.loaded, event)
                self._settle()
            case events.Scored():
                self.prompt_logprobs = event.logprobs
            case events.Prefilled():
                self.prefilled = event
                self.context_n = event.prompt_n
            case events.Committed():
                self._commit(event)
            case events.Probed():
                self._plain.append(event)
                self._plain_at = self.clock() - event.age_s
            case events.Warned():
                self.warnings.append(event)
                self.late += [event.message] if self.passes else []
            case events.Finished():
                self.finished, self._ended_at = event, self.clock()
                self.reasoning_tokens = self.emitted if event.reasoning else self.reasoning_tokens
                self._text.append(event.tail)
                self._reasoning.append(event.reasoning)

    def _settle(self) -> None:
        if self.loaded is not None and not set(self.loaded.target.devices) <= {"CPU"}:
            self._timed.settle(events.GPU_SETTLES)

    def _commit(self, event: events.Committed) -> None:
        if self._first_at is None and self.asked_at is not None:
            self._first_at = self.clock()
        self.passes += 1
        self.emitted += len(event.out)
        if event.reasoning:
            self.reasoning_tokens = self.emitted - _n_behind(event)
        self.context_n = event.position + len(event.out)
        self.drafted += event.k
        self.accepted += event.n_accepted
        for piece in event.out:
            self.by_source[piece.source] = self.by_source.get(piece.source, 0) + 1
        is_cut = not event.out or event.out[-1].source in ("accepted", "forced")
        self.wide_passes += event.depth > 0 or event.n_forced > 0
        self.cut += is_cut
        self._text.append(event.text)
        self._reasoning.append(event.reasoning)
        self.logprobs += event.logprobs
        if event.k:
            counts = self.drafters.setdefault(event.drafter, [0, 0])
            counts[0] += event.k
            counts[1] += event.n_accepted
        self._time(event)
        self.ways.add(event)
        if event.plain_ms is not None:
            self._plain.append(events.Probed(event.plain_ms, event.position))
            self._plain_at = self.clock()
        if event.expected_ms is not None and event.expected_tokens is not None:
            self.foreseen.setdefault(event.drafter, Foreseen()).add(event)
        if event.depth > 0:
            self._positions(event, is_cut)

    def _time(self, event: events.Committed) -> None:
        """Add the pass's times, but not those of the prompt's own: `Prefilled` has them, and it is no decoding."""
        if event.index > 0:
            ms = event.ms
            self.draft_ms += ms.draft
            self.verify_ms += ms.verify
            self.sample_ms += ms.sample
            self.other_ms += ms.other
            self._decoded += len(event.out)
            rest_ms = ms.verify + ms.sample + ms.other
            self._timed.add(event.drafter, event.rows, ms.draft, rest_ms, event.plain_ms)

    def _positions(self, event: events.Committed, is_cut: bool) -> None:
        self.drafting_passes += 1
        self._kept_share += event.n_accepted / event.depth
        # A cut pass says nothing of the position after the cut; any other decided one more than it accepted.
        n_reached = event.n_accepted if is_cut else min(event.n_accepted + 1, event.depth)
        for counts, upto in (
            (self.tested, event.depth),
            (self.accepted_per_pos, event.n_accepted),
            (self.reached, n_reached),
        ):
            counts.extend([0] * (event.depth - len(counts)))
            for position in range(upto):
                counts[position] += 1

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def forced(self) -> int:
        """Tokens that came before drafts, each the only one that the form allowed."""
        return self.by_source.get("forced", 0)

    @property
    def tokens_per_pass(self) -> float | None:
        return _ratio(self.emitted, self.passes)

    @property
    def acceptance(self) -> float | None:
        return _ratio(self.accepted, self.drafted)

    @property
    def conditional(self) -> list[float | None]:
        return [_ratio(accepted, seen) for accepted, seen in zip(self.accepted_per_pos, self.reached, strict=True)]

    @property
    def mean_alpha(self) -> float | None:
        return _ratio(sum(self.accepted_per_pos), sum(self.reached))

    @property
    def accepted_length(self) -> float | None:
        """la: accepted tokens per drafting pass."""
        return _ratio(self.accepted, self.drafting_passes)

    @property
    def accepted_over_k(self) -> float | None:
        """la/k: the mean over drafting passes of accepted / depth."""
        return _ratio(self._kept_share, self.drafting_passes)

    @property
    def first_token_ms(self) -> float | None:
        """Milliseconds from Enter to the first token: waiting for a load or another answer counts; None without one."""
        if self.finished is None or not self.emitted:
            return None
        waited = 0.0 if self._first_at is None or self.asked_at is None else 1e3 * (self._first_at - self.asked_at)
        return max(waited, self.finished.ttft_ms)

    @property
    def waited(self) -> Waited | None:
        """The time waited, by part; None before the end. Without `asked_at` it begins with the request."""
        if self.finished is None or self._ended_at is None:
            return None
        whole = wall = self.finished.wall_ms
        if self.asked_at is not None:
            whole = max(whole, 1e3 * (self._ended_at - self.asked_at))
        write = max(0.0, wall - self.finished.ttft_ms) if self.emitted else 0.0
        reading = self.prefilled.prepare_ms + self.prefilled.ms if self.prefilled is not None else 0.0
        read = min(reading, wall - write)
        load = min(self._load_ms, whole - write - read)
        return Waited(whole - load - read - write, load, read, write)

    @property
    def ms_per_token(self) -> float | None:
        return _ratio(self.decode_ms, self._decoded)

    @property
    def tok_per_s(self) -> float | None:
        return _ratio(1000.0, self.ms_per_token or 0.0)

    @property
    def decode_ms(self) -> float:
        return self.draft_ms + self.verify_ms + self.sample_ms + self.other_ms

    @property
    def baseline(self) -> Baseline | None:
        if len(self._plain) < FEWEST:
            return None
        ms = median(timed.plain_ms for timed in self._plain)
        return Baseline(ms, len(self._plain), self._plain[-1].ctx, self.clock() - self._plain_at)

    @property
    def comparison(self) -> Comparison | None:
        """This answer against its own plain passes; None without drafts, or where these are too few."""
        if not self.wide_passes:
            return None
        n = self._timed.n
        is_due = n - self._compared[0] > (0 if self.finished is not None else n // LOOK)
        if is_due:  # a long answer is not looked at after each pass: renderers ask for it twenty times a second
            self._compared = (n, self._timed.compare(self._decoded))
        return self._compared[1]

    @property
    def why_not(self) -> str:
        if not self._timed.is_enough:
            n, places = self._timed.n_plain, f"plain passes in {self._timed.places} of {PLACES} places"
            return places if n >= FEWEST else f"too few plain passes, {n} of {FEWEST}"
        comparison = self.comparison
        return "the answer has too few passes" if comparison is None else comparison.why_not

    @property
    def is_demonstration(self) -> bool:
        """Whether a bundled pair answers: what surrounds its short passes decides how fast they are."""
        return self.loaded is not None and self.loaded.draft is not None and is_bundled(self.loaded.name)

    @property
    def drafted_little(self) -> bool:
        return self.wide_passes < MIN_DRAFTED_SHARE * self._timed.n

    @property
    def speedup(self) -> float | None:
        """The speed over that of plain decoding; None where it is unknown, undecided or not due to drafts."""
        comparison = self.comparison
        if comparison is None or self.is_demonstration:
            return None
        return None if comparison.why_not or comparison.holds_one or self.drafted_little else comparison.factor


def grown(loaded: events.Loaded | None, started: events.Started) -> events.Loaded | None:
    return loaded if loaded is None or started.n_ctx is None else replace(loaded, n_ctx=started.n_ctx)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _n_behind(event: events.Committed) -> int:
    """Return how many of a pass's last tokens write its text, which stands behind its reasoning."""
    n, length = 0, len(event.text)
    while length > 0 and n < len(event.out):
        n += 1
        length -= len(event.out[-n].text)
    return n
