"""The app in every state that a person meets, for the pictures and the contrast."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot

from localspec.cli.settings_table import described
from localspec.conversations.store import Store
from localspec.errors import WorkerDiedError
from localspec.models.hub.cache import Cache
from localspec.models.hub.files import Listing, RepoFile
from localspec.models.hub.pulled import Receipts
from localspec.models.hub.remote import Hub
from localspec.models.names import HubName
from localspec.models.pull import Item, Pull, PullPlan
from localspec.tui.downloads import Download
from localspec.tui.pair_rows import FreeMemory
from localspec.tui.screens.pairs import PairsScreen
from localspec.tui.screens.race import RaceScreen
from localspec.tui.screens.settings import Field
from localspec.tui.settings_form import Form
from tests.tui.chats import until
from tests.tui.scripted import NOON, ScriptedWorker, app_of, ask, settled

Scene = Callable[[Pilot[int]], Awaitable[None]]
ANSWER = [
    "# The sky",
    " scatters *blue*",
    " light about **five",
    " times** more.",
    "\n\n- one",
    "\n- two `code`",
    "\n\n```python\nprint('blue')\n```\n\n",
    "> a quote\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n",
    "[a link](http://example.org) and the end.",
]
DIED = WorkerDiedError(
    "The engine aborted (SIGABRT) while generating",
    hint="--log-file FILE, and report what the file says",
    detail={"signal": "SIGABRT", "log": "ggml.c:4711: GGML_ASSERT(ne > 0) failed"},
)


async def empty(pilot: Pilot[int]) -> None:
    """Nothing was said yet."""


async def answered(pilot: Pilot[int]) -> None:
    await ask(pilot, "Why is the sky blue?\nKeep it short.")


async def tokens(pilot: Pilot[int]) -> None:
    answer = await ask(pilot, "Why is the sky blue?")
    await pilot.press("f3")
    answer.action_reveal()
    await settled(pilot)


async def thinking(pilot: Pilot[int]) -> None:
    worker = app_of(pilot).engine.worker_thread.worker
    assert isinstance(worker, ScriptedWorker)
    worker.answers = [["<think>", "Rayleigh", " scattering.", "</think>", "Air", " scatters blue."]]
    answer = await ask(pilot, "Why is the sky blue?")
    answer.action_unfold()
    await settled(pilot)


async def crashed(pilot: Pilot[int]) -> None:
    worker = app_of(pilot).engine.worker_thread.worker
    assert isinstance(worker, ScriptedWorker)
    worker.fails[2] = DIED
    await ask(pilot, "Why is the sky blue?")


async def focused(pilot: Pilot[int]) -> None:
    answer = await ask(pilot, "Why is the sky blue?")
    answer.focus()
    await settled(pilot)


async def inspected(pilot: Pilot[int]) -> None:
    await focused(pilot)
    await pilot.press("enter")
    await settled(pilot)


async def helped(pilot: Pilot[int]) -> None:
    await pilot.press("f1")
    await settled(pilot)


async def logged(pilot: Pilot[int]) -> None:
    await pilot.press("f12")
    await settled(pilot)


async def remembered(pilot: Pilot[int]) -> None:
    await ask(pilot, "Why is the sky blue?")
    await pilot.press("f8")
    app = app_of(pilot)
    await until(pilot, lambda: bool(app.screen.query("Listing")))
    await settled(pilot)


async def asked(pilot: Pilot[int]) -> None:
    await pilot.press("ctrl+s")
    await settled(pilot)


async def exporting(pilot: Pilot[int]) -> None:
    await ask(pilot, "Why is the sky blue?")
    await until(pilot, lambda: app_of(pilot).chat_state.messages.key is not None)
    app_of(pilot).action_open("export")
    await settled(pilot)


async def raced(pilot: Pilot[int]) -> None:
    app = app_of(pilot)
    app.clock = lambda: 0.0
    app.chat.composer.fill("Why is the [/INST] sky blue?")
    await pilot.press("f4")
    await until(pilot, lambda: isinstance(app.screen, RaceScreen))
    screen = app.screen
    assert isinstance(screen, RaceScreen)
    await until(pilot, lambda: screen.running is not None and screen.running.is_over)
    await asyncio.sleep(0.15)  # until it is drawn
    await settled(pilot)


async def tuned(pilot: Pilot[int]) -> None:
    app = app_of(pilot)
    app.form = Form.of(app.chat_state, described(("chat",)), app.chat_state.request)
    await pilot.press("f9")
    await settled(pilot)
    fields = {field.key: field for field in app.screen.query(Field)}
    for name, text in (("temp", "0.3"), ("top-p", "2")):
        fields[name].input.focus()
        await until(pilot, lambda name=name: fields[name].input.has_focus)
        fields[name].input.value = text
        await settled(pilot)
    await until(pilot, lambda: app.form.text("temp") == "0.3" and bool(fields["top-p"].problem))
    await settled(pilot)


async def chosen(pilot: Pilot[int]) -> None:
    app = app_of(pilot)
    screen = PairsScreen(app, lambda: FreeMemory(16_000_000_000, (8_000_000_000,)))
    await app.push_screen(screen)
    await until(pilot, lambda: screen.chosen is not None)
    await pilot.press(*"qwen3 8b")
    await asyncio.sleep(0.1)
    await settled(pilot)


async def downloaded(pilot: Pilot[int]) -> None:
    """A download is on its way, another file of it was here."""
    app = app_of(pilot)
    app.download = going()
    await chosen(pilot)


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        empty,
        answered,
        tokens,
        thinking,
        crashed,
        focused,
        inspected,
        helped,
        logged,
        remembered,
        asked,
        exporting,
        raced,
        tuned,
        chosen,
        downloaded,
    )
}


def going() -> Download:
    """Return a download as it is half way through, with a name that is not to be believed."""
    name = HubName("tales/storyteller-GGUF", quant="Q8_0")
    files = [
        RepoFile("big[red]-Q8_0.gguf", 8_000_000_000, "0" * 64),
        RepoFile("small-Q8_0.gguf", 500_000_000, "1" * 64),
    ]
    listing = Listing("tales/storyteller-GGUF", "main", "0" * 40, tuple(files))
    items = (Item(listing, files[0], 0, False, False), Item(listing, files[1], 500_000_000, True, False))
    plan = PullPlan((name,), items, Path("/models"), 60_000_000_000)
    download = Download("tales", (name,), clock=lambda: 60.0, phase="running", plan=plan)
    download.pull = Pull(plan, Hub(), Cache(), Receipts())
    download.pull.files[0].at(3_000_000_000)
    download.pull.files[0].phase("downloading")
    download.pull.files[1].phase("hashing")
    download.had = 500_000_000
    return download


def store() -> Store:
    made = Store.open(None, clock=lambda: NOON)
    for text in ("Which verse is it?", "Sing of the wrath of Achilles"):
        kept = made.create("storyteller")
        made.add_message(kept.id, None, "user", text)
    return made
