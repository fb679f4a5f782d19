"""The bytes that each token writes, by the header alone: llama.cpp's `llama_token_to_piece` without special ones."""

import re
from collections.abc import Iterator, Sequence

NORMAL, USER_DEFINED, BYTE = 1, 4, 6  # LLAMA_TOKEN_TYPE_...; tokens of the other types write nothing
SPACE = "▁".encode()
_ESCAPED = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)  # in texts of RWKV's tokenizer
_CONTROLS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def pieces(kind: str, tokens: Sequence[bytes], types: Sequence[float]) -> Iterator[bytes]:
    """Yield the bytes of each token, b"" for one that writes nothing. `kind` says how texts are written: BPE for
    characters that stand for bytes, RWKV for escapes, else ▁ for a space. `types` are llama.cpp's token types, empty
    where all are normal."""
    table = _byte_values()
    for token, text in enumerate(tokens):
        form = types[token] if len(types) else NORMAL
        if form == BYTE:
            yield bytes([int(text[3:5], 16)])
        elif form == USER_DEFINED:
            yield text
        elif form != NORMAL:
            yield b""
        elif kind == "RWKV":
            yield _ESCAPED.sub(_unescaped, text)
        elif kind != "BPE":
            yield text.replace(SPACE, b" ")
        elif text.isascii():
            yield text
        else:
            try:
                yield text.decode().translate(table).encode("latin-1")
            except UnicodeError:  # no text of a byte-level tokenizer
                yield b""


def _unescaped(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 16)]) if match[1] is not None else _CONTROLS.get(match[2], match[2])


def _byte_values() -> dict[int, int]:
    """Return the byte that each character of a byte-level vocabulary stands for (GPT-2's bytes_to_unicode)."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (byte for byte in range(256) if byte not in shown)
    return {byte: byte for byte in shown} | {256 + n: byte for n, byte in enumerate(hidden)}
