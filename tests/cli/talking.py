"""A chat whose lines come from a list, with a scripted worker and conversations in memory."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from localspec.chat.state import ChatState
from localspec.cli.console import Console
from localspec.cli.converse import Lines, converse
from localspec.cli.line_chat import LineChat
from localspec.conversations.records import StoredMessage
from localspec.conversations.store import Store
from localspec.errors import NotFoundError
from localspec.settings.request import LoadSettings, Request
from tests.cli.fakes import FakeWorker

ANSWER = "Once upon a time there was a king."


class Talk:
    """`say` runs lines and returns what was printed; `errors` is what went to stderr, `code` the exit code."""

    def __init__(self, capsys: pytest.CaptureFixture[str], store: Store | None = None) -> None:
        self.worker = FakeWorker()
        self.store = store or Store.open(None)
        settings = LoadSettings("/t.gguf", "/d.gguf", "pair")
        state = ChatState.opened(self.store, settings, Request())
        self.chat = LineChat(Console(), self.worker, state, self._find)
        self._capsys = capsys

    def say(self, *lines: str) -> str:
        source: Iterator[str] = iter(lines)
        self.code = converse(self.chat, Lines(lambda prompt: next(source, None)))
        captured = self._capsys.readouterr()
        self.errors = captured.err
        return captured.out

    @property
    def said(self) -> list[str]:
        return [message.text for message in self.chat.state.messages.path()]

    @property
    def kept(self) -> list[StoredMessage]:
        """The path as it is in the store."""
        latest = self.store.conversations(1)
        return self.store.path(latest[0].leaf) if latest else []

    @property
    def sent(self) -> list[tuple[str, str]]:
        return [(message.role, message.content) for message in self.worker.requests[-1].messages]

    def _find(self, pair: str) -> LoadSettings:
        if pair.startswith("/gone"):
            raise NotFoundError(f"{pair} does not exist", hint="check the path")
        target, _, draft = pair.partition("+")
        settings = replace(self.chat.state.settings, target=target, draft=draft or None, name=pair)
        return replace(settings, draft=None) if draft == "none" else settings
