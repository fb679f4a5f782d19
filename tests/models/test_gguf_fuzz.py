"""Whatever the bytes: a header or a LocalspecError, in bounded time, and nothing else."""

import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.errors import LocalspecError
from localspec.models.gguf.header import Strings, read_header
from localspec.models.gguf.info import ModelInfo, model_info
from tests.models.gguf_files import File, model, pair, tensor, u32, u64

QUICK = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WHOLE = model().build()
HEADER = len(WHOLE) - len(model().data)
EXTREMES = [0, 1, 2, 7, 8, 9, 12, 13, 31, 32, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]


def assert_survives(path: Path, content: bytes) -> ModelInfo | None:
    """Look at the content; None for a refusal. Any other exception, or more than a minute, fails the test."""
    path.write_bytes(content)
    start = time.monotonic()
    refusal: LocalspecError | None = None
    info: ModelInfo | None = None
    try:
        info = model_info(read_header(path))
    except LocalspecError as error:
        refusal = error
    assert time.monotonic() - start < 60
    if refusal is not None:
        assert refusal.message.isprintable()
        assert refusal.exit_code in (3, 5, 6)
    return info


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fuzz.gguf"


def test_flipping_any_bit_of_the_counts_and_types_never_escapes(path: Path) -> None:
    """Each bit of the fixed part, and 1500 others of the header."""
    chooser = random.Random(7)
    bits = [*range(24 * 8), *(chooser.randrange(HEADER * 8) for _ in range(1500))]
    refused = 0
    for bit in bits:
        content = bytearray(WHOLE)
        content[bit // 8] ^= 1 << bit % 8
        refused += assert_survives(path, bytes(content)) is None
    # A flipped letter in a name is still a valid file, but structure is all over the header.
    assert 0.3 < refused / len(bits) < 1


@QUICK
@given(st.binary(max_size=600))
def test_random_bytes(path: Path, content: bytes) -> None:
    assert assert_survives(path, content) is None
    assert assert_survives(path, b"GGUF" + u32(3) + content) is None


@QUICK
@given(st.binary(max_size=400), st.integers(0, 3), st.integers(0, 3))
def test_random_bytes_after_plausible_counts(path: Path, content: bytes, n_tensors: int, n_pairs: int) -> None:
    assert_survives(path, b"GGUF" + u32(3) + u64(n_tensors) + u64(n_pairs) + content)


@QUICK
@given(
    st.lists(st.tuples(st.integers(8, HEADER - 8), st.sampled_from(EXTREMES), st.booleans()), min_size=1, max_size=3)
)
def test_extreme_numbers_anywhere(path: Path, edits: list[tuple[int, int, bool]]) -> None:
    content = bytearray(WHOLE)
    for at, number, is_wide in edits:
        content[at : at + (8 if is_wide else 4)] = u64(number) if is_wide else u32(number & 0xFFFFFFFF)
    assert_survives(path, bytes(content))


@QUICK
@given(st.integers(0, HEADER), st.integers(0, 40), st.binary(max_size=40))
def test_cut_out_and_put_in(path: Path, at: int, length: int, insert: bytes) -> None:
    assert_survives(path, WHOLE[:at] + insert + WHOLE[at + length :])


def test_extreme_numbers_at_every_field(path: Path) -> None:
    file = model()
    fields = file.fields()
    for index, one in enumerate(fields):
        if len(one) in (4, 8):
            for number in EXTREMES:
                changed = (number & (2 ** (8 * len(one)) - 1)).to_bytes(len(one), "little")
                assert_survives(path, b"".join([*fields[:index], changed, *fields[index + 1 :]]))


NUMERIC = {
    "u8": st.integers(0, 2**8 - 1),
    "i8": st.integers(-(2**7), 2**7 - 1),
    "u16": st.integers(0, 2**16 - 1),
    "i16": st.integers(-(2**15), 2**15 - 1),
    "u32": st.integers(0, 2**32 - 1),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "u64": st.integers(0, 2**64 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "f32": st.floats(width=32, allow_nan=False),
    "f64": st.floats(allow_nan=False),
    "bool": st.booleans(),
}
SCALARS = [st.tuples(st.just(kind), values) for kind, values in NUMERIC.items()]
ARRAYS = [st.tuples(st.just(f"arr[{kind}]"), st.lists(values, max_size=9)) for kind, values in NUMERIC.items()]
TEXTS = [st.tuples(st.just("str"), st.text()), st.tuples(st.just("arr[str]"), st.lists(st.binary(), max_size=9))]
KEYS = st.text(min_size=1, max_size=20).filter(lambda key: key != "general.alignment" and "\0" not in key)


@QUICK
@given(st.dictionaries(KEYS, st.one_of(*SCALARS, *ARRAYS, *TEXTS), max_size=6), st.lists(st.integers(1, 9), max_size=4))
def test_what_is_written_is_read(path: Path, entries: dict[str, tuple[str, object]], shape: list[int]) -> None:
    pairs = {key: pair(key, kind, content) for key, (kind, content) in entries.items()}
    n = 4
    for dim in shape:
        n *= dim
    File(pairs=pairs, tensors=[tensor("t", shape)], data=bytes(n)).write(path)
    header = read_header(path)
    assert header.tensors[0].shape == tuple(shape)
    assert header.tensors[0].n_bytes == n
    for key, (kind, content) in entries.items():
        value = header.metadata[key]
        assert header.types[key] == kind
        if kind.startswith("arr["):
            assert isinstance(content, list)
            assert list(value) == content
            assert isinstance(value, Strings) == (kind == "arr[str]")
        else:
            assert value == content
            assert type(value) is type(content)
