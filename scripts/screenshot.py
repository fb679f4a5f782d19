"""Take the picture of the full-screen chat that the README shows, docs/chat.svg, from a real run on this machine.

The bundled pair's target is embedded in a model of a real one's shape (tests/weights/scaled.py), since at its own size
there is nothing to gain. Every figure in the picture was measured while it was taken; the text is the small model's.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from importlib.resources import files
from pathlib import Path

from localspec.chat.state import ChatState
from localspec.conversations.store import Store
from localspec.settings.request import LoadSettings, Request, Sampling
from localspec.tui.app import LocalspecApp
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.worker_thread import WorkerThread
from localspec.worker.client import Worker
from tests.weights.scaled import add_target_options, scaled_target

ROOT = Path(__file__).parent.parent
SIZE = (120, 36)
TURNS = ("Tell me of a king and his three sons.", "Once upon a time there lived a fox who")


async def take(settings: LoadSettings, request: Request, kept: Path) -> str:
    """Return the picture of a chat of two turns, the last of them with its tokens' origins."""
    store = Store.open(kept)
    engine = ChatEngine(ChatState.opened(store, settings, request, in_background=True), WorkerThread(Worker()))
    app = LocalspecApp(engine)
    async with app.run_test(size=SIZE) as pilot:
        for n, text in enumerate(TURNS, 1):
            app.chat.composer.fill(text)
            await pilot.press("enter")
            while len(engine.traces) < n or engine.worker_thread.is_busy:
                await pilot.pause(0.05)
        app.chat.action_origins()
        app.chat.action_origins()
        await pilot.pause(0.5)
        picture = app.export_screenshot(title="localspec chat")
    engine.close()
    store.close()
    return picture


def main() -> None:
    """Make the target, run the chat, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_target_options(parser)
    parser.add_argument("-n", type=int, default=110, help="tokens of an answer")
    parser.add_argument("--temp", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "chat.svg")
    options = parser.parse_args()
    pair = Path(str(files("localspec.models"))) / "storyteller"
    with tempfile.TemporaryDirectory() as folder:
        target = scaled_target(options, Path(folder))
        name = f"storyteller, target scaled to {options.shape}"
        settings = LoadSettings(str(target), str(pair / "draft-q8_0.gguf"), name=name)
        request = Request(max_tokens=options.n, sampling=Sampling(temperature=options.temp, seed=options.seed))
        picture = asyncio.run(take(settings, request, Path(folder) / "kept.db"))
    # The fonts that the picture names would be fetched from elsewhere by whoever looks at it.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    options.out.write_text(picture, encoding="utf-8")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
