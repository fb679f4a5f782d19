"""Every text keeps a contrast of 4.5:1 (WCAG AA) with what it stands on, in every screen, dark and light."""

from __future__ import annotations

import pytest
from rich.color import ColorType
from textual.color import Color

from localspec.tui.themes import THEMES
from tests.tui.scenes import ANSWER, SCENES, store
from tests.tui.scripted import ScriptedWorker, made, opened

ENOUGH = 4.5
DRAWN = set("━─│├┤┬┴┼┌┐└┘╭╮╰╯▌▐█▁▂▃▄▅▆▇▏▎▍▊▋▉▔▕░▒▓ ▀┃⎯")  # lines and bars are no text


def contrast(one: Color, other: Color) -> float:
    """Return the ratio of WCAG 2.2: (L1 + 0.05) / (L2 + 0.05)."""
    lights = sorted((_luminance(one), _luminance(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(color: Color) -> float:
    def linear(channel: int) -> float:
        share = channel / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(color.r) + 0.7152 * linear(color.g) + 0.0722 * linear(color.b)


def test_the_ratio_is_that_of_the_standard() -> None:
    assert contrast(Color.parse("#000"), Color.parse("#fff")) == pytest.approx(21)
    assert contrast(Color.parse("#767676"), Color.parse("#fff")) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_the_colours_of_origins(theme: object) -> None:
    """On the background, on a focused message, and in the pane."""
    from textual.theme import Theme

    assert isinstance(theme, Theme)
    for name, value in theme.variables.items():
        if name.startswith("origin-") or name == "muted":
            for under in (theme.background, theme.surface, theme.panel):
                assert under is not None
                assert contrast(Color.parse(value), Color.parse(under)) >= ENOUGH, (name, under)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("name", SCENES)
async def test_what_is_drawn(name: str, theme: str) -> None:
    """The cells as they are sent to the terminal: colours of the style sheet, blended and dimmed as they are there."""
    app = made(ScriptedWorker(passes=ANSWER), is_dark=theme == "dark", store=store())
    async with opened(app=app) as (pilot, _app):
        await SCENES[name](pilot)
        weak = set()
        strips = app.screen._compositor.render_strips()
        boxes = app.screen.query(".box")  # what lies dimmed behind a question is not to be read
        if boxes:
            area = boxes.first().region
            strips = [strip.crop(area.x, area.right) for strip in strips[area.y : area.bottom]]
        for strip in strips:
            for segment in strip:
                text = "".join(char for char in segment.text if char not in DRAWN)
                style = segment.style
                if not text or style is None or style.color is None or style.bgcolor is None:
                    continue
                assert style.color.type is ColorType.TRUECOLOR
                front, back = Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)
                if style.reverse:
                    front, back = back, front
                if style.dim:
                    front = front.blend(back, 0.5)
                ratio = contrast(front, back)
                if ratio < ENOUGH:
                    weak.add((round(ratio, 2), text[:30], front.hex, back.hex))
        assert not weak
