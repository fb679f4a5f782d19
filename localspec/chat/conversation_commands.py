"""Commands about conversations: new, list, search, resume, fork, title, delete, and files of them."""

from collections.abc import Sequence
from pathlib import Path

from localspec.chat.command import Chat, command
from localspec.chat.conversation_files import Saved, load, save, turns, write_export
from localspec.chat.listing import about, came_back, count, hits, named, rows
from localspec.chat.message_tree import MessageTree, Node
from localspec.chat.opening import remarks
from localspec.conversations.records import MIN_ID, Attachment, Conversation
from localspec.conversations.sending import KeptSettings
from localspec.conversations.store import Store
from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.models.store import is_of_target
from localspec.sanitize import one_line
from localspec.settings.folders import typed_path
from localspec.settings.sizes import whole
from localspec.ui.files import path_completions

N = 20  # conversations of a list


@command("/new", "begin a new conversation", aliases="clear")
async def begin(chat: Chat, _argument: str) -> None:
    chat.state.begin()
    await chat.moved("a new conversation")


@command("/list [N]", "the conversations used last", screen="conversations")
async def show_list(chat: Chat, argument: str) -> None:
    n = whole(argument) if argument else N
    if n is None:
        raise UsageError(f"{argument!r} is not a number of conversations", hint="/list, /list 50, or /list 0 for all")
    conversations = await chat.wait(chat.state.writer.ask(lambda store: store.conversations(n or -1)))
    _remember(chat, conversations)
    lines = rows(conversations, numbered=True, here=chat.state.messages.key)
    await chat.show(lines or ["  there are no conversations yet"])


@command("/search WORDS", "find titles and messages in all conversations", screen="conversations")
async def search(chat: Chat, argument: str) -> None:
    if not argument:
        raise UsageError("name the words to search for", hint="/search WORDS")
    matches = await chat.wait(chat.state.writer.ask(lambda store: store.search(argument, N)))
    _remember(chat, [hit.conversation for hit in matches])
    await chat.show(hits(matches, numbered=True) or ["  no match"])


@command("/resume [N|ID|TITLE]", "open another conversation", screen="conversations")
async def resume(chat: Chat, argument: str) -> None:
    if not argument:
        await show_list(chat, "")
        if chat.state.listed:
            await chat.tell("/resume NUMBER opens one")
        return
    await open_conversation(chat, (await _resumed(chat, argument)).id)


async def _resumed(chat: Chat, argument: str) -> Conversation:
    """Return the conversation that a number, an id or words of a title mean. Raises UsageError for several titles."""
    try:
        return await _named(chat, argument)
    except LocalspecError as error:
        unknown, hint = error, f"/search {one_line(argument)} lists them"
    return await chat.wait(chat.state.writer.ask(lambda store: store.entitled(argument, unknown, hint)))


@command("/fork", "go on in a copy of this conversation", needs_rest=True)
async def fork(chat: Chat, _argument: str) -> None:
    path = chat.state.messages.path()
    if not path:
        raise UsageError("there is nothing to fork yet", hint="send a message first")
    await fork_from(chat, path[-1])


async def fork_from(chat: Chat, entry: Node) -> None:
    """Go on in a copy of the conversation up to a message. The attachments go with it: it is the same talk."""
    if await chat.wait(chat.state.writer.ask(lambda _store: entry.key)) is None:  # asked behind what is being written
        raise UsageError("this message is not saved, so it cannot be forked", hint="/save FILE keeps it")
    await _go_to_copy(chat, entry.key, attached=chat.state.attached)


async def fork_conversation(chat: Chat, conversation: Conversation) -> None:
    await _go_to_copy(chat, conversation.leaf)


async def _go_to_copy(chat: Chat, message: int | None, *, attached: Sequence[Attachment] = ()) -> None:
    if message is None:
        raise UsageError("this conversation has no messages to copy", hint="/list shows the others")
    made = await chat.wait(chat.state.writer.ask(lambda store: store.fork(message).id))
    await _restore(chat, made)
    chat.state.attached = list(attached)
    await _arrive(chat, "")
    await chat.tell(f"this is now a copy, {made}")


async def open_conversation(chat: Chat, key: str) -> None:
    conversation = await _restore(chat, key)
    await _arrive(chat, came_back(conversation, chat.state.messages.path()))


async def _arrive(chat: Chat, text: str) -> None:
    await chat.moved(text)
    for line in remarks(chat.state):
        await chat.warn(line)


@command("/title [TEXT]", "give this conversation a title, or show it", aliases="rename")
async def rename(chat: Chat, argument: str) -> None:
    key = chat.state.messages.key
    if key is None:
        raise UsageError("the conversation has no messages yet", hint="send a message first")

    before, title = await rename_conversation(chat, key, argument)
    was = f" (before: {one_line(before)})" if before != title else ""
    await chat.tell(f"title: {one_line(title)}{was}")


async def rename_conversation(chat: Chat, key: str, title: str) -> tuple[str, str]:
    """Give a conversation a title, unless that is empty; return the one that it had and the one that it has."""

    def renamed(store: Store) -> tuple[str, str]:
        before = store.get(key).title
        if title:
            store.rename(key, title)
        return before, store.get(key).title

    return await chat.wait(chat.state.writer.ask(renamed))


@command("/delete [N|ID]", "delete this conversation, or another one")
async def delete(chat: Chat, argument: str) -> None:
    key = chat.state.messages.key
    if not argument and key is None:
        raise UsageError("there is nothing to delete yet", hint="/delete ID; /list shows the ids")
    conversation = await _named(chat, argument or key or "")
    await chat.tell(f"deleting {named(conversation)}")
    await delete_conversation(chat, conversation)
    await chat.tell(f"deleted {conversation.id}; /undelete restores it")


async def delete_conversation(chat: Chat, conversation: Conversation) -> None:
    """Delete a conversation; in place of the open one a new one begins. Raises UsageError for half an answer."""
    answered = chat.state.answered
    if answered is not None and answered.key == conversation.id:
        raise UsageError("an answer is being written in this conversation", hint="Esc there stops it")
    await chat.wait(chat.state.writer.ask(lambda store: store.delete(conversation.id)))
    chat.state.deleted.append(conversation.id)
    if conversation.id == chat.state.messages.key:
        chat.state.begin()
        await chat.moved("")


@command("/undelete", "bring back the conversation that was deleted last")
async def undelete(chat: Chat, _argument: str) -> None:
    conversation = await undelete_conversation(chat)
    await chat.tell(f"{about(conversation)} is restored")


async def undelete_conversation(chat: Chat, key: str | None = None) -> Conversation:
    """Bring a deleted conversation back, by default the last, and return it; go there if nothing was said since."""
    conversation = await chat.wait(chat.state.writer.ask(lambda store: store.undelete(key)))
    chat.state.deleted = [each for each in chat.state.deleted if each != conversation.id]
    if not chat.state.messages.entries:
        await _restore(chat, conversation.id)
        await _arrive(chat, "")
    return conversation


@command("/export FILE", "write this conversation for people: .md, .html, or .json with all branches", screen="export",
         values=path_completions)  # fmt: skip
async def export(chat: Chat, argument: str) -> None:
    messages = chat.state.messages
    if messages.key is None:
        raise UsageError("there is nothing to export yet", hint="send a message first")
    path, last = _path_of(argument, "/export FILE"), messages.path()[-1:]

    def write(store: Store) -> None:
        assert messages.key is not None
        leaf = last[0].key if last else None
        write_export(store, messages.key, leaf, path, None, hint="/export with another name")

    await chat.wait(chat.state.writer.ask(write))
    await chat.tell(f"wrote {one_line(str(path))}")


@command("/save FILE", "write this conversation to a file that /load reads", values=path_completions)
async def save_file(chat: Chat, argument: str) -> None:
    path, messages = _path_of(argument, "/save FILE"), chat.state.messages
    saved = Saved(messages.system, turns(messages.path()))
    save(path, saved, chat.state.settings.name)
    await chat.tell(f"saved {count(saved.n_messages)} to {one_line(str(path))}")


@command("/load FILE", "go on with a conversation that /save wrote", needs_rest=True, values=path_completions)
async def load_file(chat: Chat, argument: str) -> None:
    path = _path_of(argument, "/load FILE, or /resume for a conversation that is kept")
    saved, state = load(path), chat.state
    state.begin()
    state.messages.system = saved.system
    for turn in saved.turns:
        asked = state.say(turn.user)
        if turn.assistant is not None:
            state.writer.append(state.begin_answer(asked), turn.assistant)
            state.end_answer(turn.assistant, "stop", None)
    await chat.moved(f"loaded {count(saved.n_messages)} from {one_line(str(path))}")


def _path_of(argument: str, usage: str) -> Path:
    if not argument:
        raise UsageError(f"{usage.partition(' ')[0]} needs a file", hint=usage)
    return typed_path(argument)


async def _restore(chat: Chat, key: str) -> Conversation:
    conversation, messages = await chat.wait(chat.state.writer.ask(lambda store: (store.get(key), store.messages(key))))
    state, answered = chat.state, chat.state.answered
    is_answered = answered is not None and answered.key == key  # of that one the store has less
    state.open(answered if answered is not None and is_answered else MessageTree.restored(conversation, messages))
    settings = KeptSettings.of(state.messages.path())
    if settings is not None:
        state.change(settings.request(state.request))
        if is_of_target(conversation.pair, state.settings) and settings.load(state.settings) != state.settings:
            await chat.load(settings.load(state.settings))
    return conversation


def _remember(chat: Chat, conversations: Sequence[Conversation]) -> None:
    chat.state.listed = [each.id for each in conversations]


async def _named(chat: Chat, argument: str) -> Conversation:
    """Return the conversation that a number of the last list means, or an id or a part of one."""
    number, listed, typed = whole(argument), chat.state.listed, argument
    if len(argument.split()) > 1:
        message = f"{one_line(argument)!r} is not one number or ID"
        raise UsageError(message, hint=f"{argument.split()[0]}, one at a time")
    if number is not None and len(argument) < MIN_ID:  # an id may have digits alone
        if not listed:
            raise NotFoundError(f"{argument} is the number of a list, and none was shown yet", hint="/list, or an ID")
        if not 1 <= number <= len(listed):
            raise NotFoundError(f"the list has no number {argument}", hint=f"1 to {len(listed)}; /list shows it again")
        typed = listed[number - 1]
    try:
        return await chat.wait(chat.state.writer.ask(lambda store: store.find(typed)))
    except NotFoundError as error:
        raise error.hinted("/list") from None
