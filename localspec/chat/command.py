"""A command of a chat: how it is written down, what it may ask of the chat that shows it, and how a line is read.

A command may wait for the store, so it is `async`. The line chat, which never waits, runs it in one step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from localspec.chat.message_tree import Node
from localspec.chat.state import ChatState
from localspec.errors import UsageError, near_name
from localspec.settings.request import LoadSettings
from localspec.ui.mentions import mention_completions
from localspec.ui.settings import SETTINGS, options_in, refuse_fixed
from localspec.ui.stats import Stats

if TYPE_CHECKING:
    from concurrent.futures import Future

Result = TypeVar("Result")
NO_COMMAND = "/help, or // to send a slash"


class Chat(Protocol):
    """A renderer of a chat, as the commands see it. `moved` draws the path anew, or says `text`."""

    @property
    def state(self) -> ChatState: ...
    @property
    def stats(self) -> Stats | None: ...
    def is_answering(self) -> bool: ...  # the renderer then says so
    async def open_screen(self, name: str) -> bool: ...  # False where there are no screens
    async def tell(self, text: str) -> None: ...  # what a command has done
    async def show(self, lines: Sequence[str]) -> None: ...
    async def warn(self, text: str) -> None: ...
    async def moved(self, text: str, *, unsaid: Node | None = None) -> None: ...  # a composer gets `unsaid`
    async def show_path(self) -> None: ...
    async def show_ended(self, entries: Sequence[Node]) -> None: ...  # answers that another process was writing
    async def answer(self, asked: Node) -> None: ...
    async def wait(self, answer: Future[Result]) -> Result: ...
    async def rewrite(self, asked: Node) -> str | None: ...  # None if it is sent elsewhere
    async def copy(self, text: str, what: str) -> None: ...  # to the clipboard; says how
    async def find_pair(self, pair: str) -> LoadSettings: ...  # raises for files that are damaged or do not go together
    async def load(self, settings: LoadSettings) -> None: ...  # after the state was checked
    async def restart(self) -> None: ...
    async def race(self, rounds: int) -> None: ...
    async def toggle_tokens(self) -> None: ...
    async def leave(self) -> None: ...


Act = Callable[[Chat, str], Awaitable[None]]
Values = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """One command. `act` gets the chat and the argument, "" without one. `screen` opens in a full-screen chat where no
    argument is given. `needs_rest`: not while an answer is being written. `values` returns arguments that are known
    beforehand, for what is typed of one; others may be possible as well."""

    name: str
    argument: str  # as help shows it
    help: str
    act: Act
    aliases: tuple[str, ...] = ()
    screen: str = ""
    needs_rest: bool = False
    values: Values = lambda _typed: ()

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()

    @property
    def description(self) -> str:
        also = ", ".join(f"/{alias}" for alias in self.aliases)
        return f"{self.help} (also: {also})" if also else self.help


class CommandTable:
    def __init__(self) -> None:
        self._named: dict[str, ChatCommand] = {}
        self.commands: list[ChatCommand] = []

    def command(
        self,
        usage: str,
        help: str,
        *,
        aliases: str = "",
        screen: str = "",
        needs_rest: bool = False,
        values: str | Values = "",
    ) -> Callable[[Act], Act]:
        name, _, argument = usage.removeprefix("/").partition(" ")
        known = (lambda _typed: values.split()) if isinstance(values, str) else values

        def register(act: Act) -> Act:
            made = ChatCommand(name, argument, help, act, tuple(aliases.split()), screen, needs_rest, known)
            for each in (name, *made.aliases):
                assert each not in self._named, f"/{each} is registered twice"
                self._named[each] = made
            self.commands.append(made)
            return act

        return register

    def is_command(self, text: str) -> bool:
        """Whether a message is a command: one line, or several that begin with the name of a command. Source code
        begins with a slash as often as not. A line of options, such as `--temp 0`, sets them."""
        return bool(options_in(text)) or (not text.startswith("//") and self._has_slash(text))

    def literal(self, text: str) -> str:
        """Return the words of a message that is no command: // is one slash where that would begin one."""
        return text[1:] if text.startswith("//") and self._has_slash(text[1:]) else text

    async def run(self, chat: Chat, line: str) -> None:
        for each in options_in(line) or [line]:
            await self._run_one(chat, each)

    async def _run_one(self, chat: Chat, line: str) -> None:
        command, argument = self.find(line)
        if command.needs_rest and chat.is_answering():
            return
        if command.screen and not argument and await chat.open_screen(command.screen):
            return
        await command.act(chat, argument)
        for line in chat.state.take_remarks():
            await chat.warn(line)

    def find(self, line: str) -> tuple[ChatCommand, str]:
        name, _, argument = line.strip()[1:].partition(" ")
        command = self._named.get(name.lower())
        if command is None:
            refuse_fixed(name.lower())
            near = f"set {name.lower()}" if name.lower() in SETTINGS else near_name(name.lower(), self._named)
            hint = f"Did you mean /{near}? /help lists all; // sends a slash." if near else NO_COMMAND
            raise UsageError(f"there is no command /{name}", hint=hint)
        return command, argument.strip()

    def needs_rest(self, line: str) -> bool:
        typed = (self._named.get(each.strip()[1:].partition(" ")[0].lower()) for each in options_in(line) or [line])
        return any(command is not None and command.needs_rest for command in typed)

    def completions(self, line: str) -> list[str]:
        if not line.startswith("/") or "\n" in line:
            return mention_completions(line)
        name, blank, argument = line[1:].partition(" ")
        if not blank:
            matching = [each for each in self.commands if each.name.startswith(name.lower())]
            return [f"/{each.name}{' ' if each.argument else ''}" for each in matching]
        command = self._named.get(name.lower())
        values = () if command is None else command.values(argument)
        return [f"/{name} {value}" for value in values if value.startswith(argument)]

    def begins_command(self, line: str) -> bool:
        return line.startswith("/") and line[1:].split(" ", 1)[0].lower() in self._named

    def _has_slash(self, text: str) -> bool:
        is_one_line = "\n" not in text.strip()
        return text.startswith("/") and (is_one_line or self.begins_command(text))


TABLE = CommandTable()
command = TABLE.command
