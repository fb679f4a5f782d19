"""No path is broken inside a name where it could be broken between its parts."""

import re
from dataclasses import replace

import pytest
from textual.content import Content

from localspec.conversations.store import Store
from localspec.errors import NotFoundError
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.conversations import Conversations
from localspec.tui.widgets import folded as widgets_folded
from localspec.tui.widgets.card import Note
from localspec.tui.widgets.folded import folded, pieces
from tests.recorded import recorded_expressions
from tests.tui.chats import shown, until
from tests.tui.scripted import ScriptedWorker, made, opened, settled

FOLDER = "/srv/somebody/projects/language-models/downloaded/from-the-hub/quantised/"
PATH = f"{FOLDER}qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
NAMES = re.findall(r"[a-z0-9]{3,}", PATH)  # none of them may be broken


@pytest.fixture(autouse=True)
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a word is folded behind its end, which would go on for ever."""
    line_end = widgets_folded._line_end

    def checked(word: str, at: int, width: int) -> int:
        assert at < len(word) or not word, "there is no more of the word"
        return line_end(word, at, width)

    monkeypatch.setattr(widgets_folded, "_line_end", checked)


def test_a_long_text_without_spaces_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time grew with the square of its length: 2 000 characters took a fifth of a second, at each look."""
    looked: list[str] = []
    right = widgets_folded.cell_len
    monkeypatch.setattr(widgets_folded, "cell_len", lambda text: looked.append(text) or right(text))
    word = "模型" * 1000
    assert [len(piece) for piece in pieces(word, 80)] == [40] * 50
    assert len("".join(looked)) < 2 * len(word)


def test_styles_and_words_that_fit_stay() -> None:
    text = Content.assemble(("see ", "bold"), ("/aa/bb/cc", "italic"), " now")
    made_of = folded(text, 6)
    assert made_of.plain == "see /aa/\nbb/cc now"
    assert {span.style for span in made_of.spans} == {"bold", "italic"}
    assert folded(text, 9) is text
    assert folded(text, 0) is text, "a widget without a size yet"


def whole(app: LocalspecApp) -> bool:
    """Whether each name of `PATH` is on the screen, whole."""
    return all(name in shown(app) for name in NAMES)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_cards_notes_and_notices_break_no_name(size: tuple[int, int]) -> None:
    async with opened(ScriptedWorker(), size=size) as (pilot, app):
        await app.chat.fail(NotFoundError(f"cannot read {PATH}: no such file", hint="another one"))
        await until(pilot, lambda: whole(app))
        await app.chat.renew()
        await app.chat.tell(f"saved 2 messages to {PATH}")
        await until(pilot, lambda: whole(app))
        await app.chat.renew()
        app.say(f"saved to {PATH}")
        await until(pilot, lambda: whole(app))
        await pilot.resize_terminal(62, 24)
        await until(pilot, lambda: whole(app))


async def test_a_line_of_a_table_goes_on_below_its_text() -> None:
    """As those of /stats do, at every width."""
    words = "copy drafted in 2 passes of 4 rows: a pass was expected to give 3.2 tokens, and gave 1.5"
    async with opened(ScriptedWorker(), size=(80, 24)) as (pilot, app):
        await app.chat.tell(f"  plans        {words}")
        (note,) = app.chat.query(Note)
        for width, last in ((80, "give 3.2 tokens, and gave 1.5"), (140, "gave 1.5")):
            await pilot.resize_terminal(width, 24)
            begin = words.removesuffix(last).rstrip()
            await until(pilot, lambda: note.content_plain == f"  plans        {begin}\n{'':15}{last}")  # noqa: B023


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_preview_of_a_conversation_names_its_models(size: tuple[int, int]) -> None:
    store = Store.open(None)
    kept = store.create(f"{PATH}+{PATH.replace('1.5b', '0.5b')}")
    store.add_message(kept.id, None, "user", f"What is in {PATH}?")
    async with opened(app=made(ScriptedWorker(), store=store), size=size) as (pilot, app):
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, Conversations))
        await settled(pilot)
        preview = str(app.screen.query_one("#preview Folded").render())
        assert "qwen2.5-coder-1.5b-instruct" in preview.replace("\n", "")
        assert FOLDER not in preview.split("You")[0].replace("\n", ""), "the folder tells nothing of a model"
        await until(pilot, lambda: whole(app))


async def test_the_pane_of_a_pair_breaks_its_name_between_parts() -> None:
    async with opened(ScriptedWorker(), size=(120, 40)) as (pilot, app):
        loaded = app.chat_state.loaded
        assert loaded is not None
        app.chat_state.loaded = replace(
            loaded, target=replace(loaded.target, path=PATH.replace(".gguf", "-imatrix.gguf"))
        )
        app.chat.show_figures()
        await until(pilot, lambda: "imatrix" in shown(app))


test_what_is_recorded = recorded_expressions(__file__, pieces)
