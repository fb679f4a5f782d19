"""The app in every state that a person meets, for the pictures and the contrast."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual.pilot import Pilot

from localspec.conversations.store import Store
from localspec.errors import WorkerDiedError
from tests.tui.scripted import NOON, ScriptedWorker, app_of, ask, settled, until

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
    await pilot.press("f3", "f3")
    answer.action_reveal()
    await settled(pilot)


async def thinking(pilot: Pilot[int]) -> None:
    worker = app_of(pilot).desk.bridge.worker
    assert isinstance(worker, ScriptedWorker)
    worker.answers = [["<think>", "Rayleigh", " scattering.", "</think>", "Air", " scatters blue."]]
    answer = await ask(pilot, "Why is the sky blue?")
    answer.action_unfold()
    await settled(pilot)


async def crashed(pilot: Pilot[int]) -> None:
    worker = app_of(pilot).desk.bridge.worker
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
    await until(pilot, lambda: bool(app.screen.query("DataTable")))
    await settled(pilot)


async def asked(pilot: Pilot[int]) -> None:
    await pilot.press("ctrl+s")
    await settled(pilot)


async def exporting(pilot: Pilot[int]) -> None:
    await ask(pilot, "Why is the sky blue?")
    await until(pilot, lambda: app_of(pilot).desk.dialogue.key is not None)
    app_of(pilot).action_export()
    await settled(pilot)


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
    )
}


def store() -> Store:
    """Return a store that holds two conversations."""
    made = Store.open(None, clock=lambda: NOON)
    for text in ("Which verse is it?", "Sing of the wrath of Achilles"):
        kept = made.create("storyteller")
        made.add_message(kept.id, None, "user", text)
    return made
