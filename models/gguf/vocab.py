"""The tokenizer's part of a GGUF header, with the defaults that llama.cpp fills in.

Source: `llama_vocab::impl::load` in src/llama-vocab.cpp. Its assertions (a token text that occurs twice) and the
exceptions that would end a load (scores of a wrong type, malformed byte tokens) are refused here with a reason.

Vocabularies with equal hashes (`fingerprint`) are interchangeable and need no comparison token by token. The reverse
does not hold: a draft may fit a target whose hash is another (see `pairs`), for instance with a few unused tokens more.
"""

import hashlib
import re
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from localspec.models.gguf.header import Header, Strings, Value, unusable
from localspec.models.gguf.pieces import BYTE, pieces
from localspec.sanitize import quoted, shown

_ARRAYS = ("tokens", "token_type", "merges", "scores")  # scores decide how SPM and UGM vocabularies cut a text
_BYTE_TOKEN = re.compile(rb"<0x[0-9A-Fa-f]{2}>")
_MAX_TOKENS = 1 << 20  # four times the largest known


@dataclass(frozen=True)
class Family:
    """What llama.cpp assumes about a tokenizer model unless the file says otherwise; ids may be None."""

    type: str
    bos: int | None = None
    eos: int | None = None
    add_bos: bool = False
    add_eos: bool = False


_BPE = Family("BPE", bos=11, eos=11)
FAMILIES: dict[str, Family] = {
    "llama": Family("SPM", bos=1, eos=2, add_bos=True),
    "bert": Family("WPM", bos=101, add_bos=True),
    "gpt2": _BPE,
    "hybriddna": _BPE,
    "whitespace": _BPE,
    "gemma4": Family("BPE", add_bos=True),
    "t5": Family("UGM", eos=1, add_eos=True),
    "rwkv": Family("RWKV"),
    "plamo2": Family("PLAMO2", bos=1, eos=2),
}

# Pre-tokenizers of BPE models that turn add_bos on, or have no BOS token by default.
_ADD_BOS = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"}
    | {"tekken", "chameleon", "gemma4"}
)
_NO_BOS = frozenset({"glm4", "glm5", "chatglm-bpe"})
# Of these the tokens write a space as SPM's do, and all other characters as they are.
_SPM_TEXTS = frozenset({"gemma4", "granite-embed-multi-311m", "sarvam-moe"})


@dataclass(frozen=True)
class Vocab:
    """The tokenizer: `model` and `pre` as the file names them, `type` as llama.cpp groups them (SPM, BPE ...). `types`
    are llama.cpp's types of the tokens, empty where all are normal. `eot` is only what the file says; llama.cpp also
    finds such tokens by their text."""

    model: str
    pre: str
    type: str
    tokens: Strings
    types: Sequence[float]
    bos: int | None
    eos: int | None
    eot: int | None
    add_bos: bool
    add_eos: bool

    def __hash__(self) -> int:
        return hash((self.type, self.tokens))

    def text(self, token: int) -> bytes:
        return held(token, self.tokens[token])

    @cached_property
    def spellings(self) -> Mapping[bytes, int]:
        """Return the token of each text that one token writes."""
        longer: dict[bytes, int] = {}
        single: dict[bytes, int] = {}
        kind = "SPM" if self.model == "gemma4" or self.pre in _SPM_TEXTS else self.type
        for token, piece in enumerate(pieces(kind, self.tokens, self.types)):
            if piece:
                is_byte = len(self.types) > 0 and self.types[token] == BYTE
                (single if is_byte else longer).setdefault(piece, token)
        return {**single, **longer}


def held(token: int, text: bytes) -> bytes:
    """Return what llama.cpp makes of a token's text: a zero byte ends it, and an empty one gets a name."""
    return text.partition(b"\0")[0] or b"[EMPTY_%d]" % token


def read_vocab(header: Header) -> Vocab:
    """Read the tokenizer; raise IntegrityError that names the key where llama.cpp would refuse or abort."""
    model = header.required("tokenizer.ggml.model", "str")
    family = FAMILIES.get(model)
    if family is None:
        raise unusable(header, f"tokenizer.ggml.model is '{shown(model)}', a tokenizer that llama.cpp does not know")
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, Strings) or not len(tokens):
        raise unusable(header, "the metadata key tokenizer.ggml.tokens is missing, empty or not an array of strings")
    if len(tokens) > _MAX_TOKENS:
        raise unusable(header, f"its vocabulary has {len(tokens)} tokens, and no more than {_MAX_TOKENS} are read")
    _check_per_token(header, "scores", ("arr[f32]", "arr[i32]"), len(tokens))
    _check_per_token(header, "token_type", ("arr[i32]",), len(tokens))
    types = header.metadata.get("tokenizer.ggml.token_type", ())
    assert isinstance(types, Sequence)
    assert not isinstance(types, str | Strings)
    fault = _fault(tokens, types.tobytes() if isinstance(types, array) else b"", has_bytes=family.type == "SPM")
    if fault is not None:
        raise unusable(header, fault)
    if family is _BPE:
        can_lack_merges = header.text("tokenizer.ggml.pre") == "kimi-k2"
        header.required("tokenizer.ggml.merges", "arr[str]", () if can_lack_merges else None)
    pre = header.required("tokenizer.ggml.pre", "str", "") if family.type == "BPE" else ""
    return Vocab(
        model=model,
        pre=pre,
        type=family.type,
        tokens=tokens,
        types=types,
        bos=_special(header, "bos", None if pre in _NO_BOS else family.bos, len(tokens)),
        eos=_special(header, "eos", family.eos, len(tokens)),
        eot=_special(header, "eot", None, len(tokens)),
        add_bos=model == "gemma4"
        or pre == "gemma4"
        or header.required("tokenizer.ggml.add_bos_token", "bool", family.add_bos or pre in _ADD_BOS),
        add_eos=header.required("tokenizer.ggml.add_eos_token", "bool", family.add_eos),
    )


def _special(header: Header, name: str, default: int | None, n_vocab: int) -> int | None:
    """Return a special token's id; like llama.cpp, ignore one beyond the vocabulary."""
    key = f"tokenizer.ggml.{name}_token_id"
    default = None if default is None or default >= n_vocab else default
    if key not in header.metadata:
        return default
    value: int = header.required(key, "u32")
    return value if value < n_vocab else default


@lru_cache(maxsize=16)  # models of a family have the same vocabulary
def _fault(tokens: Strings, types: bytes, *, has_bytes: bool) -> str | None:
    """Return why llama.cpp would refuse the tokens or abort, None if it would not. `types` are bytes of an array."""
    texts = [held(token, text) for token, text in enumerate(tokens)]
    known = frozenset(texts)
    if len(known) < len(texts):
        first: dict[bytes, int] = {}
        token, text = next((token, text) for token, text in enumerate(texts) if first.setdefault(text, token) != token)
        return f"the tokens {first[text]} and {token} have the same text {quoted(text)}"
    # What no token spells is cut into bytes.
    without = (byte for byte in range(256) if known.isdisjoint((b"<0x%02X>" % byte, bytes([byte]))))
    if has_bytes and (byte := next(without, None)) is not None:
        return f"its tokenizer has no token <0x{byte:02X}>, so texts with that byte cannot be read"
    for token, kind in enumerate(array("i", types)[: len(tokens)]):
        if kind == BYTE and not _BYTE_TOKEN.fullmatch(tokens[token]):
            return f"the token {token} is a byte token, but its text is {quoted(tokens[token])}"
    return None


def _check_per_token(header: Header, name: str, types: tuple[str, ...], n_vocab: int) -> None:
    key = f"tokenizer.ggml.{name}"
    if key not in header.metadata:
        return
    if header.types[key] not in types:
        raise unusable(header, f"{key} has the type {header.types[key]} instead of {' or '.join(types)}")
    value = header.metadata[key]
    assert isinstance(value, Sequence)
    if len(value) < n_vocab:
        raise unusable(header, f"{key} has {len(value)} entries for {n_vocab} tokens")


def fingerprint(header: Header, vocab: Vocab) -> str:
    """Return the sha256, in hex, of the tokenizer: kind, tokens, their types, merges or scores, special ids, flags. The
    padding token is left out: makers of quantised files set it as they like, and nothing here depends on it."""
    digest = hashlib.sha256(b"localspec tokenizer 1\0")
    kind = (vocab.type, vocab.model, vocab.pre)
    special = (vocab.bos, vocab.eos, vocab.eot, vocab.add_bos, vocab.add_eos)
    digest.update(repr((kind, special)).encode("utf-8", "backslashreplace"))
    for name in _ARRAYS:
        value = header.metadata.get(f"tokenizer.ggml.{name}")
        content = b"" if value is None else _content(value)
        digest.update(f"\0{name} {len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _content(value: Value) -> bytes:
    if isinstance(value, Strings):
        return value.data
    if isinstance(value, array):
        numbers = value[:]
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()
    return repr(value).encode("utf-8", "backslashreplace")
