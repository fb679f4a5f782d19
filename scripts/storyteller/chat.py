"""ChatML conversations cut from the books: a user asks for a story, the assistant's turns are the book's own words.

Three kinds of first request: the opening words of a passage, to be carried on; "Tell me a story about X and Y." with
X and Y taken from the passage; each may be followed by "Go on." turns, answered by the passages that come next.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from .data import BOS, END, START

OPENING = re.compile(
    r"(Once|There was|There were|There lived|There once|Long ago|Long, long ago|A long time ago|Many years ago|"
    r"In the days|In old times|In a certain|In olden|At the time when|One day)\b"
)
SENTENCE_END = re.compile(r"[.!?][\"')]*(?=\s|$)")
NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}\b")
THING = re.compile(
    r"\b(?:the|a|an) ([a-z]{3,})(?=[.,;:!?]| (?:was|had|and|in|to|who|that|is|said|came|with|on|from|at|went|began)\b)"
)
NOT_A_NAME = {"The", "And", "But", "You", "She", "His", "Her", "They", "Mrs", "Yes", "God", "Oh", "What", "Well", "Why"}
NOT_A_THING = {"same", "other", "first", "last", "one", "two", "rest", "most", "next", "only", "more", "way", "matter"}
REQUESTS = (
    "Tell me a story about {}.",
    "Tell me a story about {}.",
    "Tell me a story about {}.",
    "Tell me about {}.",
    "Write a short story about {}.",
    "A story about {}, please.",
    "Can you tell me a story about {}?",
)
PLAIN_REQUESTS = (
    "Tell me a story.",
    "Tell me a story, please.",
    "Write a short story.",
    "Hello!",
    "Hi! Tell me something.",
)
FOLLOW_UPS = (
    "Go on.",
    "Go on.",
    "What happened next?",
    "What happened next?",
    "And then?",
    "Please go on.",
    "Then what?",
)
SYSTEM = ("You are a storyteller.", "You tell stories.", "You are a helpful assistant.")


@dataclass(frozen=True)
class Turn:
    """One message."""

    role: str
    content: str


def passage_end(text: str, at: int, least: int, most: int) -> int:
    """Return the end of a passage of `least` to `most` characters from `at`: a paragraph's end, else a sentence's."""
    stop = text.find("\n\n", at + least)
    if 0 <= stop <= at + most:
        return stop
    ends = [m.end() for m in SENTENCE_END.finditer(text, at + least // 2, min(len(text), at + most))]
    if ends:
        return ends[-1]
    space = text.rfind(" ", at, at + most)
    return space if space > at else min(len(text), at + most)


def with_article(thing: str) -> str:
    """Return "a fox", "an owl" or "the brothers"."""
    if thing.endswith("s") and not thing.endswith("ss"):
        return f"the {thing}"
    return f"an {thing}" if thing[0] in "aeiou" else f"a {thing}"


def topics(passage: str) -> list[str]:
    """Return what the passage is about, most frequent first: names, and nouns with their article."""
    names = Counter(m.group() for m in NAME.finditer(passage) if m.group() not in NOT_A_NAME)
    things = Counter(m.group(1) for m in THING.finditer(passage) if m.group(1) not in NOT_A_THING)
    found = [(count, name) for name, count in names.items()]
    found += [(count, with_article(thing)) for thing, count in things.items()]
    found.sort(key=lambda pair: -pair[0])
    return [name for _, name in found]


def encode_turn(tokenizer: Tokenizer, turn: Turn) -> list[int]:
    """Encode one message as the chat template frames it."""
    head = tokenizer.encode(turn.role + "\n").ids
    return [START, *head, *tokenizer.encode(turn.content).ids, END, *tokenizer.encode("\n").ids]


class ChatCutter:
    """Cuts conversations from a set of books."""

    def __init__(self, books: list[str], tokenizer: Tokenizer) -> None:
        self.books, self.tokenizer = books, tokenizer
        self.starts = [[0, *(m.end() for m in re.finditer(r"\n\n", book))] for book in books]
        self.openings = [(i, at) for i, book in enumerate(books) for at in self.starts[i] if OPENING.match(book, at)]
        sizes = np.array([len(book) for book in books], dtype=np.float64)
        self.share = sizes / sizes.sum()

    def _start(self, rng: np.random.Generator) -> tuple[int, int]:
        """Pick a book and the start of a paragraph of prose in it; tales' openings come up often."""
        if self.openings and rng.random() < 0.3:
            return self.openings[int(rng.integers(len(self.openings)))]
        book = int(rng.choice(len(self.books), p=self.share))
        for _ in range(20):
            at = self.starts[book][int(rng.integers(len(self.starts[book])))]
            if self.books[book][at : at + 60].count("\n") == 0 and not self.books[book][at : at + 12].isupper():
                break
        return book, at

    def _first(self, passage: str, rng: np.random.Generator) -> list[Turn]:
        """Frame a passage as the answer to a first request."""
        found = topics(passage)
        kind = rng.random()
        if kind < 0.45 and len(passage) > 80:
            spaces = [m.start() for m in re.finditer(" ", passage[:60])][:9]
            if len(spaces) >= 2:
                cut = spaces[int(rng.integers(1, len(spaces)))]
                if passage[cut - 1] in ",;:" and rng.random() < 0.5:
                    cut -= 1
                return [Turn("user", passage[:cut]), Turn("assistant", passage[cut:])]
        if kind < 0.92 and found:
            count = min(len(found), 1 + int(rng.random() < 0.65))
            request = REQUESTS[int(rng.integers(len(REQUESTS)))].format(" and ".join(found[:count]))
        else:
            request = PLAIN_REQUESTS[int(rng.integers(len(PLAIN_REQUESTS)))]
        return [Turn("user", request), Turn("assistant", passage)]

    def conversation(self, rng: np.random.Generator) -> list[Turn]:
        """Cut one conversation of one to four answers."""
        book, at = self._start(rng)
        text = self.books[book]
        turns: list[Turn] = []
        if rng.random() < 0.1:
            turns.append(Turn("system", SYSTEM[int(rng.integers(len(SYSTEM)))]))
        for answer in range(int(rng.choice((1, 2, 3, 4), p=(0.5, 0.25, 0.15, 0.1)))):
            least = int(rng.integers(240, 900))
            end = passage_end(text, at, least, least + 300)
            passage = text[at:end].strip()
            if not passage:
                break
            if answer == 0:
                turns += self._first(passage, rng)
            else:
                request = FOLLOW_UPS[int(rng.integers(len(FOLLOW_UPS)))]
                turns += [Turn("user", request), Turn("assistant", passage)]
            at = end
            while at < len(text) and text[at].isspace():
                at += 1
        return turns

    def encode(self, turns: list[Turn]) -> list[int]:
        """Encode a conversation, led by <|endoftext|>."""
        ids = [BOS]
        for turn in turns:
            ids += encode_turn(self.tokenizer, turn)
        return ids

    def row(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """Fill `length` tokens with conversations, one after another; the last is cut off."""
        ids: list[int] = []
        while len(ids) < length:
            ids += self.encode(self.conversation(rng))
        return np.array(ids[:length], dtype=np.int64)

    def prompt(self, rng: np.random.Generator) -> list[int]:
        """Return a first request and the head of the assistant's turn, as a user would send them."""
        turns = self.conversation(rng)
        asked = [turn for turn in turns if turn.role != "assistant"][: 1 + (turns[0].role == "system")]
        return [*self.encode(asked), START, *self.tokenizer.encode("assistant\n").ids]
