"""The commands by name, and the one that a line means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localspec.cli.console import write_out
from localspec.cli.line_chat import Chat
from localspec.cli.slash import kept, said, settings
from localspec.ui import slash


@dataclass(frozen=True, slots=True)
class Slash:
    """One command: what it does with its argument, how it is written, what /help says."""

    act: Callable[[Chat, str], None]
    usage: str
    help: str


def is_command(text: str) -> bool:
    """Whether a message is a command."""
    return slash.is_command(text, COMMANDS.keys() | ALIASES.keys())


def literal(text: str) -> str:
    """Return what is said by a message that is no command."""
    return slash.literal(text, COMMANDS.keys() | ALIASES.keys())


def obey(chat: Chat, line: str) -> None:
    """Run the command that `line` holds; raises UsageError for one that does not exist."""
    command, argument = slash.looked_up(line, COMMANDS, ALIASES)
    command.act(chat, argument)
    chat.tell_trouble()


def _help(_chat: Chat, _argument: str) -> None:
    rows = [(command.usage, command.help) for command in COMMANDS.values()]
    rows += [("\\ at the end", 'go on in the next line; or """ before and after'), ("//...", "send a slash")]
    write_out("".join(f"  {usage:<20} {text}\n" for usage, text in rows))


def _bye(chat: Chat, _argument: str) -> None:
    chat.is_over = True


COMMANDS: dict[str, Slash] = {
    "stats": Slash(settings.show_stats, "/stats", "every number of the last answer"),
    "race": Slash(settings.race, "/race", "answer the last message plainly, too: how much faster?"),
    "set": Slash(settings.change, "/set [NAME VALUE]", "change a setting; alone, list them"),
    "temp": Slash(settings.setting("temp"), "/temp F", "temperature"),
    "seed": Slash(settings.setting("seed"), "/seed N", "seed; none: a new one each time"),
    "k": Slash(settings.setting("k"), "/k N", "draft tokens per pass; 0: plain decoding"),
    "system": Slash(settings.change_system, "/system TEXT|@FILE", "system message; none removes it"),
    "model": Slash(settings.change_model, "/model PAIR", "let another pair answer (also: /pair)"),
    "draft": Slash(settings.change_draft, "/draft NAME", "let another model draft; none: no draft model"),
    "tokens": Slash(settings.toggle_marks, "/tokens", "mark where each token comes from"),
    "regen": Slash(said.regenerate, "/regen", "answer the last message again"),
    "edit": Slash(said.edit, "/edit [TEXT]", "say the last message differently; alone, in $EDITOR"),
    "undo": Slash(said.undo, "/undo", "take back the last message and its answer"),
    "branch": Slash(said.branch, "/branch [N]", "the ways this conversation took; go to one"),
    "history": Slash(said.show, "/history", "show the conversation"),
    "copy": Slash(said.copy_answer, "/copy [N|code|all]", "copy the last answer, or the Nth from the end"),
    "read": Slash(said.attach, "/read FILE", "attach a text to the next message; none takes all back"),
    "new": Slash(kept.begin, "/new", "begin a new conversation (also: /clear)"),
    "list": Slash(kept.show_list, "/list [N]", "the conversations used last"),
    "search": Slash(kept.search, "/search WORDS", "find what was said in any of them"),
    "resume": Slash(kept.resume, "/resume [N|ID]", "go on with one of them"),
    "fork": Slash(kept.fork, "/fork", "go on in a copy of this conversation"),
    "title": Slash(kept.rename, "/title TEXT", "give it a title"),
    "delete": Slash(kept.delete, "/delete [N|ID]", "delete it, or another one"),
    "undelete": Slash(kept.undelete, "/undelete", "bring back what was deleted last"),
    "export": Slash(kept.export, "/export FILE", "write it as .md, .html or .json"),
    "save": Slash(kept.save_file, "/save FILE", "write it to a file that /load reads"),
    "load": Slash(kept.load_file, "/load FILE", "go on with what /save wrote"),
    "help": Slash(_help, "/help", "this list"),
    "bye": Slash(_bye, "/bye", "leave (also: /exit, /quit, Ctrl-D)"),
}
ALIASES = {"clear": "new", "pair": "model", "exit": "bye", "quit": "bye", "?": "help", "q": "bye", "rename": "title"}
