"""A draft model whose tokens differ from its target's: token-level intersection (TLI, Timor et al. arXiv 2502.05202).

The draft's distribution is restricted to tokens that write equal bytes in both vocabularies, and renormalised. It is a
distribution on the target's tokens then, as any draft's, so each rule, tree and noise stays exact. The draft reads the
text in its own tokens.

Where its tokens are chosen and not drawn, the draft may write text instead. The target's tokens of that are drafted
then, so they need not be shared: string-level exact match (SLEM, same source).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.engine.text import common_prefix

CHUNK = 32  # tokens of the target that are spelled at once, at least; the last chunk is spelled anew for every draft
WORD = 8  # tokens of the target, at most, that are read again with the text that follows them
UNREADABLE = "\ufffd".encode()  # read in the place of a byte that no token of the draft writes

Logits = NDArray[np.float32]


class Translation(Protocol):
    """How a draft model reads the target's tokens and answers in them.

    `respells`: the draft's tokens of a text may change where the text goes on.
    """

    respells: bool

    def text(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return a text of the target in the draft's tokens, none where the draft cannot read it."""

    def token(self, token: int) -> int:
        """Return the draft's token for one of the target's that it gave a probability."""

    def row(self, logits: Logits) -> Logits:
        """Return logits of the draft [V of the draft] by the target's tokens; they last until the next call."""


@dataclass(frozen=True)
class SameTokens:
    """Equal vocabularies. Either may have further tokens behind those of the other."""

    n_target: int
    n_draft: int
    respells = False

    def text(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the same tokens, none where the draft lacks one of them."""
        return tokens if self.n_draft >= self.n_target or max(tokens) < self.n_draft else ()

    def token(self, token: int) -> int:
        return token

    def row(self, logits: Logits) -> Logits:
        """Return the row without the tokens that only the draft has."""
        return logits[: self.n_target]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The tokens of one model, of `n_vocab`.

    `spellings` holds the token of each text that a token writes, `specials` the text of each token that stands for
    structure. `ends` are the token that ends a turn and the one that ends a text, as far as there are such. `add_bos`:
    a text begins with `bos`. `tokenize` finds no special tokens; `piece` returns the texts of these, too.
    """

    n_vocab: int
    spellings: Mapping[bytes, int]
    specials: Mapping[int, bytes]
    ends: tuple[int, ...]
    bos: int | None
    add_bos: bool
    tokenize: Callable[[bytes], list[int]]
    piece: Callable[[int], bytes]


class Intersection:
    """The translation by the tokens that two vocabularies share.

    `text` is a function of the tokens alone: what it keeps of earlier texts only saves time. A text is spelled in
    chunks, so that its beginning keeps its tokens while it goes on.
    """

    respells = True

    def __init__(self, target: Lexicon, draft: Lexicon) -> None:
        self._target = target
        self._speller = Speller(target, draft)
        self.retokeniser = Retokeniser(target, draft)
        both = sorted(
            (target.spellings[text], draft.spellings[text]) for text in target.spellings.keys() & draft.spellings
        )
        self._own = dict(both)
        self._ids = np.array([token for token, _ in both], np.intp)  # [m] of the target
        self._own_ids = np.array([own for _, own in both], np.intp)  # [m] of the draft
        self._end = target.ends[0] if target.ends and draft.ends else None
        self._own_ends = np.array(draft.ends, np.intp)
        if self._end is not None:
            self._own[self._end] = draft.ends[0]
        self._row: Logits = np.full(target.n_vocab, -np.inf, np.float32)
        self._tokens: Sequence[int] = ()  # read last
        self._read: list[int] = []  # the same in the draft's tokens
        self._cuts: list[tuple[int, int]] = []  # ends of chunks in both

    def text(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the text in the draft's tokens, none where nothing is left of it."""
        same = common_prefix(self._tokens, tokens)
        if same == len(tokens) == len(self._tokens):
            return self._read
        while self._cuts and self._cuts[-1][0] >= same:  # the token after a chunk decided where it ends
            self._cuts.pop()
        start, n_read = self._cuts[-1] if self._cuts else (0, 0)
        read = self._read[:n_read]
        while (end := self._cut(tokens, start)) is not None:
            read += self._speller.spell(tokens[start:end], is_first=start == 0)
            self._cuts.append((end, len(read)))
            start = end
        read += self._speller.spell(tokens[start:], is_first=start == 0)
        self._tokens, self._read = list(tokens), read
        return read

    def token(self, token: int) -> int:
        return self._own[token]

    def row(self, logits: Logits) -> Logits:
        """Return the draft's logits of shared tokens, -inf for the others.

        The token that ends the target's turn has the probability of all tokens that end one for the draft.
        """
        self._row[self._ids] = logits[self._own_ids]
        if self._end is not None:
            self._row[self._end] = np.logaddexp.reduce(logits[self._own_ends])
        return self._row

    def _cut(self, tokens: Sequence[int], start: int) -> int | None:
        """Return where the chunk that begins at `start` ends: at a word, or where none comes, at a character.

        None while it may go on.
        """
        for end in range(start + CHUNK, len(tokens)):
            is_late = end >= start + 2 * CHUNK
            if self._target.piece(tokens[end])[:1] == b" " or is_late:
                before = b"".join(self._target.piece(token) for token in tokens[end - 3 : end])
                if not unfinished(before):
                    return end
        return None


class Speller:
    """Writes the target's tokens in the draft's.

    A special token stays one where the draft has it too: the same text, or the same role. The texts of others are read
    as text.
    """

    def __init__(self, target: Lexicon, draft: Lexicon) -> None:
        self._target = target
        self._draft = draft
        named = {text: token for token, text in draft.specials.items()}
        self._marks = {token: [named[text]] for token, text in target.specials.items() if text in named}
        if target.bos is not None and target.bos not in self._marks:
            self._marks[target.bos] = [draft.bos] if draft.add_bos and draft.bos is not None else []
        if draft.ends:
            for token, own in zip(target.ends, (draft.ends[0], draft.ends[-1]), strict=False):
                self._marks.setdefault(token, [own])
        # SPM vocabularies may put a space before a text, which a fragment of one must not get.
        self._adds_space = b"".join(map(draft.piece, draft.tokenize(b"a"))) == b" a"
        self._lead = draft.tokenize(b"\n")

    def spell(self, tokens: Sequence[int], *, is_first: bool) -> list[int]:
        """Return a stretch of the target's text in the draft's tokens. `is_first`: the text begins with it."""
        own: list[int] = []
        if is_first:
            if self._draft.add_bos and self._draft.bos is not None:
                own = [self._draft.bos]
            if len(tokens) and tokens[0] == self._target.bos:
                tokens = tokens[1:]
        text = b""
        for token in tokens:
            mark = self._marks.get(token)
            if mark is None:
                text += self._target.piece(token)
                continue
            own += [*self._written(text, is_first=is_first), *mark]
            text, is_first = b"", False
        return own + self._written(text, is_first=is_first)

    def _written(self, text: bytes, *, is_first: bool) -> list[int]:
        """Return the tokens of a text, whose last character may lack some of its bytes: these are read one by one."""
        cut = len(text) - unfinished(text)
        own = self.tokens_of(text[:cut].decode("utf-8", "replace").encode(), is_first=is_first)
        for byte in text[cut:]:
            token = self._draft.spellings.get(bytes([byte]))
            own += self.tokens_of(UNREADABLE, is_first=False) if token is None else [token]
        return own

    def tokens_of(self, text: bytes, *, is_first: bool) -> list[int]:
        """Return the tokens of whole characters. Before a text that is not the first no space is put."""
        if not text:
            return []
        if self._adds_space and not is_first:
            own = self._draft.tokenize(b"\n" + text)
            if own[: len(self._lead)] == self._lead:
                return own[len(self._lead) :]
        return self._draft.tokenize(text)


class Retokeniser:
    """Reads what a draft writes after a text in the target's tokens."""

    def __init__(self, target: Lexicon, draft: Lexicon) -> None:
        self._target = target
        self._draft = draft
        self._speller = Speller(draft, target)

    def spelling(self, own: int) -> bytes | None:
        """Return the bytes of one of the draft's tokens, None where it stands for structure."""
        text = self._draft.piece(own)
        return text if text in self._draft.spellings and own not in self._draft.ends else None

    def end(self, own: int) -> int | None:
        """Return the token that ends the target's turn where `own` ends a turn for the draft."""
        return self._target.ends[0] if self._target.ends and own in self._draft.ends else None

    def size(self, token: int) -> int:
        return len(self._target.piece(token))

    def tokens(self, committed: Sequence[int], text: bytes) -> list[int]:
        """Return the target's tokens of `text` after the tokens `committed`, without an unfinished last character.

        The last word is read again with the text. Where its tokens change, the text is read by itself. None are
        returned where it is not UTF-8, or where the target cannot write it.
        """
        for word in (self._word(committed), []):
            whole = b"".join(map(self._target.piece, word)) + text
            whole = whole[: len(whole) - unfinished(whole)]
            try:
                whole.decode()
            except UnicodeDecodeError:
                continue
            spelt = self._speller.tokens_of(whole, is_first=False)
            if spelt[: len(word)] == word and b"".join(map(self._target.piece, spelt)) == whole:
                return spelt[len(word) :]
        return []

    def _word(self, committed: Sequence[int]) -> list[int]:
        """Return the tokens of the last word, which begin with a whole character."""
        word: list[int] = []
        for token in reversed(committed):
            piece = self._target.piece(token)
            if piece not in self._target.spellings:
                break
            word.append(token)
            if piece[:1] == b" " or (len(word) >= WORD and piece[0] & 0xC0 != 0x80):
                break
        return word[::-1]


def unfinished(text: bytes) -> int:
    """Return how many bytes at the end of `text` begin a UTF-8 character that lacks some of its bytes."""
    for n, byte in enumerate(reversed(text[-3:]), start=1):
        if byte & 0xC0 != 0x80:
            n_wanted = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return n if n < n_wanted else 0
    return 0
