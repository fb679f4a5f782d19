"""The corpus as tokens: books in a row, each led by <|endoftext|>, and windows cut from them."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BOS, START, END = 0, 1, 2
BOOK_MARK = "<|book|>\n"


@dataclass(frozen=True)
class Split:
    """One half of the corpus."""

    books: list[str]
    tokens: np.ndarray  # [N] uint16
    n_bytes: int


def read_books(corpus: Path, split: str) -> list[str]:
    """Return the texts of `stories-SPLIT.txt.xz`."""
    with lzma.open(corpus / f"stories-{split}.txt.xz", "rt", encoding="utf-8") as file:
        return [book for book in file.read().split(BOOK_MARK) if book.strip()]


def train_tokenizer(books: list[str], vocab: int, path: Path) -> None:
    """Train the byte-level BPE tokenizer and write it to `path`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator((text for book in books for text in book.split("\n\n")), trainer)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))


def load_split(corpus: Path, split: str, tokenizer: Tokenizer) -> Split:
    """Read and encode one half of the corpus."""
    books = read_books(corpus, split)
    ids: list[int] = []
    for book in books:
        ids.append(BOS)
        ids.extend(tokenizer.encode(book).ids)
    return Split(books, np.array(ids, dtype=np.uint16), sum(len(book.encode()) for book in books))


def book_row(split: Split, length: int, rng: np.random.Generator) -> np.ndarray:
    """Return <|endoftext|> and `length - 1` tokens of running text from anywhere."""
    at = int(rng.integers(0, len(split.tokens) - length))
    return np.concatenate(([BOS], split.tokens[at : at + length - 1])).astype(np.int64)
