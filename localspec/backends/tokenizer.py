"""The vocabulary of a loaded model: texts to tokens and back, and tokens that stand for structure."""

from __future__ import annotations

import ctypes
import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from localspec.backends.lib import api
from localspec.errors import InternalError

_MARK = re.compile(r"<[|｜][^<>]+>|<[^<>]+[|｜]>")  # how control tokens are spelled that files call user-defined


# The normal form that a vocabulary's own tokenizer brings text to before it splits it, by tokenizer.ggml.pre. llama.cpp
# leaves that out, and decomposed text has up to three times the tokens then. Sources: the normaliser in the models'
# tokenizer.json; findings/llama-cpp-qwen-text-is-not-normalised.sh.
FORMS: dict[str, Literal["NFC"]] = {"qwen2": "NFC"}
# Texts whose tokens llama.cpp makes control tokens, whatever the file says; most end an answer. They stay text where
# the file says so, and neither its header nor its chat template names them. Those of the form <|...|> are on that list
# too, and stay what llama.cpp makes of them. Sources: src/llama-vocab.cpp of llama.cpp;
# findings/llama-cpp-text-of-a-token-overrides-its-type.sh.
TEXTS = (
    "</s>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<eos>", "<end_of_turn>", "<end_of_utterance>", "[e~[",
    "<PAD>", "[PAD]", "<fim-pad>", "<fim_pad>", "<REPO>", "<fim-repo>", "<reponame>",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Special:
    """Ids of the special tokens, None where the vocabulary has none, and whether texts begin with BOS."""

    bos: int | None
    eos: int | None
    eot: int | None
    add_bos: bool


class Tokenizer:
    """The vocabulary of the model `handle`, the last `n_masks` of whose tokens are mask tokens.

    `masks` are these tokens, which guess what follows the text (`heads.mask_file`). They stand behind the `n_vocab`
    tokens of text: a row of logits has `row_width` numbers, of which the first `n_vocab` count. `suppressed` tokens are
    never to be sampled.
    """

    def __init__(self, handle: Any, n_masks: int) -> None:
        self._vocab = api.llama_model_get_vocab(handle)
        self.row_width: int = api.llama_vocab_n_tokens(self._vocab)
        self.n_vocab = self.row_width - n_masks
        self.masks = tuple(range(self.n_vocab, self.row_width))
        self.special = self._special()
        self.suppressed = self._suppressed()
        self._form = FORMS.get(_metadata(handle, "pre"))
        self._texts, self._defined = self._own_texts(handle)
        self._parts = re.compile(b"(%s)" % b"|".join(map(re.escape, self._defined)))
        self._pieces: dict[tuple[int, bool], bytes] = {}
        self._ends: dict[int, bool] = {}
        self._words: list[bytes] = []

    @property
    def infill(self) -> tuple[int, int, int] | None:
        """The tokens before a prefix, a suffix and the middle that is to be filled in; None without them."""
        vocab = self._vocab
        tokens = api.llama_vocab_fim_pre(vocab), api.llama_vocab_fim_suf(vocab), api.llama_vocab_fim_mid(vocab)
        return tokens if min(tokens) >= 0 else None

    def tokenize(self, text: str | bytes, parse_special: bool = False, add_bos: bool = False) -> list[int]:
        """Return the tokens of `text`.

        `parse_special` reads the text of special tokens as those tokens: never for text from outside. Those that are
        user-defined are found without it, too. `add_bos` puts BOS in front where the vocabulary wants one.
        """
        if self._form is not None and isinstance(text, str) and not text.isascii():
            text = unicodedata.normalize(self._form, text)
        data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        tokens: list[int] = []
        for part in self._parts.split(data) if self._defined else (data,):
            own = self._defined.get(part)
            tokens += self._tokens(part, parse_special) if own is None else [own]
        bos = [self.special.bos] if add_bos and self.special.add_bos and self.special.bos is not None else []
        return bos + tokens

    def _tokens(self, data: bytes, parse_special: bool) -> list[int]:
        room = len(data) + 16
        while True:
            buffer = (ctypes.c_int32 * room)()
            n = api.llama_tokenize(self._vocab, data, len(data), buffer, room, False, parse_special)
            if n >= 0:
                return buffer[:n]
            if -n <= room:
                raise InternalError(f"llama.cpp cannot tokenize a text of {len(data)} bytes")
            room = -n

    def piece(self, token: int, special: bool = False) -> bytes:
        """Return the bytes of a token, perhaps not whole characters; b"" for control tokens unless `special`."""
        known = self._pieces.get((token, special))
        if known is None:
            known = self._pieces[token, special] = self._piece(token, special)
        return known

    def words(self) -> list[bytes]:
        """Return every token as a text of its own, without the space that a text's first word is given."""
        if not self._words:
            self._words = [self._word(token) for token in range(self.n_vocab)]
        return self._words

    def is_eog(self, token: int) -> bool:
        known = self._ends.get(token)
        if known is None:
            known = self._ends[token] = token not in self._texts and bool(api.llama_vocab_is_eog(self._vocab, token))
        return known

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token, which has no text of its own."""
        return token not in self._texts and bool(api.llama_vocab_is_control(self._vocab, token))

    def is_parsed(self, token: int) -> bool:
        """Whether the token stands for structure, so that its text becomes it only where that is trusted.

        Besides control and unknown tokens these are the user-defined ones that look like control tokens: Command R's
        file says so of its marks of turns, and llama.cpp of those of gpt-oss.
        """
        attr = api.llama_vocab_get_attr(self._vocab, token)
        if self.is_control(token) or attr & api.LLAMA_TOKEN_ATTR_UNKNOWN:
            return True
        is_defined = attr & api.LLAMA_TOKEN_ATTR_USER_DEFINED
        return bool(is_defined and _MARK.fullmatch(self.piece(token).decode("utf-8", "replace")))

    def _own_texts(self, handle: Any) -> tuple[frozenset[int], dict[bytes, int]]:
        """Return the tokens that are text by the file alone, and those of them that it calls user-defined, by text.

        llama.cpp adds its attribute to the file's, which is still there.
        """
        named = {_metadata(handle, f"{kind}_token_id") for kind in ("eot", "eom")} | {str(self.special.eos)}
        template = api.llama_model_chat_template(handle, None) or b""
        texts, defined = set(), {}
        has_words = api.llama_vocab_type(self._vocab) != api.LLAMA_VOCAB_TYPE_NONE  # llama.cpp aborts else
        for text in map(str.encode, TEXTS if has_words else ()):
            tokens = self._tokens(text, parse_special=True)
            attr = api.llama_vocab_get_attr(self._vocab, tokens[0]) if len(tokens) == 1 else 0
            of_file = attr & (api.LLAMA_TOKEN_ATTR_NORMAL | api.LLAMA_TOKEN_ATTR_USER_DEFINED)
            if not (of_file and attr & api.LLAMA_TOKEN_ATTR_CONTROL):
                continue
            if str(tokens[0]) not in named and text not in template:
                texts.add(tokens[0])
                if of_file & api.LLAMA_TOKEN_ATTR_USER_DEFINED:
                    defined[text] = tokens[0]
        return frozenset(texts), defined

    def _suppressed(self) -> tuple[int, ...]:
        """Return the tokens that the file says are never to be sampled: their embeddings were not trained."""
        n = ctypes.c_int32()
        tokens = api.llama_vocab_get_suppress_tokens(self._vocab, ctypes.byref(n))
        return tuple(token for token in tokens[: n.value] if 0 <= token < self.n_vocab) if n.value else ()

    def _special(self) -> Special:
        def known(token: int) -> int | None:
            return token if token >= 0 else None

        return Special(
            bos=known(api.llama_vocab_bos(self._vocab)),
            eos=known(api.llama_vocab_eos(self._vocab)),
            eot=known(api.llama_vocab_eot(self._vocab)),
            add_bos=bool(api.llama_vocab_get_add_bos(self._vocab)),
        )

    def _piece(self, token: int, special: bool) -> bytes:
        assert 0 <= token < self.n_vocab, f"token {token} is not in the vocabulary of {self.n_vocab}"
        if not special and self.is_control(token):
            return b""
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n: int = api.llama_token_to_piece(self._vocab, token, buffer, size, 0, special or token in self._texts)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def _word(self, token: int) -> bytes:
        alone = (ctypes.c_int32 * 1)(token)
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n: int = api.llama_detokenize(self._vocab, alone, 1, buffer, size, False, True)
            if n >= 0:
                return buffer.raw[:n]
            size = -n


STRIDE = 7919  # a prime: tokens that differ, where a vocabulary cannot write the text
FEWEST = 16  # tokens of the text: with fewer the same ones would come again and again

_tokens: WeakKeyDictionary[Tokenizer, NDArray[np.int32]] = WeakKeyDictionary()  # passes are short, and timed


def sample_tokens(model: Tokenizer, start: int, n: int) -> NDArray[np.int32]:
    """Return `n` tokens [n] of the text from its token `start` on. It begins anew behind its end."""
    text = _tokens.get(model)
    if text is None:
        text = _tokens[model] = np.array(model.tokenize(_text()), np.int32)
    at = np.arange(start, start + n)
    return text[at % len(text)] if len(text) >= FEWEST else (at * STRIDE % model.n_vocab).astype(np.int32)


@cache
def _text() -> bytes:
    """Return the shipped texts of trials, whose headings are part of it."""
    return files("localspec.session").joinpath("trial.txt").read_bytes()


def _metadata(handle: Any, key: str) -> str:
    """Return a value of the file on its vocabulary, as llama.cpp prints it, "" where there is none."""
    buffer = ctypes.create_string_buffer(64)
    n = api.llama_model_meta_val_str(handle, f"tokenizer.ggml.{key}".encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if n > 0 else ""
