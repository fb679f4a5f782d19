"""The messages between an edge and its verifier: what is sent arrives, and what is none is refused in one line."""

import dataclasses
import importlib
import pkgutil
import types
import typing
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec import remote
from localspec.engine.distribution import Distribution
from localspec.remote import LONGEST_FRAME, ahead, channel, connection, judge, messages, modes, verifier, vocabulary
from localspec.remote.connection import OPENING
from localspec.remote.messages import (
    LONGEST_PART,
    VERSION,
    Bye,
    Cancel,
    Error,
    Facts,
    Fetch,
    Hello,
    Look,
    MessageError,
    Prefix,
    Result,
    Resync,
    SentDist,
    ToEdge,
    ToVerifier,
    Verify,
    VocabularyPart,
    Wait,
    Welcome,
    digest_of,
    encode,
    packed,
    quantised,
    reply_of,
    request_of,
    unpacked,
)
from localspec.settings.request import Sampling
from tests.recorded import recorded_expressions

SAMPLINGS = st.builds(
    Sampling,
    temperature=st.floats(0, 10),
    top_k=st.integers(0, 2**31 - 1),
    seed=st.none() | st.integers(0, 2**64 - 1),
    logit_bias=st.lists(st.tuples(st.integers(0, 999), st.sampled_from([1.5, -float("inf")])), max_size=3).map(tuple),
)
LAWS = st.builds(SentDist, st.binary(max_size=40), st.binary(max_size=40))
KNOWN = {Sampling: SAMPLINGS, SentDist: LAWS}


def values(kind: object) -> st.SearchStrategy[object]:
    """Return what a field of a type may hold, drawn from its limits."""
    if kind in KNOWN:
        return KNOWN[typing.cast(type, kind)]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        meta = args[1]
        if args[0] is int:
            return st.integers(meta.ge, meta.le or (meta.lt or 2**64) - 1)
        if args[0] is str:
            return st.text(max_size=8)
        return values(args[0])
    if origin is tuple:
        if args[-1] is Ellipsis:
            return st.lists(values(args[0]), max_size=4).map(tuple)
        return st.tuples(*map(values, args))
    if args:
        return st.one_of(*map(values, args))
    return {bytes: st.binary(max_size=16), type(None): st.none(), int: st.integers(0, 9), bool: st.booleans()}[
        typing.cast(type, kind)
    ]


def drawn(union: object) -> st.SearchStrategy[typing.Any]:
    kinds = typing.get_args(union)
    return st.one_of(
        *(st.builds(kind, **{f.name: values(f.type) for f in msgspec.structs.fields(kind)}) for kind in kinds)
    )


@given(drawn(ToVerifier))
def test_what_an_edge_says_arrives(message: ToVerifier) -> None:
    assert request_of(encode(message)) == message


@given(drawn(ToEdge))
def test_what_a_verifier_says_arrives(message: ToEdge) -> None:
    assert reply_of(encode(message)) == message


def assert_one_line(read: Callable[[bytes], object], data: bytes) -> None:
    """Assert that bytes are a message, or refused by one line."""
    try:
        read(data)
    except MessageError as error:
        told = str(error)
    else:
        told = ""
    assert "\n" not in told
    assert len(told) < 300


def test_a_slow_line_brings_a_part_of_a_vocabulary_in_time() -> None:
    """64 kbit a second, and what a WebSocket and TCP put around it."""
    assert 1.1 * LONGEST_PART / 8_000 < OPENING


@given(st.binary(max_size=200))
def test_garbage_is_one_error(data: bytes) -> None:
    for read in (request_of, reply_of):
        assert_one_line(read, data)


@given(drawn(ToVerifier), st.data())
def test_a_broken_message_is_one_error(message: ToVerifier, data: st.DataObject) -> None:
    """Cut, or with one byte changed: another message at most."""
    whole = encode(message)
    with pytest.raises(MessageError):
        request_of(whole[: data.draw(st.integers(0, len(whole) - 1))])
    at, byte = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    assert_one_line(request_of, whole[:at] + bytes([byte]) + whole[at + 1 :])


@pytest.mark.parametrize(
    "message",
    [
        Prefix(-1, ()),
        Prefix(2**53 + 1, ()),
        Prefix(0, (-1,)),
        Prefix(0, (2**31,)),
        Prefix(0, (1,) * 262_145),
        Verify(0, 0, -1),
        Verify(0, 0, 0, (1,) * 1025),
        Verify(0, 0, 0, q=bytes(2**21 + 1)),
        Verify(0, 0, 0, laws=(SentDist(),) * 1025),
        Hello(1, "v" * 129),
        Hello(1, "v", form=("grammar", "x" * (2**20 + 1))),
        Hello(1, "v", sampling=replace(Sampling(), temperature=-1.0)),
        Hello(1, "v", stops=("x",) * 65),
        Hello(1, "v", stops=("x" * 4097,)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_values_out_of_range_are_refused(message: ToVerifier) -> None:
    with pytest.raises(MessageError):
        request_of(encode(message))


@pytest.mark.parametrize(
    "message",
    [
        Prefix(2**53, (0, 2**31 - 1) * 131_072),
        Verify(0, 0, 2**64 - 1, (1,) * 1024, q=bytes(2**21), laws=(SentDist(),) * 1024),
        Hello(1, "v" * 128, stops=("x" * 4096,) * 64, form=("grammar", "x" * 2**20)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_the_longest_that_there_may_be(message: ToVerifier) -> None:
    assert request_of(encode(message)) == message


def test_a_verdict_has_a_law_for_each_node_and_the_root() -> None:
    whole = Result(1, 0, None, 3, laws=(SentDist(),) * 1025)
    assert reply_of(encode(whole)) == whole
    with pytest.raises(MessageError):
        reply_of(encode(Result(1, 0, None, 3, laws=(SentDist(),) * 1026)))


def test_the_numbers_of_messages_and_of_the_protocol() -> None:
    """Both sides may be of another release: a change wants another version."""
    first = [Look, Facts, Fetch, VocabularyPart, Hello, Welcome, Prefix]
    kinds: list[type[msgspec.Struct]] = [*first, Verify, Result, Wait, Resync, Error, Cancel, Bye]
    assert all(kind.__struct_config__.frozen for kind in (*kinds, messages.WireMessage, SentDist))
    assert [kind.__struct_config__.tag for kind in kinds] == list(range(1, 15))
    assert encode(Look(VERSION)) == b"\x92\x01\x01"
    assert digest_of([]) == 0
    assert digest_of([0, 1, 2**31 - 1]) == 0xB1D256431BDD1DE8


def test_a_long_frame_is_refused_unread() -> None:
    with pytest.raises(MessageError, match="at most"):
        request_of(b"\xc6" + bytes(LONGEST_FRAME))
    with pytest.raises(MessageError, match="this is no message of protocol 1: "):
        request_of(bytes(LONGEST_FRAME))


class Wordy:
    """A decoder that says much."""

    def decode(self, data: bytes) -> None:
        raise msgspec.ValidationError("a\n" + "b" * 300)


def test_what_is_said_of_a_message_is_short_and_one_line() -> None:
    with pytest.raises(MessageError) as caught:
        messages._decoded(b"", Wordy())  # type: ignore[arg-type]
    assert str(caught.value) == "this is no message of protocol 1: a " + "b" * 198
    with pytest.raises(MessageError) as caught:
        reply_of(b"\xc1")
    assert str(caught.value).startswith("this is no message of protocol 1: MessagePack data is malformed")


CONSTANTS = {  # both sides keep to them, and may be of two releases; of the times an edge's answer depends
    remote: {"LONGEST_FRAME": 4 * 2**20},
    messages: {"VERSION": 1, "MOST_NODES": 1024, "MOST_IDS": 2**18, "MOST_SUPPORT": 2**18, "LONGEST_PART": 2**16,
               "UNITS": 2.0**32},
    modes: {"MOST_ENTRIES": 4096},
    judge: {"MOST_RESYNCS": 16},
    verifier: {"MOST_SESSIONS": 64, "WORD": 64},
    vocabulary: {"LARGEST": 64 * 2**20},
    connection: {"OPENING": 10.0, "GLANCE": 0.1, "LONGEST_KEY": 4096, "LONGEST_REPLY": 64 * 2**20},
    channel: {"PATIENCE": 120.0, "SILENT": 2.0, "FIRST_PAUSE": 0.1, "LONGEST_PAUSE": 3.0},
    ahead: {"RECENT": 8, "QUARTER": 4, "FEW": 8, "QUIET": 8, "REST": 32, "NEW": 0.2},
}  # fmt: skip


@pytest.mark.parametrize("module", CONSTANTS, ids=lambda module: module.__name__)
def test_limits_and_times(module: types.ModuleType) -> None:
    assert {name: getattr(module, name) for name in CONSTANTS[module]} == CONSTANTS[module]


def test_values_cannot_be_changed() -> None:
    """But for a connection, which counts its bytes, and both ends of a session, which count its rounds."""
    names = [each.name for each in pkgutil.iter_modules(remote.__path__)]
    found = {
        each
        for name in names
        for each in vars(importlib.import_module(f"localspec.remote.{name}")).values()
        if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__.startswith("localspec.remote")
    }
    changing = {each.__name__ for each in found if not each.__dataclass_params__.frozen}
    assert changing == {"Connection", "RemoteJudge", "Session"}


def test_each_side_reads_the_other_only() -> None:
    with pytest.raises(MessageError):
        reply_of(encode(Verify(1, 2, 3)))
    with pytest.raises(MessageError):
        request_of(encode(Result(1, 0, 5, 9)))


def test_a_later_version_may_say_more() -> None:
    """Its Hello can be read, and refused by its number."""
    wire = [*msgspec.msgpack.decode(encode(Hello(2, "v", session="s"))), "more"]
    assert request_of(msgspec.msgpack.encode(wire)) == Hello(2, "v", session="s")


def test_an_earlier_verifier_says_less() -> None:
    """Of sizes that it does not tell, none is known."""
    wire = msgspec.msgpack.decode(encode(Facts(1, "t", "m", "v", 9, 64, 8, 2, n_params=5, bytes=6)))
    assert reply_of(msgspec.msgpack.encode(wire[:-2])) == Facts(1, "t", "m", "v", 9, 64, 8, 2, n_params=0, bytes=0)


def test_an_edge_that_says_no_more_asks_for_the_defaults() -> None:
    """Each side may be of another release: what is left out means the same in all of them."""
    wire = msgspec.msgpack.encode([5, 2, "v"])
    assert request_of(wire) == Hello(
        version=2, vocabulary="v", model="", mode="coupled", verify="coupled", seed=0, sampling=Sampling(),
        max_tokens=None, stops=(), form=None, session="", prompt_n=0, marks=None, answer=0,
    )  # fmt: skip


def test_bytes_of_a_round() -> None:
    """Eight ids in a vocabulary of 150 000: no more than a text of them would take."""
    up = Verify(1000, 3000, 2**63, (140_000,) * 8)
    assert len(encode(up)) <= 66
    assert len(encode(Result(1000, 5, 77_777, 3006, 45_000))) <= 22


@given(st.lists(st.integers(0, 2**31 - 1), max_size=30), st.integers(0, 30))
def test_the_digest_goes_on(ids: list[int], at: int) -> None:
    whole = digest_of(ids)
    assert digest_of(ids[at:], digest_of(ids[:at])) == whole
    assert 0 <= whole < 2**64


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20), st.data())
def test_the_digest_finds_a_slip(ids: list[int], data: st.DataObject) -> None:
    """One token changed, dropped, doubled or swapped with its neighbour."""
    at = data.draw(st.integers(0, len(ids) - 1))
    slips = [
        [*ids[:at], ids[at] + 1, *ids[at + 1 :]],
        [*ids[:at], *ids[at + 1 :]],
        [*ids[:at], ids[at], *ids[at:]],
        [*ids[:at], *ids[at : at + 2][::-1], *ids[at + 2 :]],
    ]
    assert all(digest_of(slip) != digest_of(ids) for slip in slips if slip != ids)


@given(st.lists(st.tuples(st.integers(0, 99), st.floats(0.01, 1)), min_size=1, max_size=12, unique_by=lambda x: x[0]))
def test_a_law_arrives(pairs: list[tuple[int, float]]) -> None:
    """To the last bit: in eight bytes a token where it is quantised, else in twelve."""
    pairs.sort()
    dist = Distribution.of(np.array([i for i, _ in pairs], np.int32), np.array([p for _, p in pairs]))
    short = quantised(dist)
    assert np.allclose(short.probs, dist.probs, rtol=0, atol=2**-32)
    assert short.probs.sum() == 1.0
    for sent in (dist, short):
        law = SentDist.of(sent)
        assert len(law.ids) + len(law.probs) <= (12 if sent is dist else 8) * dist.ids.size
        arrived = law.distribution(100)
        assert arrived is not None
        assert arrived.ids.tolist() == sent.ids.tolist()
        assert arrived.probs.tolist() == sent.probs.tolist()
    assert quantised(short).probs.tolist() == short.probs.tolist()
    assert quantised(replace(dist, untempered=short)).untempered is short
    assert SentDist.of(None).distribution(100) is None


def test_what_is_less_than_a_unit_leaves_a_short_law() -> None:
    """And a probability of 0, which has no unit, is written in full."""
    dist = Distribution(np.array([3, 5, 7], np.int32), np.array([1e-11, 1.0 - 2e-11, 1e-11]))
    assert (quantised(dist).ids.tolist(), quantised(dist).probs.tolist()) == ([5], [1.0])
    least = Distribution(np.array([3, 5], np.int32), np.array([2**-32, 1 - 2**-32]))
    assert quantised(least).probs.tolist() == least.probs.tolist(), "one unit stays"
    sure = Distribution.one_hot(7)
    assert quantised(sure) is sure
    for probs, size in (([0.0, 1.0], 16), ([0.5, 0.5], 8), ([2**-32, 1 - 2**-32], 8), ([2**-33, 1 - 2**-33], 16)):
        data = packed(np.array(probs))
        assert len(data) == size
        assert unpacked(data, 2).tolist() == probs


@pytest.mark.parametrize(
    ("ids", "probs"),
    [
        ([3, 3], [0.5, 0.5]),
        ([4, 3], [0.5, 0.5]),
        ([3, 100], [0.5, 0.5]),
        ([1, 2], [1.0, 0.0]),
        ([1], [np.nan]),
        ([1, 2], [0.5, 0.6]),
        ([1, 2], [0.5, 0.5 + 1.5e-9]),
        ([1, 2], [0.5, 0.5 - 1.5e-9]),
    ],
)
def test_what_is_no_law_is_refused(ids: list[int], probs: list[float]) -> None:
    law = SentDist(np.array(ids, "<u4").tobytes(), np.array(probs, "<f8").tobytes())
    with pytest.raises(MessageError):
        law.distribution(100)


def test_a_law_that_adds_up_but_for_rounding_is_taken() -> None:
    law = SentDist(np.array([98, 99], "<u4").tobytes(), np.array([0.5, 0.5 + 5e-10], "<f8").tobytes())
    assert law.distribution(100) is not None


def test_a_law_with_missing_bytes_is_refused() -> None:
    for law in (
        SentDist(b"abc", b"abc"),
        SentDist(b"abcd", b"abc"),
        SentDist(b"abcdefgh", b"abcd"),
        SentDist(b"abcde", b"abcd"),
    ):
        with pytest.raises(MessageError):
            law.distribution(2**31)


def test_a_draft_is_a_tree() -> None:
    assert Verify(1, 2, 3, (5, 6, 7)).tree() == (-1, 0, 1, 2)
    assert Verify(1, 2, 3, (5, 6, 7), (0, 0, 2)).tree() == (-1, 0, 0, 2)
    for chances in ((0.5, 0.25), (0.5, 0.1)):
        told = Verify(1, 2, 3, (5, 6), q=packed(np.array(chances)), laws=(SentDist(), SentDist()))
        assert (told.tree(), told.chances()) == ((-1, 0, 1), chances)
    assert Verify(1, 2, 3).chances() == ()
    for wrong in (
        Verify(1, 2, 3, (5, 6), (0, 2)),
        Verify(1, 2, 3, (5, 6), (0,)),
        Verify(1, 2, 3, (5, 6), q=b"abc"),
        Verify(1, 2, 3, (5, 6), laws=(SentDist(),)),
    ):
        with pytest.raises(MessageError):
            wrong.tree()


test_what_is_recorded = recorded_expressions(__file__, msgspec, reply_of, request_of)
