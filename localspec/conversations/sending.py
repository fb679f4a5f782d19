"""The messages of a request, made of a path of a conversation, and the settings that its last answer had."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import Any, Protocol

from localspec.conversations.records import ASSISTANT, FAILED, USER, Attachment
from localspec.settings.request import LoadSettings, Message, Request
from localspec.settings.values import with_tuples


class Said(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def content(self) -> str: ...  # the words with the attachments
    @property
    def reasoning(self) -> str: ...  # before an answer; a template decides whether it is sent
    @property
    def attachments(self) -> tuple[Attachment, ...]: ...
    @property
    def stats(self) -> dict[str, Any] | None: ...
    @property
    def finish(self) -> str | None: ...


def to_send(
    path: Sequence[Said], system: str | None, content: str, opening: Sequence[Message] = ()
) -> tuple[Message, ...]:
    """Return the messages to send so that `content`, a person's words, is answered after `opening` and `path`.

    They alternate, as many templates demand: a question without an answer is sent at the head of the next one. One
    that failed is left out, since it would fail again.
    """
    sent = [*([] if system is None else [Message("system", system)]), *opening]
    waiting: list[Said] = []
    for asked, said in zip_longest(path, path[1:]):
        if asked.role != USER:
            continue
        waiting.append(asked)
        if said is None or said.role != ASSISTANT:
            continue
        if said.text:
            ids = tuple((said.stats or {}).get("ids") or ())
            sent += [_question(waiting), Message(ASSISTANT, said.content, said.reasoning, ids=ids)]
            waiting = []
        elif said.finish == FAILED:
            waiting.pop()
    return (*sent, _question(waiting, content))


def _question(asked: Sequence[Said], *more: str) -> Message:
    files = tuple(each.name for message in asked for each in message.attachments)
    return Message(USER, "\n\n".join([*(message.content for message in asked), *more]), files=files)


def left_out(path: Sequence[Said]) -> tuple[int, ...]:
    """Return the turns that the last answer of a path was given without, as `Request.left_out` has them."""
    stored = ((message.stats or {}).get("left_out") for message in reversed(path))
    return tuple(next((turns for turns in stored if turns is not None), ()))


@dataclass(frozen=True, slots=True)
class KeptSettings:
    """The text or the name of the template, what it is told, and the target's adapters, as the settings have them."""

    template: str | None
    template_args: tuple[tuple[str, Any], ...]
    think: str
    lora: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, path: Sequence[Said]) -> KeptSettings | None:
        """Return what the last answer of a path was given with; None where none tells, as with earlier versions."""
        for message in reversed(path):
            stored = (message.stats or {}).get("params") or {}
            if all(each.name in stored for each in fields(cls)):
                return cls(**with_tuples({each.name: stored[each.name] for each in fields(cls)}))
        return None

    def request(self, request: Request, chosen: Collection[str] = ()) -> Request:
        """Return the request with these settings, but for those that were `chosen` anew."""
        names = {"template", "template_args", "think"} - set(chosen)
        if "template" in names:
            request = replace(request, template_file="")  # its text is kept, and not where it is from
        return replace(request, **{name: getattr(self, name) for name in names})

    def load(self, settings: LoadSettings) -> LoadSettings:
        return replace(settings, lora=self.lora)
