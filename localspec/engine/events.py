"""What happens while a model loads and answers: frozen events, the one stream that every face reads.

The command line, the chat, benchmarks and the worker's pipe all read these, and nothing else, so that no two of them
can tell a different story. `localspec.worker.codec` carries them; readers ignore
unknown types and fields.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from localspec.errors import LocalspecError, from_wire

NOT_YET = "more than may be lost yet"  # in a cause: drafting pays as a rule, and this answer had no room to begin
GPU_SETTLES = 2  # passes: CUDA launches the first of a width kernel by kernel, records the second, replays the others


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts of one loaded model."""

    path: str
    bytes: int
    arch: str
    quant: str
    n_params: int
    n_vocab: int
    n_layer: int
    kv_bytes: int  # of a context of full length
    devices: tuple[str, ...]
    fingerprint: str = ""  # tells the file from another one of the same name
    load_ms: float = 0.0  # milliseconds that loading it took


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of loading `what` (target or draft), `fraction` in 0..1."""

    what: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """Others are answered first: `before` answers are to end before this one begins."""

    before: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """Both models are ready."""

    name: str
    target: ModelFacts
    draft: ModelFacts | None
    n_ctx: int
    threads: int
    load_ms: float
    versions: dict[str, str]
    max_rows: int = 1  # of a pass that drafts; 1: the target takes no draft back
    max_leaves: int = 1  # of a draft
    parallel: int = 1  # answers at once


@dataclass(frozen=True, slots=True)
class Started:
    """An answer begins: the settings as they were resolved."""

    method: str
    tree: str
    length: str
    k: int
    verify: str
    seed: int
    is_seeded: bool  # the seed was asked for, not drawn
    prompt_n: int
    is_lossless: bool = True  # the output keeps the target's distribution
    derived: ModelFacts | None = None  # the model that drafts, if it was made of the target's own layers
    widths: tuple[int, ...] = ()  # rows that a pass may have with --reproducible, () without it
    left_out: tuple[int, ...] = ()  # turns of the conversation, from 0 on, for which the context has no room
    n_ctx: int | None = None  # tokens that the context holds now: it may have grown since it was loaded


@dataclass(frozen=True, slots=True)
class Reading:
    """A long prompt is being evaluated: `n` of its `Started.prompt_n` tokens are done, those of the cache included."""

    n: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the cache: `prompt_n` tokens, of which `cache_n` were there already.

    `ms` is the evaluation's time, `prepare_ms` what template and tokenizer took before it.
    """

    prompt_n: int
    cache_n: int
    ms: float
    prepare_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """One token on its way to the screen. `text` is its own decoding (U+FFFD for partial characters)."""

    id: int
    text: str
    source: str  # accepted, corrected, bonus, plain, forced
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token with its log-probability (natural logarithm), None where it had no chance.

    `bytes` are those of its text, none for a control token. `top` are the likeliest at its place, the likeliest first.
    """

    id: int
    bytes: tuple[int, ...]
    logprob: float | None
    top: tuple[Logprob, ...] = ()

    @property
    def text(self) -> str:
        """Return the token's own text, U+FFFD for a part of a character."""
        return bytes(self.bytes).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Scored:
    """The tokens of a prompt with their log-probabilities, where the request asks for them; the first has none."""

    logprobs: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True)
class StepMs:
    """Milliseconds of one pass by part."""

    draft: float
    verify: float
    sample: float
    other: float


@dataclass(frozen=True, slots=True)
class Way:
    """What a pass took on the way to a verifier on another machine: `up` and `down` are bytes.

    `ms` passed until its answer came, `judge_ms` of these in the verifier; what is left is the round trip. Of the
    drafted tokens `n_looked` have a known distribution, and `n_hard` of them are hard for the draft (`remote.hard`).
    Meanwhile the draft model made `n_ahead` passes; `n_ready` tokens of the next draft take none any more.
    The text takes `share` of the verifier's cache. With the last pass its process tells its `peak`, the largest
    resident size so far in bytes; 0: not told.
    """

    up: int
    down: int
    ms: float
    judge_ms: float
    n_looked: int = 0
    n_hard: int = 0
    n_ahead: int = 0
    n_ready: int = 0
    share: float = 0.0
    peak: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """One pass of the target committed `out`; `text` is what became complete (whole UTF-8, no partial stop string).

    `reasoning` is what became complete of the reasoning that the model writes before its answer; `text` has none of it.

    `k` draft tokens were tested, in a tree of `depth` levels, `n_accepted` of them kept. Neither counts the `n_forced`
    tokens before them, each the only one that the form allowed. `drafted` lists the draft tokens, those too, only when
    details were asked for. `position` is the absolute position of the first committed token. `rows`
    are those that were asked for: the pending token, the draft, and what it was padded with. `logprobs` are of `out`,
    where they were asked for.
    """

    index: int
    position: int
    k: int
    depth: int
    n_accepted: int
    out: tuple[Piece, ...]
    text: str
    ms: StepMs
    is_probe: bool
    why: str
    expected_tokens: float | None = None  # as the controller predicted the pass
    expected_ms: float | None = None
    drafted: tuple[Piece, ...] = ()
    drafter: str = ""  # who drafted, "" where nothing was
    rows: int = 0  # 0: the prompt's own pass
    plain_ms: float | None = None  # milliseconds of plain decoding, where the pass measured it: its planning left out
    n_forced: int = 0
    reasoning: str = ""
    logprobs: tuple[Logprob, ...] = ()
    way: Way | None = None  # None where the target is on this machine


@dataclass(frozen=True, slots=True)
class Probed:
    """A plain pass of an earlier answer: milliseconds of a token with `ctx` tokens in the context, `age_s` seconds ago.

    The plain passes of this answer are `Committed.plain_ms`.
    """

    plain_ms: float
    ctx: int
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Warned:
    """Something a person should know that does not stop the work."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. `reason`: stop, length, context or interrupted.

    `tail` is text held back until now, and `reasoning` reasoning that was.
    """

    reason: str
    tail: str
    wall_ms: float
    ttft_ms: float
    peak_memory: int  # bytes, of the process that runs llama.cpp
    verdict: str = ""  # what the automatic controller found, for people; whether drafting paid, the speedup says
    overdrawn_ms: float | None = None  # by which its loss account was overdrawn at worst; at most 0: its bound held
    cause: str = ""  # why it found that, with figures and what to type
    reasoning: str = ""
    saves: int = 0  # bytes at most that are written to disk after this
    is_whole: bool = True  # whether it has the form that was asked for; a cut one may have only its beginning
    stopping_word: str = ""  # the stop text that ended it, if one did


@dataclass(frozen=True, slots=True)
class Inspected:
    """The answer to a question about the pair (`localspec.lossless`); nothing follows."""

    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    """The work stopped with an error; nothing follows."""

    error: dict[str, Any]

    def exception(self) -> LocalspecError:
        """Return the error as it was raised on the other side."""
        return from_wire(self.error)


Event = (
    Loading
    | Waiting
    | Loaded
    | Started
    | Reading
    | Scored
    | Prefilled
    | Committed
    | Probed
    | Warned
    | Finished
    | Inspected
    | Failed
)
Y = TypeVar("Y")
T = TypeVar("T")
EventsThen = Generator[Event, None, T]  # a call that yields events while it works, and then returns its result


class Returning(Generic[Y, T]):
    """Iterates over what a generator yields; `result` is what it returned at its end."""

    result: T

    def __init__(self, generator: Generator[Y, None, T]) -> None:
        self._generator = generator

    def __iter__(self) -> Iterator[Y]:
        self.result = yield from self._generator
