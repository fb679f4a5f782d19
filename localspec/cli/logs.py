"""`localspec logs`: the conversations that are kept."""

import re
import shlex
import sys

import click

from localspec.chat.conversation_files import exported, write_export
from localspec.chat.listing import about, hits, named, renamed, rows, said
from localspec.chat.listing import count as count_of
from localspec.cli.complete import conversation_ids
from localspec.cli.console import is_terminal, write_out, write_text
from localspec.cli.fetch import require_yes
from localspec.cli.option_sources import Integer
from localspec.cli.output import write_json, write_result
from localspec.cli.params import Command, CommandGroup, json_option, option
from localspec.cli.store_options import find, kept_store, remember
from localspec.conversations.export import FORMATS, to_wire
from localspec.conversations.records import Conversation
from localspec.conversations.store import Store
from localspec.errors import NotFoundError, UsageError, near_name
from localspec.sanitize import one_line
from localspec.settings.folders import conversations_file, typed_path
from localspec.ui.summary import kept_figures

N = 20
_OUTPUT = "Output"
_count = option("-n", "--count", type=Integer(0), default=N, metavar="N", section=_OUTPUT,
                help=f"List at most N; 0: all.  [default: {N}]")  # fmt: skip


FACTS = ("id", "title", "pair", "created", "updated", "n_messages")  # of a conversation in a list
SPELLINGS = {"-c": "show", "--continue": "show", "--session": "show", "--search": "search"}


class _Logs(CommandGroup):
    def meant(self, name: str) -> str:
        if re.fullmatch(r"(?=.*\d)[a-z0-9]{1,8}", name):
            return f"localspec logs show {name}"
        return "" if near_name(name, self.commands) else f"localspec logs search {shlex.quote(name)}"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; an option of earlier versions is the command that it was."""
        known = {*SPELLINGS, *self.commands}
        at, word = next(((i, word) for i, word in enumerate(args) if word.partition("=")[0] in known), (0, ""))
        flag, equals, value = word.partition("=")
        if flag in SPELLINGS:
            args = [SPELLINGS[flag], *([value] if equals else []), *args[:at], *args[at + 1 :]]
        return super().parse_args(ctx, args)


@click.group(cls=_Logs, invoke_without_command=True, no_args_is_help=False)
@_count
@json_option
@click.pass_context
def logs(ctx: click.Context, /, count: int, as_json: bool) -> int:
    """Kept conversations: list, show, search, export, rename, rm, undo, path.

    Without a command they are listed, the last used first. Runs with --no-save, or with LOCALSPEC_SAVE=0 in the
    environment, keep nothing. An ID may be shortened to six characters of its beginning or its end. The number in the
    list that a terminal showed last stands for an ID, too.
    """
    return 0 if ctx.invoked_subcommand is not None else _list(count, as_json)


@logs.command("list", cls=Command)
@_count
@json_option
def list_command(count: int, as_json: bool) -> int:
    """List the conversations, the last used first."""
    return _list(count, as_json)


@logs.command("show", cls=Command)
@click.argument("conversation", required=False, metavar="[ID]", shell_complete=conversation_ids)
@option("-n", "--count", type=Integer(0), default=0, metavar="N", section=_OUTPUT,
        help="Show its last N messages; 0: all.  [default: 0]")  # fmt: skip
@json_option
def show_command(conversation: str | None, count: int, as_json: bool) -> int:
    """Show a conversation and the figures of its answers. --json has every branch.

    Words of its title stand for an ID, too, where only one title has them.
    """
    with kept_store() as store:
        home = _named(store, conversation)
        messages, path = store.messages(home.id), store.path(home.leaf)
    if count:
        messages = path = path[-count:]
    if as_json:
        write_json(to_wire(home, messages))
        return 0
    system = [] if home.system is None else [f"System: {one_line(home.system)}"]
    lines = [about(home), *system, *said(path, kept_figures)]
    if len(messages) > len(path):
        lines.append(f"({count_of(len(messages) - len(path))} on other branches: --json shows them)")
    write_out("".join(f"{line}\n" for line in lines))
    return 0


@logs.command("search", cls=Command)
@click.argument("words", nargs=-1, required=True)
@_count
@json_option
def search_command(words: tuple[str, ...], count: int, as_json: bool) -> int:
    """List the messages, and the titles, with all of WORDS.

    The latest come first. A conversation whose title has the words stands once, above.
    """
    text = " ".join(words)
    with kept_store() as store:
        matches = [hit for hit in store.search(text, count or -1) if hit.message is not None]
        titled = store.titled(text)
    known = {hit.conversation.id for hit in matches}
    titled = [each for each in titled if each.id not in known]
    if as_json:
        found = [
            {"conversation": hit.conversation.id, "message": hit.message.id, "role": hit.message.role,
             "excerpt": hit.excerpt}
            for hit in matches
            if hit.message is not None
        ]  # fmt: skip
        titles = [{"conversation": each.id, "title": each.title} for each in titled]
        write_json({"search": text, "hits": found, "titles": titles})
        return 0
    if not matches and not titled:
        raise NotFoundError(f"no message and no title contains '{one_line(text)}'", hint="localspec logs")
    write_text("\n".join([*rows(titled), *hits(matches)]))
    return 0


@logs.command("export", cls=Command)
@click.argument("conversation", required=False, metavar="[ID]", shell_complete=conversation_ids)
@option("--format", "form", type=click.Choice(FORMATS), section=_OUTPUT,
        help="Markdown, HTML or JSON.  [default: what FILE ends in, else md]")  # fmt: skip
@option("-o", "--output", metavar="FILE", section=_OUTPUT, help="Write it there.  [default: standard output]")
@option("--force", is_flag=True, section=_OUTPUT, help="Replace FILE if it exists.")
@option("--paths", is_flag=True, section=_OUTPUT, help="Let JSON say in which folders models and files lie.")
def export_command(conversation: str | None, form: str | None, output: str | None, force: bool, paths: bool) -> int:
    """Write a conversation to a file, by default the last one.

    Markdown and HTML hold the current branch, without control characters. JSON has every branch, and the exact texts.
    """
    if output is None and conversation is not None and conversation.endswith(tuple(f".{each}" for each in FORMATS)):
        raise UsageError(f"{conversation} is no conversation", hint=f"localspec logs export -o {conversation}")
    with kept_store() as store:
        home = _named(store, conversation)
        if output is None or output == "-":
            write_out(exported(store, home.id, home.leaf, form or "md", has_paths=paths))
        else:
            path = typed_path(output)
            write_export(store, home.id, home.leaf, path, form, hint="another name",
                         replacing="--force replaces it, or ", force=force, has_paths=paths)  # fmt: skip
    return 0


@logs.command("rename", cls=Command)
@click.argument("conversation", metavar="ID", shell_complete=conversation_ids)
@click.argument("title", nargs=-1, required=True)
@json_option
def rename_command(conversation: str, title: tuple[str, ...], as_json: bool) -> int:
    """Give a conversation another title."""
    with kept_store(is_changed=True) as store:
        before = find(store, conversation, can_entitle=True)
        store.rename(before.id, " ".join(title))
        after = store.get(before.id)
    wire = {"renamed": after.id, "title": after.title, "before": before.title}
    return write_result(wire, renamed(after, before), as_json=as_json)


@logs.command("rm", cls=Command)
@click.argument("conversations", nargs=-1, required=True, metavar="ID...", shell_complete=conversation_ids)
@option("--now", "is_for_good", is_flag=True, section="Removal", help="Delete for good, at once.")
@option("-y", "--yes", is_flag=True, section="Removal", help="Do not ask.")
@json_option
def remove_command(conversations: tuple[str, ...], is_for_good: bool, yes: bool, as_json: bool) -> int:
    """Delete conversations. For a week `localspec logs undo` restores them, except with --now."""
    with kept_store(is_changed=True) as store:
        # All of them are there before the first one goes.
        doomed = list({each.id: each for each in (find(store, typed) for typed in conversations)}.values())
        names = " and ".join(each.id for each in doomed)
        sys.stderr.write("".join(f"to be deleted: {named(each)}\n" for each in doomed))
        require_yes("Delete", names, " for good" if is_for_good else "", yes=yes)
        for each in doomed:
            store.delete(each.id, now=is_for_good)
    undo = "" if is_for_good else f"; localspec logs undo {'ID restores one' if doomed[1:] else 'restores it'}"
    wire = {"deleted": [each.id for each in doomed], "for_good": is_for_good}
    return write_result(wire, f"deleted {names}{undo}", as_json=as_json)


@logs.command("undo", cls=Command)
@click.argument("conversation", required=False, metavar="[ID]", shell_complete=conversation_ids)
@json_option
def undo_command(conversation: str | None, as_json: bool) -> int:
    """Restore the conversation deleted last, or the one with this ID."""
    with kept_store(is_changed=True) as store:
        restored = store.undelete(conversation and find(store, conversation, is_deleted=True).id)
    return write_result({"restored": restored.id}, f"{about(restored)} is restored", as_json=as_json)


@logs.command("path", cls=Command)
@json_option
def path_command(as_json: bool) -> int:
    """Print the file in which conversations are kept."""
    path = str(conversations_file())
    return write_result({"path": path}, one_line(path), as_json=as_json)


def _list(count: int, as_json: bool) -> int:
    with kept_store() as store:
        every = store.conversations()
    shown = every[: count or None]
    if as_json:
        facts = [{name: getattr(each, name) for name in FACTS} for each in shown]
        write_json({"path": str(conversations_file()), "conversations": facts})
    else:
        has_numbers = is_terminal(sys.stdout)
        if has_numbers:
            remember(shown)
        lines = rows(shown, numbered=has_numbers) or ["no conversations are kept yet"]
        write_text("\n".join(lines))
        if len(shown) < len(every):
            sys.stderr.write(f"{len(shown)} of {len(every)} conversations: localspec logs -n 0 lists all\n")
    return 0


def _named(store: Store, typed: str | None) -> Conversation:
    if typed is not None:
        return find(store, typed, can_entitle=True)
    latest = store.conversations(1)
    if not latest:
        raise NotFoundError("no conversations are kept yet", hint="localspec chat")
    return latest[0]
