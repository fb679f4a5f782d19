"""A conversation as a document: Markdown or HTML for people, JSON for programs.

The texts are not trusted. HTML has them escaped, answers as Markdown without HTML of its own. Its
Content-Security-Policy forbids scripts, pictures and all that is loaded from elsewhere. Markdown and HTML hold no
control characters; JSON holds the exact texts.

In Markdown that is not trusted HTML stays text, an address that is not one of the web's or a mail's is no link, and a
picture is a link. What is too much for the parser is shown as it is.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from localspec.conversations.records import (
    ASSISTANT,
    USER,
    Conversation,
    StoredMessage,
    by_names,
    ending,
    model_names,
    spoken,
)
from localspec.sanitize import sanitize

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore

MAX_CHARACTERS = 48_000  # characters; a screen full of widgets takes seconds to lay out beyond that
MAX_LINE = 8_000  # characters of one of its lines
DEEPEST = 12  # nested quotes


def parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # late: most commands show none

    made = MarkdownIt("gfm-like", {"html": False})
    made.core.ruler.push("safe", _make_safe)
    return made


def is_plain(text: str) -> bool:
    """Whether `text` is too much for Markdown: in all, in one line, or in nested quotes."""
    if len(text) > MAX_CHARACTERS:
        return True
    return any(len(line) > MAX_LINE or line[:200].count(">") > DEEPEST for line in text.split("\n"))


def as_html(text: str) -> str:
    text = sanitize(text)
    if is_plain(text):
        return f'<div class="text">{html.escape(text)}</div>'
    made = parser().disable(["image", "html_block", "html_inline"])
    shown: str = made.render(text)
    return f'<div class="markdown">\n{shown}</div>'


def _make_safe(state: StateCore) -> None:
    """Make safe what the parser has decoded: &#8238; is a character again, and so is %1B in an address."""
    todo = list(state.tokens)
    while todo:
        token = todo.pop()
        token.content = sanitize(token.content)
        todo += token.children or ()


SCHEMA = "localspec.conversation/1"
FORMATS = ("md", "html", "json")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,4} ")
_SAID = {"text", "reasoning", "system", "title", "schema", "regex", "grammar", "choices", "stop", "ids"}
_NAMES = {USER: "You", ASSISTANT: "Assistant"}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; margin: 1.5rem 0 0.3rem; }
p.about { opacity: 0.75; font-size: 0.85rem; }
div.text { white-space: pre-wrap; overflow-wrap: anywhere; }
div.markdown { overflow-wrap: anywhere; }
div.markdown :is(h1, h2, h3, h4, h5, h6) { font-size: 1rem; }
pre { overflow-x: auto; border: 1px solid; padding: 0.6rem; }
table { border-collapse: collapse; } th, td { border: 1px solid; padding: 0.2rem 0.6rem; }
section.user { border-inline-start: 3px solid; padding-inline-start: 0.8rem; }
"""


def without_folders(value: Any) -> Any:
    """Return the JSON of a conversation with the names of local files alone: where they lie is nobody's business.

    What was said stays as it is, but for names behind an `@`.
    """
    if isinstance(value, dict):
        typed = {"title", *(["text"] if value.get("attachments") else [])}
        kept = {key: by_names(each) if key in typed else each for key, each in value.items()}
        return {key: each if key in _SAID else without_folders(each) for key, each in kept.items()}
    if isinstance(value, list | tuple):
        return [without_folders(each) for each in value]
    if isinstance(value, str) and "/" in value:
        return "+".join(PurePath(part).name if part.startswith("/") else part for part in value.split("+"))
    return value


def to_wire(conversation: Conversation, messages: Sequence[StoredMessage]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **dataclasses.asdict(conversation),
        "messages": [dataclasses.asdict(message) for message in messages],
    }


def markdown(conversation: Conversation, path: Sequence[StoredMessage]) -> str:
    parts = [f"# {_line(by_names(conversation.title)) or 'Conversation'}", f"*{_line(_about(conversation))}*"]
    if conversation.system is not None:
        parts += ["## System", sanitize(conversation.system)]
    for message in path:
        parts += [f"## {_NAMES[message.role]}", _within(sanitize(spoken(message.role, message.content)))]
        if _end(message):
            parts.append(f"*({_end(message)})*")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _within(text: str) -> str:
    lines, fence = [], ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if fence:
            is_end = match is not None and match[1].startswith(fence) and not line.strip(" \t" + fence[0])
            fence = "" if is_end else fence
        elif match is not None:
            fence = match[1]
        elif _HEADING.match(line):
            line = f"##{line.lstrip()}"
        lines.append(line)
    return "\n".join([*lines, fence] if fence else lines)


def page(conversation: Conversation, path: Sequence[StoredMessage]) -> str:
    title = _escaped(_line(by_names(conversation.title)) or "Conversation")
    sections = []
    if conversation.system is not None:
        sections.append(_section("system", "System", _as_it_is(conversation.system), ""))
    for message in path:
        end = f"({_end(message)})" if _end(message) else ""
        said = spoken(message.role, message.content)
        shown = as_html(said) if message.role == ASSISTANT else _as_it_is(said)
        sections.append(_section(message.role, _NAMES[message.role], shown, end))
    return f"""<!DOCTYPE html>
<html lang="und">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<p class="about">{_escaped(_line(_about(conversation)))}</p>
{"".join(sections)}</body>
</html>
"""


def _section(role: str, name: str, body: str, end: str) -> str:
    shown = f'<p class="about">{_escaped(end)}</p>\n' if end else ""
    return f'<section class="{role}">\n<h2>{name}</h2>\n{body}\n{shown}</section>\n'


def _as_it_is(text: str) -> str:
    return f'<div class="text">{_escaped(text)}</div>'


def _escaped(text: str) -> str:
    return html.escape(sanitize(text))


def _line(text: str) -> str:
    return " ".join(sanitize(text).split())


def _about(conversation: Conversation) -> str:
    begun = datetime.fromtimestamp(conversation.created).astimezone().isoformat(" ", "minutes")
    return f"{model_names(conversation.pair)} · {begun} · {conversation.id}"


def _end(message: StoredMessage) -> str:
    return _line(ending(message.finish))
