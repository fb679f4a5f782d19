"""Markers: stand-ins for the texts of messages, by which a template's own text is told from theirs."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from localspec.prompt.renderer import Refused
from localspec.settings.request import Message

_BEGIN, _END = "\ue000", "\ue001"
_SWITCH = re.compile(r"(?<!\S)/(?:no_?)?think(?!\S)")  # a word of a message by which some templates switch reasoning


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the prompt. Control tokens are recognised in it only if it `is_trusted`. `ids` are the tokens that
    the text of a message was written with, if it was a model that wrote it."""

    text: str
    is_trusted: bool
    ids: tuple[int, ...] = ()


Prompt = tuple[Segment, ...]


class Markers:
    """Stand-ins for the texts of messages, which neither the template nor a message contains. `messages` have them for
    content and reasoning. Blank texts stay: they are harmless, and templates ask for them. So does the white space
    around a text, which templates trim, and a word in it by which the template is switched."""

    def __init__(self, messages: Sequence[Message], template: str, specials: Collection[str]) -> None:
        self._texts = [text for message in messages for text in (message.content, message.reasoning)]
        # Only where a control token holds white space could the user's make one.
        self._has_spaced_specials = any(char.isspace() for special in specials for char in special)
        self._switches = frozenset(re.findall(r"""["'](/(?:no_?)?think)["']""", template))
        everything = "\0".join([template, *self._texts])
        number = 0
        # Private-use characters around letters and digits: no template trims, splits or compares with these.
        while f"{_BEGIN}m{number}n" in everything:
            number += 1
        self._prefix = f"{_BEGIN}m{number}n"
        self._ids = [ids for message in messages for ids in (message.ids, ())]
        self._wanted = {i for i in range(0, len(self._texts), 2) if self._core(self._texts[i])}
        self.messages = [
            replace(message, content=self._mark(2 * i), reasoning=self._mark(2 * i + 1))
            for i, message in enumerate(messages)
        ]

    def lost(self, marked: str) -> set[int]:
        """Return the numbers of the messages whose content is not in `marked` as it was given."""
        return {i // 2 for i in self._wanted if self._name(i) not in marked}

    def others(self, some: set[int]) -> list[Message]:
        return [
            replace(message, content=message.content.replace(_END, f"x{_END}")) if i in some else message
            for i, message in enumerate(self.messages)
        ]

    def cut(self, marked: str) -> Prompt:
        """Return the template's parts of `marked` as trusted, the texts in place of their markers as not. A template
        may leave out reasoning, but no content; and nothing may be left of a marker."""
        pieces = re.split(f"{re.escape(self._prefix)}([0-9]+){_END}", marked)
        indices = [int(index) for index in pieces[1::2]]
        if not self._wanted <= set(indices) or any(char in part for part in pieces[::2] for char in (_BEGIN, _END)):
            raise Refused("it cuts or changes messages, which hold the text of control tokens")
        made = [Segment(pieces[0], is_trusted=True)]
        for index, behind in zip(indices, pieces[2::2], strict=True):
            text, words = self._core(self._texts[index]), self._words(index)
            if words and not behind.startswith(words):  # the template has taken them out
                text = _SWITCH.sub(lambda word: "" if word[0] in self._switches else word[0], text).strip()
            made.append(Segment(text, is_trusted=False, ids=self._ids[index]))
            made.append(Segment(behind.removeprefix(words), is_trusted=True))
        return tuple(segment for segment in made if segment.text)

    def _name(self, index: int) -> str:
        return f"{self._prefix}{index}{_END}"

    def _core(self, text: str) -> str:
        return text if self._has_spaced_specials else text.strip()

    def _mark(self, index: int) -> str:
        text = self._texts[index]
        core = self._core(text)
        return text.replace(core, self._name(index) + self._words(index), 1) if core else text

    def _words(self, index: int) -> str:
        return "".join(f" {word}" for word in _SWITCH.findall(self._texts[index]) if word in self._switches)


def controls(text: str, specials: Collection[str]) -> list[str]:
    """Return every control token that `text` spells, in order, those inside others too. Which of two that overlap
    llama.cpp takes depends on their lengths and ids. So all are compared, and none is chosen."""
    specials_at: list[tuple[int, str]] = []
    for special in specials:
        at = text.find(special)
        while at >= 0:
            specials_at.append((at, special))
            at = text.find(special, at + 1)
    return [special for _, special in sorted(specials_at)]
