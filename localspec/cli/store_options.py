"""The store of conversations as a command finds it.

A number stands for the conversation that a person saw in the last list, also once others were used.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.cli.console import Console
from localspec.cli.options import ConversationOptions
from localspec.conversations.records import MIN_ID, Conversation
from localspec.conversations.sending import KeptSettings
from localspec.conversations.store import Store
from localspec.errors import IncompatibleError, IntegrityError, LocalspecError, NotFoundError, ResourceError, UsageError
from localspec.models.names import PathName, parse
from localspec.sanitize import one_line, shown
from localspec.settings.folders import conversations_file, state_folder
from localspec.settings.stores import read_stored, write_stored


@dataclass(frozen=True, slots=True)
class PairOfConversation:
    """The pair that a conversation goes on with. `expected` is its target's name and its file's fingerprint. `lost` is
    the path of a draft that is gone."""

    pair: str
    expected: tuple[str, str] | None = None
    kept: KeptSettings | None = None
    lost: str | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.lost is None:
            return ()
        return (f"the draft {shown(self.lost)} is gone: the conversation goes on without one",)


@contextmanager
def kept_store(*, is_changed: bool = False) -> Iterator[Store]:
    """Open what is kept, to look at it, or to change it: where that cannot be, it is an error at the end."""
    path = conversations_file()
    with Store.open(path if os.path.exists(path) else None) as store:
        yield store
        trouble = store.trouble()
        if trouble is not None and is_changed:
            raise ResourceError(trouble.message, hint="free some space there, or check who may write: ls -l")


def store_for_talking(options: ConversationOptions, console: Console) -> Store:
    """Open the store in which a conversation is to be kept, unless --no-save. An error of the file is a warning, and
    the chat goes on unsaved; it is an error where a conversation of the file was asked for."""
    path = conversations_file()
    if not options.save:
        return Store.copied(path)
    try:
        return Store.open(path)
    except (IntegrityError, IncompatibleError) as error:
        if is_going_on(options):
            raise
        console.warn(f"nothing is saved: {error.message}{error.advice}")
        return Store.open(None)


def is_going_on(options: ConversationOptions) -> bool:
    if options.is_continued and options.session:
        raise UsageError("--continue and --session both choose a conversation", hint="leave one of the two out")
    return bool(options.is_continued or options.session)


def wanted(store: Store, options: ConversationOptions) -> Conversation | None:
    if not is_going_on(options):
        return None
    if options.session:
        return find(store, options.session, can_entitle=True)
    latest = store.conversations(1)
    if not latest:
        raise NotFoundError("there is no conversation to continue", hint="localspec chat")
    return latest[0]


def answered(store: Store, conversation: Conversation) -> PairOfConversation:
    """Return what answered last in a conversation."""
    said = store.path(conversation.leaf)
    last = next((each.stats for each in reversed(said) if each.stats), None)
    answered_by = (last or {}).get("pair") or {}
    target, draft = answered_by.get("target") or {}, answered_by.get("draft") or {}
    path, pair = str(target.get("path", "")), conversation.pair
    try:
        named = parse(pair).target
        if isinstance(named, PathName) and not os.path.isabs(named.path) and Path(named.path).name == Path(path).name:
            named, pair = PathName(path), f"{path}+{draft.get('path') or 'none'}"
        guess = parse(pair).draft
    except UsageError:  # the look-up of the pair reports it, unless another one was typed
        return PairOfConversation(pair)
    lost = None
    if isinstance(guess, PathName) and not os.path.lexists(os.path.expanduser(guess.path)):
        pair, lost = f"{named}+none", guess.path
    is_same = str(named) in (path, answered_by.get("name", "").partition("+")[0])
    has_mark = is_same and target.get("fingerprint")
    expected = (str(named), target["fingerprint"]) if has_mark else None
    return PairOfConversation(pair, expected, KeptSettings.of(said), lost)


def remember(shown: Sequence[Conversation]) -> None:
    """Keep which conversations a list has shown, the first as number 1; where that cannot be, numbers mean nothing."""
    with suppress(OSError, ResourceError):
        write_stored(state_folder("listed.json"), [each.id for each in shown])


def find(store: Store, typed: str, *, is_deleted: bool = False, can_entitle: bool = False) -> Conversation:
    """Return the conversation of an ID, or of a part of one, or of a number in the list that was shown last.

    With `can_entitle` words of its title do, too. Raises as `Store.find`, and NotFoundError for a number that no list
    has shown.
    """
    if not (typed.isdecimal() and len(typed) < MIN_ID):
        try:
            return store.find(typed, is_deleted=is_deleted)
        except LocalspecError as error:
            if not can_entitle:
                raise
            return store.entitled(typed, error, f"localspec logs search {shlex.quote(one_line(typed))}")
    shown = read_stored(state_folder("listed.json"), list[str]) or []
    if not 0 < int(typed) <= len(shown):
        raise NotFoundError(f"no list has shown a conversation {typed}", hint="localspec logs, or its ID")
    return store.find(shown[int(typed) - 1], is_deleted=is_deleted)
