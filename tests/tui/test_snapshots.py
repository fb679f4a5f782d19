"""Pictures of the screens as they were looked at and found right, and the contrast of all of them in every size.

Every scene has a picture of the largest and the smallest size in the dark theme, four have one in the light theme too.

After a change that is meant: `pytest tests/tui/test_snapshots.py --snapshot-update`, and look at the pictures.
"""

import itertools
import re
import time

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.image import SVGImageSnapshotExtension
from textual.widgets import Input, TextArea

from localspec.conversations import store as stores
from tests.tui.contrast import weak_texts
from tests.tui.scenes import ANSWER, SCENES, store
from tests.tui.scripted import ScriptedWorker, made, opened, settled

SIZES = ((120, 40), (80, 24), (60, 20))
PICTURED = {"dark": SIZES[::2], "light": SIZES[:2]}
LIGHT = ("answered", "inspected", "tuned", "chosen")  # the scenes with pictures in the light theme


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("name", SCENES)
async def test_the_picture_is_the_one_that_was_found_right(
    name: str, theme: str, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    time.tzset()
    numbers = itertools.count(1)
    monkeypatch.setattr(stores, "new_id", lambda now: f"conv{next(numbers):04}")
    app = made(ScriptedWorker(passes=ANSWER), is_dark=theme == "dark", store=store())
    app.animation_level = "none"
    async with opened(size=SIZES[0], app=app) as (pilot, _app):
        app.chat.composer.cursor_blink = False
        await SCENES[name](pilot)
        for written in (*app.screen.query(Input), *app.screen.query(TextArea)):
            written.cursor_blink = False  # a cursor that blinks is not in every picture
        for columns, rows in SIZES:
            await pilot.resize_terminal(columns, rows)
            await settled(pilot)
            app.chat.show_figures()  # as they are once a second, also behind a question
            await settled(pilot)
            assert not weak_texts(app)
            shown = [strip.text for strip in app.screen._compositor.render_strips()]
            assert not [line for line in shown if re.search(r"\d…", line)], "a cut figure is another figure"
            if (columns, rows) not in PICTURED[theme] or (theme == "light" and name not in LIGHT):
                continue
            picture = app.export_screenshot(title=f"{name} {columns}x{rows} {theme}")
            assert picture == snapshot(name=f"{columns}x{rows}", extension_class=SVGImageSnapshotExtension)
