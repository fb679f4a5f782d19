"""The bytes that each token writes, by the header alone: llama.cpp's `llama_token_to_piece` without special ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

NORMAL, USER_DEFINED, BYTE = 1, 4, 6  # LLAMA_TOKEN_TYPE_...; tokens of the other types write nothing
SPACE = "▁".encode()


def pieces(kind: str, tokens: Sequence[bytes], types: Sequence[float]) -> Iterator[bytes]:
    """Yield the bytes of each token of a tokenizer of this `kind` (SPM, BPE ...), b"" for one that writes nothing.

    `types` are llama.cpp's token types, empty where all are normal.
    """
    table = _byte_values()
    for token, text in enumerate(tokens):
        form = types[token] if len(types) else NORMAL
        if form == BYTE:
            yield bytes([int(text[3:5], 16)])
        elif form == USER_DEFINED:
            yield text
        elif form != NORMAL:
            yield b""
        elif kind != "BPE" or SPACE in text:
            yield text.replace(SPACE, b" ")
        elif text.isascii():
            yield text
        else:
            try:
                yield text.decode().translate(table).encode("latin-1")
            except UnicodeError:  # no text of a byte-level tokenizer
                yield b""


def _byte_values() -> dict[int, int]:
    """Return the byte that each character of a byte-level vocabulary stands for (GPT-2's bytes_to_unicode)."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (byte for byte in range(256) if byte not in shown)
    return {byte: byte for byte in shown} | {256 + n: byte for n, byte in enumerate(hidden)}
