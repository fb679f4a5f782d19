"""Colours keep a contrast of 4.5:1; that of whole screens is checked with their pictures, in test_snapshots."""

import pytest
from textual.color import Color
from textual.theme import Theme
from textual.widgets import Static

from localspec.tui.themes import THEMES
from tests.tui.contrast import ENOUGH, contrast, weak_texts
from tests.tui.scripted import ask, opened


def test_the_ratio_is_that_of_the_standard() -> None:
    assert contrast(Color.parse("#000"), Color.parse("#fff")) == pytest.approx(21)
    assert contrast(Color.parse("#767676"), Color.parse("#fff")) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_the_colours_of_origins(theme: Theme) -> None:
    """On the background, on a focused message, and in the pane."""
    for name, value in theme.variables.items():
        if name.startswith("origin-") or name == "muted":
            for under in (theme.background, theme.surface, theme.panel):
                assert under is not None
                assert contrast(Color.parse(value), Color.parse(under)) >= ENOUGH, (name, under)


async def test_a_text_that_is_too_weak_is_found() -> None:
    async with opened() as (pilot, app):
        answer = await ask(pilot, "go")
        assert not weak_texts(app)
        answer.query_one(".note").styles.color = "#444444"
        answer.query_one(".note", Static).update("weak")
        await pilot.pause()
        assert {text.strip() for _, text, _, _ in weak_texts(app)} == {"weak"}
