"""The state of a chat: the pair, the settings of the next answer, the attachments, and the conversation.

The commands and the renderers change it. Invariant: at most one answer is being written. It goes on where another
conversation is opened meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.chat.conversation_writer import ConversationWriter
from localspec.chat.message_tree import MessageTree, Node
from localspec.conversations.records import ASSISTANT, USER, Attachment, Conversation
from localspec.conversations.sending import left_out, to_send
from localspec.conversations.store import Store
from localspec.engine.events import Loaded
from localspec.errors import NotFoundError
from localspec.models.ollama import in_pair, messages_before
from localspec.models.recent import remember_pair
from localspec.models.store import reference, usual_speculation
from localspec.sanitize import one_line
from localspec.settings.declaration import Setting
from localspec.settings.folders import typed_path
from localspec.settings.request import LoadSettings, Message, Request, Speculation
from localspec.ui.inputs import MAX_FILE, Inputs
from localspec.ui.mentions import Taken, add, is_pattern, is_several, names_in, take
from localspec.ui.settings import SETTINGS, check, effect_remarks, shown, used_pair

HERE = "this chat"
SUPPLIES = Path("/sys/class/power_supply")


def on_battery(supplies: Path = SUPPLIES) -> bool:
    """Whether the system says that no mains power comes in (Linux)."""
    try:
        mains = [each for each in supplies.iterdir() if (each / "type").read_text().strip() == "Mains"]
        return bool(mains) and not any((each / "online").read_text().strip() == "1" for each in mains)
    except (OSError, UnicodeDecodeError):
        return False


@dataclass(slots=True)
class ChatState:
    """The state of one chat. `request` has the settings of the next answer, without its messages. `in_idle` says
    whether the engine reads while nobody waits: "on", "off", or "auto", unless on battery."""

    writer: ConversationWriter
    settings: LoadSettings
    request: Request
    messages: MessageTree = field(default_factory=MessageTree)
    loaded: Loaded | None = None
    answering: Node | None = None
    answered: MessageTree | None = None  # the conversation of `answering`, which need not be the open one
    attached: list[Attachment] = field(default_factory=list)  # goes with the next message
    attached_by: list[str] = field(default_factory=list)  # the paths and patterns that were typed for them
    listed: list[str] = field(default_factory=list)  # the conversations of the last list, by their numbers
    deleted: list[str] = field(default_factory=list)  # in this chat, and not brought back, the last one at the end
    switched_off: Speculation | None = None  # the setting before speculation was switched off
    in_idle: str = "off"
    remarks: list[str] = field(default_factory=list)  # what has no effect, to be told once
    settings_at_start: Callable[[], Sequence[Setting]] = tuple  # with the origin of each
    _held: LoadSettings | None = None  # the pair as it was loaded last
    _opening: tuple[Message, ...] = ()  # what Ollama says before a conversation with its model
    _began: dict[str, str] = field(default_factory=dict)  # the settings at first, by name

    def __post_init__(self) -> None:
        self._opening, self._began = messages_before(self.settings), self._texts()

    @classmethod
    def opened(
        cls,
        store: Store,
        settings: LoadSettings,
        request: Request,
        *,
        system: str | None = None,
        former: Conversation | None = None,
        in_background: bool = False,
        in_idle: str = "off",
        settings_at_start: Callable[[], Sequence[Setting]] = tuple,
    ) -> ChatState:
        """Return the state of a chat that goes on with `former`, or begins a conversation. A `system` message replaces
        the one of `former`. `in_background` says that a thread writes to the store."""
        writer = ConversationWriter(store, in_background=in_background)
        messages = MessageTree() if former is None else MessageTree.restored(former, store.messages(former.id))
        if system is not None:
            messages.system = system
        if former is not None and (former.pair, former.system) != (reference(settings), messages.system):
            writer.change(messages, pair=reference(settings))  # it was asked for; `messages.pair` is what has answered
        return cls(writer, settings, request, messages, in_idle=in_idle, settings_at_start=settings_at_start)

    def _texts(self) -> dict[str, str]:
        return {**{name: shown(self.request, name) for name in SETTINGS}, "ctx": str(self.settings.ctx)}

    def origins(self) -> dict[str, str]:
        """Return where the value of each setting comes from, by its name."""
        began = {each.name: str(each.origin) for each in self.settings_at_start()}
        texts = self._texts()
        return {name: began.get(name, "") if texts[name] == self._began[name] else HERE for name in texts}

    @property
    def session(self) -> str | None:
        return self.messages.key if self.writer.is_saved else None

    @property
    def answering_here(self) -> Node | None:
        return self.answering if self.answered is self.messages else None

    @property
    def last_answer(self) -> Node | None:
        return next((entry for entry in reversed(self.messages.path()) if entry.role == ASSISTANT), None)

    def say(self, text: str, attachments: Iterable[Attachment] = ()) -> Node:
        """Add a message of the user, at the end or as another branch of the one that is edited."""
        path, edited = self.messages.path(), self.messages.editing
        parent = self.messages.parent(edited) if edited else (path[-1] if path else None)
        self.messages.editing = None
        asked = self.messages.add(USER, text, parent=parent)
        asked.attachments = (*(edited.attachments if edited else ()), *self.attached, *attachments)
        self.attached = []
        pair = reference(self.settings)
        self.messages.pair = self.messages.pair or pair
        self.writer.say(self.messages, asked, pair)
        return asked

    def edit(self, asked: Node, text: str) -> Node:
        self.messages.editing = asked
        return self.say(text)

    def request_for(self, asked: Node) -> Request:
        return self.request_after(self.messages.path_to(self.messages.parent(asked)), asked.content)

    def next_request(self, asked: Node) -> Request:
        """Return the request for one more answer to a message."""
        request, n = self.request_for(asked), len(self.messages.answers(asked))
        seed = request.sampling.seed
        if seed is None or not n:
            return request
        return replace(request, sampling=replace(request.sampling, seed=(seed + n) % 2**64))

    def request_after(self, path: Sequence[Node], content: str) -> Request:
        messages = to_send(path, self.messages.system, content, self._opening)
        keeps, dropped = self.writer.is_saved, left_out(path)
        return replace(self.request, messages=messages, shorten=True, left_out=dropped, keeps=keeps)

    def may_idle(self) -> bool:
        return self.in_idle == "on" or (self.in_idle == "auto" and not on_battery())

    def ask_again(self, entry: Node) -> Node:
        asked = entry if entry.role == USER else self.messages.parent(entry)
        assert asked is not None, "an answer follows a message"
        return asked

    def seed_of_next(self, asked: Node) -> str:
        seed = self.request.sampling.seed
        next_seed = self.next_request(asked).sampling.seed
        return "" if seed is None else f"this answer has seed {next_seed}; /seed stays {seed}"

    def begin_answer(self, asked: Node) -> Node:
        self.answering = entry = self.messages.add(ASSISTANT, parent=asked, finish=None)
        self.answered = self.messages
        pair = reference(self.settings)
        self.writer.say(self.messages, entry, pair)
        self._pair_is(pair)
        return entry

    def end_answer(self, text: str, reason: str, stats: dict[str, Any] | None) -> None:
        entry, self.answering, self.answered = self.answering, None, None
        assert entry is not None, "an answer is being written"
        entry.text, entry.finish, entry.stats = text, reason, stats
        self.writer.finish(entry, stats)

    def to_load(self) -> LoadSettings:
        """Return the pair as the next answer needs it, to be loaded now: a draft that nothing uses is left out."""
        if self._held is None or self._held != self.settings:
            settings, why = used_pair(self.settings, self.request)
            if why and settings != self._held:
                self.remarks.append(why)
            self._held = settings
        return self._held

    def remark(self, line: str) -> None:
        self.remarks += filter(None, [line])

    def take_remarks(self) -> list[str]:
        remarks, self.remarks = self.remarks, []
        return remarks

    def has_loaded(self, loaded: Loaded) -> None:
        self.loaded, settings = loaded, self.settings
        is_here = bool(settings.target) and settings.verifier is None  # not a server's or a verifier's
        if self.writer.is_saved and is_here:
            self.writer.ask(lambda _store: remember_pair(settings))

    def change(self, request: Request) -> None:
        """Take other settings from the next answer on; raises UsageError and keeps the old ones if they are wrong."""
        off, speculation, before = self.switched_off, request.speculation, self.request
        if off is not None and speculation != self.request.speculation:
            k = off.k if speculation.k == 0 else speculation.k
            self._set(replace(request, speculation=replace(speculation, k=k)))
            self.switched_off = None
        else:
            self._set(request)
        has_draft = self.settings.draft is not None
        known = effect_remarks(before, lambda _: True, has_draft=has_draft)
        lines = effect_remarks(self.request, lambda _: True, has_draft=has_draft)
        self.remarks += [line for line in lines if line not in known]

    def switch_speculation(self) -> bool:
        if self.switched_off is not None:
            self._set(replace(self.request, speculation=self.switched_off))
            self.switched_off = None
            return True
        before = self.request.speculation
        self._set(replace(self.request, speculation=replace(before, k=0)))
        self.switched_off = before
        return False

    def _set(self, request: Request) -> None:
        check(request, self.settings)
        self.request = request

    def switch_pair(self, settings: LoadSettings) -> None:
        """Let another pair answer; raises UsageError and keeps the old one if the settings do not go with it. Unless a
        way to draft was chosen, the other pair drafts in its own usual way. A LoRA belongs to the target that it was
        given for."""
        if settings.target != self.settings.target:
            settings = replace(settings, lora=())
        before, usual = usual_speculation(self.settings), usual_speculation(settings)
        request, off = self.fitting(self.request, settings), self.switched_off
        off = usual if off == before else off
        self.settings, self.request, self.switched_off, self.loaded = settings, request, off, None
        self._opening, model = messages_before(settings), in_pair(settings)
        if model is not None and (model.system or model.parameters):
            name = one_line(model.name)
            self.remark(f"the settings stay: those of Ollama's {name} are for a chat that begins with it")
        self._pair_is(reference(settings))

    def fitting(self, request: Request, settings: LoadSettings) -> Request:
        """Return a request as another pair gets it: a way to draft that nobody chose becomes that pair's usual one."""
        before, usual = usual_speculation(self.settings), usual_speculation(settings)
        if self.switched_off == before and request.speculation == self.request.speculation:
            request = replace(request, speculation=replace(usual, k=0))
        elif request.speculation == before:
            request = replace(request, speculation=usual)
        check(request, settings)
        return request

    def _pair_is(self, pair: str) -> None:
        if self.messages.pair != pair:
            self.messages.pair = pair
            self.writer.change(self.messages, pair=pair)

    def set_system(self, text: str | None) -> None:
        self.messages.system = text or None
        self.writer.change(self.messages)

    def attach(self, typed: str) -> tuple[Taken, list[str]]:
        """Attach files, folders and patterns to the next message; return what was taken, and warnings. Nothing is
        attached where one of them is wrong. Raises NotFoundError, PromptTooLongError, or UsageError."""
        inputs, taken = Inputs(MAX_FILE), Taken()
        typed_names = names_in(typed)
        for name in typed_names:
            if is_several(name) or is_pattern(name):
                if not take(name, taken):
                    message = f"{one_line(name)} holds no text{taken.left_since({})}"
                    raise NotFoundError(message, hint="the name of a text file")
            else:
                path = typed_path(name)
                is_outside = path.is_absolute() or ".." in path.parts
                name_there = path.name if is_outside else str(path)
                if not add(taken, Attachment(name_there, inputs.regular(str(path)))):
                    raise NotFoundError(f"{one_line(name)} holds no text", hint="the name of a text file")
        before = self.attached_by if self.attached else []
        self.attached_by = list(dict.fromkeys([*before, *(str(typed_path(name).absolute()) for name in typed_names)]))
        names = {each.name for each in taken.texts}
        self.attached = [*(each for each in self.attached if each.name not in names), *taken.texts]
        return taken, [warned.message for warned in inputs.warnings]

    @property
    def mentions(self) -> str:
        """What attaches the same again as part of a message. No mention can hold a quotation mark."""
        names = self.attached_by if self.attached else []
        return " ".join(f'@"{name}"' for name in names if not {'"', "\n"} & set(name))

    def detach(self) -> str:
        self.attached = []
        return "nothing is attached to your next message"

    def go_to(self, entry: Node | None) -> None:
        self.messages.go_to(entry)
        self.writer.look_at(self.messages)

    def choose(self, entry: Node) -> None:
        self.messages.choose(entry)
        self.writer.look_at(self.messages)

    def undo(self) -> Node | None:
        """Go to before the last message of the user, and return that; nothing is lost."""
        asked = self.messages.question()
        if asked is not None:
            self.go_to(self.messages.parent(asked))
            self.attached, self.attached_by = list(asked.attachments), []
        return asked

    def open(self, messages: MessageTree) -> None:
        self.messages, self.attached = messages, []

    def begin(self) -> None:
        self.open(MessageTree(self.messages.system, now=self.messages.now))
