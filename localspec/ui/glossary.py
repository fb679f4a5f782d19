"""The words that localspec uses, read from pages/glossary.md.

`localspec explain TERM`, its completion, the help screen of the full-screen chat and docs/glossary.md show them. A
section of the page is a term: one line, a paragraph, other spellings (`- also:`), related names (`- see:`) and
phrases of the lines below answers that it explains (`- said:`).
"""

import re
from dataclasses import dataclass
from importlib.resources import files

FIGURES = ("pass", "drafted", "accepted", "corrected", "bonus", "plain", "probe", "verdict")  # explained by F1


@dataclass(frozen=True, slots=True)
class Term:
    """A word with one line (`short`), a few sentences (`text`), other spellings, related names and phrases."""

    name: str
    short: str
    text: str
    aliases: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, object]:
        return {"term": self.name, "short": self.short, "text": self.text, "see": list(self.see)}


def key(name: str) -> str:
    return "-".join(name.lower().replace("-", " ").replace("_", " ").split())


def _read(page: str) -> list[Term]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)[1:]
    return [_term(name, body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)]


def _term(name: str, body: str) -> Term:
    short, text, *rest = body.split("\n\n")
    lists = {"also": "", "see": "", "said": ""}
    for line in "\n".join(rest).splitlines():
        kind, _, names = line.removeprefix("- ").partition(": ")
        lists[kind] = ", ".join(filter(None, (lists[kind], names)))
    also, see, said = (tuple(filter(None, names.split(", "))) for names in lists.values())
    return Term(name, short, " ".join(text.split()), also, see, said)


TERMS = {
    key(term.name): term
    for term in _read((files("localspec.ui") / "pages" / "glossary.md").read_text(encoding="utf-8"))
}
_ALIASES = {key(alias): term for term in TERMS.values() for alias in term.aliases}
_PHRASES = {key(phrase): term for term in TERMS.values() for phrase in term.said}


def find(name: str) -> Term | None:
    term, line = TERMS.get(key(name)) or _ALIASES.get(key(name)), f"-{key(name)}-"
    places = {phrase: line.find(f"-{phrase}") for phrase in _PHRASES}
    first = min((phrase for phrase, at in places.items() if at >= 0), key=places.__getitem__, default=None)
    return term or (None if first is None else _PHRASES[first])


def names() -> list[str]:
    return [*TERMS, *_ALIASES]
