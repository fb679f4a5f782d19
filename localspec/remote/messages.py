"""The messages between an edge, which drafts, and its verifier, which has the target. MessagePack, checked on arrival.

One session is one answer. Lengths and bases count all tokens from the start of the prompt. The committed text is told
once, as a `Prefix`, and then known to both sides by its length and its digest:

    Look -> Facts                      what the verifier holds
    Fetch -> Vocabulary                its vocabulary, in parts
    Hello -> Welcome                   a session, new or resumed
    Prefix                             ids from `base` on; no reply
    Verify -> Wait*, Result or Resync  a round; the first one, with an empty draft, draws the first token
    Cancel, Bye                        no reply
    Error                              in place of any reply; the connection stays

The field `round` makes a round idempotent: asked again, it has the same Result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from localspec.engine.distribution import Distribution, Probs
from localspec.errors import LocalspecError
from localspec.remote import LONGEST_FRAME
from localspec.settings.request import Sampling

VERSION = 1  # of these messages
MOST_NODES = 1024  # drafted tokens of one round
MOST_IDS = 1 << 18  # of one Prefix; a longer text is several
MOST_SUPPORT = 1 << 18  # tokens of one law
LONGEST_PART = 64 << 10  # bytes of a part of a vocabulary: a slow line brings one before the edge gives up
UNITS = 2.0**32  # of a probability in four bytes

Count = Annotated[int, Meta(ge=0, le=2**53)]
Id = Annotated[int, Meta(ge=0, lt=2**31)]
Digest = Annotated[int, Meta(ge=0)]  # MessagePack has 64 bits at most
Word = Annotated[str, Meta(max_length=128)]
Text = Annotated[str, Meta(max_length=4096)]
Ids = Annotated[tuple[Id, ...], Meta(max_length=MOST_IDS)]
Nodes = Annotated[tuple[Id, ...], Meta(max_length=MOST_NODES)]
Bytes = Annotated[bytes, Meta(max_length=8 * MOST_SUPPORT)]


class MessageError(ValueError):
    """Bytes that are no message of this protocol; the text says in one line what is wrong."""


class WireMessage(msgspec.Struct, array_like=True, frozen=True):
    """A message is an array: its number, then its fields. Fields that a later version adds at the end are ignored."""


class SentDist(msgspec.Struct, array_like=True, frozen=True):
    """A distribution: `ids` [m] as little-endian uint32, ascending, and `probs` [m].

    A probability is a float64, or a uint32: multiples of 1 / UNITS, less one, that add up to UNITS. No ids: a point
    mass on the token it belongs to. Nothing is rounded here: whoever wants short laws draws from `quantised` ones.
    """

    ids: Bytes = b""
    probs: Bytes = b""

    @staticmethod
    def of(dist: Distribution | None) -> SentDist:
        """Return the law of a distribution, None for a point mass: of 8 bytes a token if it is `quantised`, else 12."""
        return SentDist() if dist is None else SentDist(dist.ids.astype("<u4").tobytes(), packed(dist.probs))

    def distribution(self, n_vocab: int) -> Distribution | None:
        """Return the distribution on a vocabulary of `n_vocab` tokens. Raises MessageError for what is none."""
        if not self.ids:
            return None
        m, rest = divmod(len(self.ids), 4)
        if rest or len(self.probs) not in (4 * m, 8 * m):
            raise MessageError("a law has no probability for each of its tokens")
        ids = np.frombuffer(self.ids, "<u4").astype(np.int64)
        probs = unpacked(self.probs, m)
        if ids[-1] >= n_vocab or (np.diff(ids) <= 0).any():
            raise MessageError("the tokens of a law do not ascend within the vocabulary")
        if not (probs > 0).all() or not abs(probs.sum() - 1.0) < 1e-9:
            raise MessageError("the probabilities of a law are not positive, or do not add up to one")
        return Distribution(ids.astype(np.int32), probs)


def quantised(dist: Distribution) -> Distribution:
    """Return the distribution in multiples of 1 / UNITS, which add up to one exactly; smaller ones leave the support.

    The units of a token are those between two rounded cumulative sums, so each is right to one unit.
    """
    if dist.ids.size == 1:
        return dist
    edges = np.rint(dist.probs.cumsum() * UNITS)
    edges[-1] = UNITS
    units = np.diff(edges, prepend=0.0)
    some = units > 0.0
    return Distribution(dist.ids[some], units[some] / UNITS, dist.untempered)


def packed(probs: Probs) -> bytes:
    """Return probabilities as uint32 where all are multiples of 1 / UNITS, else as float64."""
    units = probs * UNITS
    is_whole = bool((units == np.rint(units)).all() and (units >= 1.0).all())
    return (units - 1.0).astype("<u4").tobytes() if is_whole else probs.astype("<f8").tobytes()


def unpacked(data: bytes, n: int) -> Probs:
    if len(data) == 4 * n:
        return (np.frombuffer(data, "<u4").astype(np.float64) + 1.0) / UNITS
    return np.frombuffer(data, "<f8").astype(np.float64)


class Look(WireMessage, frozen=True, tag=1):
    """What does the verifier hold?"""

    version: Count


class Facts(WireMessage, frozen=True, tag=2):
    """The target: its `name`, the `model`'s fingerprint, the digest of its `vocabulary`; `size` bytes fetch that.

    A draft may have `max_rows` - 1 nodes and `max_leaves` leaves; 1 row: none can be taken back. `bytes` is the size of
    the model.
    """

    version: Count
    name: Text
    model: Word
    vocabulary: Word
    size: Count
    n_ctx: Count
    max_rows: Count
    max_leaves: Count
    n_params: Count = 0
    bytes: Count = 0


class Fetch(WireMessage, frozen=True, tag=3):
    """Send the vocabulary from byte `start` on."""

    start: Count = 0


class VocabularyPart(WireMessage, frozen=True, tag=4):
    """A part of the vocabulary: compressed bytes from `start` on."""

    start: Count
    data: Bytes


class Hello(WireMessage, frozen=True, tag=5):
    """Open a session. `model` is the fingerprint of the target that the edge expects, "" for any.

    `mode` says what goes up and down, `verify` names the rule. `seed` is of the noise that both sides share, and of the
    verifier's own draws. `form` is the constraint's kind, a field of a request, and its text. `session` resumes one.
    Of the text the first `prompt_n` tokens are the prompt, and what follows is the answer. `marks` are the fields of
    `engine.text.Marks`: a form begins where the reasoning ends. Errors repeat `answer`, a number of the edge's.
    """

    version: Count
    vocabulary: Word
    model: Word = ""
    mode: Word = "coupled"
    verify: Word = "coupled"
    seed: Digest = 0
    sampling: Sampling = Sampling()
    max_tokens: Count | None = None
    stops: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    form: tuple[Word, Annotated[str, Meta(max_length=1 << 20)]] | None = None
    session: Word = ""
    prompt_n: Count = 0
    marks: tuple[Text, Text, Text, bool] | None = None
    answer: Count = 0


class Welcome(WireMessage, frozen=True, tag=6):
    """The session is open: the verifier has its first `have` tokens, whose digest is `digest`.

    A draft may have `max_rows` - 1 nodes and `max_leaves` leaves; 0 leaves: no draft at all can be taken back.
    """

    session: Word
    n_ctx: Count
    max_rows: Count
    max_leaves: Count = 1
    have: Count = 0
    digest: Digest = 0


class Prefix(WireMessage, frozen=True, tag=7):
    """The text from position `base` on is `ids`; what the verifier had behind `base` is no more."""

    base: Count
    ids: Ids


class Verify(WireMessage, frozen=True, tag=8):
    """Round number `round`: judge a draft behind the first `base` tokens, whose digest is `digest`.

    `committed` are tokens that the edge drew itself since; they stand before the draft, and are no part of `base`.
    Node i + 1 of the tree is `draft[i]` below node `parents[i]`; no parents: a chain. `q` has the `packed`
    probability with which each node was drawn; `laws` the whole law of each. `draw` says how nodes with a law were
    drawn, a word of `engine.draft.Draw`.
    """

    round: Count
    base: Count
    digest: Digest
    draft: Nodes = ()
    parents: Nodes = ()
    committed: Nodes = ()
    q: Bytes = b""
    laws: Annotated[tuple[SentDist, ...], Meta(max_length=MOST_NODES)] = ()
    draw: Word = ""

    def tree(self) -> tuple[int, ...]:
        """Return the parents of all nodes, that of the root first. Raises MessageError where they form no tree."""
        n = len(self.draft)
        parents = self.parents or tuple(range(n))
        if len(parents) != n or any(parent > node for node, parent in enumerate(parents)):
            raise MessageError("the parents of a draft form no tree")
        if len(self.laws) not in (0, n) or len(self.q) not in (0, 4 * n, 8 * n):
            raise MessageError("a draft has no probability for each of its tokens")
        return (-1, *parents)

    def chances(self) -> tuple[float, ...]:
        """Return the probability of each node, () where none were sent."""
        return tuple(unpacked(self.q, len(self.draft)).tolist()) if self.q else ()


class Result(WireMessage, frozen=True, tag=9):
    """The verdict of round `round`: the path to `node` stands, then `token`, and the text has `length` tokens now.

    `token` None: the edge draws it, from `laws`. They are the verifier's, the row of `node` alone or one for each node.
    `micros` passed in the verifier. `finish` is why the answer ends, "" where it goes on. Then `peak` is the largest
    resident size of the process that holds the target, in bytes, 0 where it is not known.
    """

    round: Count
    node: Count
    token: Id | None
    length: Count
    micros: Count = 0
    finish: Word = ""
    laws: Annotated[tuple[SentDist, ...], Meta(max_length=MOST_NODES + 1)] = ()
    peak: Count = 0


class Wait(WireMessage, frozen=True, tag=10):
    """The round waits: `before` others are judged first."""

    before: Count


class Resync(WireMessage, frozen=True, tag=11):
    """The verifier has other tokens: `have` of them, with this `digest`. Send a Prefix, then ask again."""

    have: Count
    digest: Digest


class Error(WireMessage, frozen=True, tag=12):
    """A message cannot be obeyed: the kind of an error, a sentence, and what to type.

    `answer` is that of the Hello before the message, 0 where there is none.
    """

    code: Word
    message: Text
    hint: Text = ""
    answer: Count = 0


class Cancel(WireMessage, frozen=True, tag=13):
    """Nobody waits for round `round` any more."""

    round: Count


class Bye(WireMessage, frozen=True, tag=14):
    """The session is over."""


ToVerifier = Look | Fetch | Hello | Prefix | Verify | Cancel | Bye
ToEdge = Facts | VocabularyPart | Welcome | Result | Wait | Resync | Error
_ENCODER = msgspec.msgpack.Encoder()
_TO_VERIFIER = msgspec.msgpack.Decoder(ToVerifier)
_TO_EDGE = msgspec.msgpack.Decoder(ToEdge)


def encode(message: ToVerifier | ToEdge) -> bytes:
    return _ENCODER.encode(message)


def request_of(data: bytes) -> ToVerifier:
    """Return a message of an edge. Raises MessageError."""
    if len(data) > LONGEST_FRAME:
        raise MessageError(f"a message has {len(data)} bytes: at most {LONGEST_FRAME} are read")
    message: ToVerifier = _decoded(data, _TO_VERIFIER)
    if isinstance(message, Hello):
        try:
            message.sampling.check()
        except LocalspecError as error:
            raise MessageError(error.message) from None
    return message


def reply_of(data: bytes) -> ToEdge:
    """Return a message of a verifier. Raises MessageError."""
    message: ToEdge = _decoded(data, _TO_EDGE)
    return message


def _decoded(data: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise MessageError(f"this is no message of protocol {VERSION}: {' '.join(str(error).split())[:200]}") from None


def digest_of(ids: Iterable[int], digest: int = 0) -> int:
    """Return the 64-bit digest of a text of tokens; `digest` is that of the tokens before them.

    Two rounds of multiplying and folding a token, after SplitMix64: it finds a slip, and is no defence.
    """
    for token in ids:
        digest = ((digest ^ (token + 1)) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        digest = ((digest ^ digest >> 29) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        digest ^= digest >> 32
    return digest
