"""The pair picker: everything that can be run, whether it is here and would fit, and downloading what is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import DataTable, Input, Static
from textual.worker import get_current_worker

from localspec.errors import LocalspecError, NotFoundError
from localspec.models.available import AvailablePair, another, files_of, find, listed
from localspec.models.candidates import require_sound
from localspec.models.catalog import load_catalog
from localspec.models.hub.cache import must_stay_offline
from localspec.models.store import NotCachedError
from localspec.sanitize import sanitize
from localspec.settings.folders import typed_path
from localspec.settings.request import LoadSettings
from localspec.tui.download_lines import drawn
from localspec.tui.downloads import Download
from localspec.tui.host import Host
from localspec.tui.pair_rows import FreeMemory, cells, columns_of, compared, described, longest, this_machine
from localspec.tui.screens.dialog import OverChat
from localspec.tui.widgets.composer import LineInput, beginning
from localspec.tui.widgets.folded import Folded
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.notices import NoticeBar
from localspec.ui.files import is_path, path_completions

RATE = 5  # times a second that a download is drawn
REST = 0.2  # seconds a row is looked at before its files are


class Filter(LineInput):
    """The words to filter by, or a pair. Enter uses the row under the cursor; Ctrl+X is the screen's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "use, download", show=True),
        Binding("ctrl+x", "screen.cancel", "cancel download", show=True),
    ]


class PairsScreen(OverChat, Screen[None]):
    """Typing filters; Enter uses what is chosen, or any pair that is written down whole."""

    CSS_PATH = "pairs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("tab", "complete", "complete a path", show=False),
        Binding("ctrl+x", "cancel", "cancel download"),
        Binding("up", "move(-1)", "up", show=False),
        Binding("down", "move(1)", "down", show=False),
        Binding("pageup", "move(-10)", "page up", show=False),
        Binding("pagedown", "move(10)", "page down", show=False),
    ]

    def __init__(self, host: Host, survey: Callable[[], FreeMemory] = this_machine, folder: Path | None = None) -> None:
        super().__init__()
        self._host = host
        self._survey = survey
        self._folder = folder
        self._memory = FreeMemory()
        self._offers: list[AvailablePair] = []
        self._seen: list[AvailablePair] = []
        self._broken: dict[str, str] = {}  # what is wrong with an offer's files, by its reference
        self._filtered = ""  # what the rows were filtered by
        self._verdict = ""
        self._error: LocalspecError | None = None

    def compose(self) -> ComposeResult:
        yield Static("pairs · type to filter, or a path, or hf:ORG/REPO:QUANT", id="said", markup=False)
        yield Filter(placeholder="filter", compact=True, id="filter")
        yield DataTable[Content](id="offers", cursor_type="row", zebra_stripes=False, cell_padding=1)
        yield Folded(id="about")
        yield Static(id="drawer", markup=False)
        yield NoticeBar()
        yield Keys()

    def on_mount(self) -> None:
        self.query_one("#filter", Input).focus()
        self.table.can_focus = False
        self.read()
        self.survey()
        self.set_interval(1 / RATE, self._draw_download)
        self._draw_download()

    def on_resize(self) -> None:
        self._fill()
        self._draw_download()

    @property
    def table(self) -> DataTable[Content]:
        return self.query_one("#offers", DataTable)

    @property
    def chosen(self) -> AvailablePair | None:
        return self._seen[self.table.cursor_row] if 0 <= self.table.cursor_row < len(self._seen) else None

    def read(self) -> None:
        try:
            self._offers = listed(load_catalog(), self._folder)
        except LocalspecError as error:  # a mistake in the user's catalogue
            self._offers, self._error = [], error
        self._fill()
        self.check(self._offers)

    @work(thread=True)
    def survey(self) -> None:
        self._give(self._took_memory, self._survey())

    @work(thread=True, exclusive=True, group="check")
    def check(self, offers: list[AvailablePair]) -> None:
        """Read the headers of the models that are here: a file that is damaged is no offer."""
        for offer in offers:
            if offer.where == "here" and offer.ref not in self._broken and not get_current_worker().is_cancelled:
                try:
                    pair = find(offer)
                    require_sound(pair.target, pair.draft)
                except LocalspecError as error:
                    self._give(self._took_broken, offer.ref, error.message)

    @on(Input.Changed)
    def filter(self) -> None:
        self._error = None
        self._fill()

    @on(DataTable.RowHighlighted)
    def look(self) -> None:
        self._verdict = ""
        self._about()
        offer = self.chosen
        if offer is not None and offer.where == "here":
            self.compare(offer)

    @work(thread=True, exclusive=True, group="compare")
    def compare(self, offer: AvailablePair) -> None:
        time.sleep(REST)
        if get_current_worker().is_cancelled:
            return
        try:
            words = compared(find(offer))
        except LocalspecError as error:
            words = error.message
        self._give(self._took_verdict, offer, words)

    def action_complete(self) -> None:
        line = self.query_one("#filter", Input)
        completions = path_completions(line.value, (".gguf",))
        if is_path(line.value) and completions:
            line.value = beginning(completions)
            line.cursor_position = len(line.value)

    def action_move(self, rows: int) -> None:
        last = max(0, len(self._seen) - 1)
        self.table.move_cursor(row=min(last, max(0, self.table.cursor_row + rows)))

    @on(Input.Submitted)
    def action_use(self) -> None:
        if self.query_one("#filter", Input).value != self._filtered:  # typed, and not shown yet
            self.filter()
        wanted = self.chosen or self.query_one("#filter", Input).value.strip()
        download = self._host.download
        if download is not None and download.phase == "planned":
            if download.ref == (wanted if isinstance(wanted, str) else wanted.ref):
                download.begin()
                self._draw_download()
                return
            download.cancel()  # the question was of another one
        if wanted:
            self.open(wanted)

    @work(thread=True, exclusive=True, group="open")
    def open(self, wanted: AvailablePair | str) -> None:
        try:
            pair = another(self._host.engine.state.settings, wanted)
        except NotCachedError as missing:
            self._give(self._ask, wanted if isinstance(wanted, str) else wanted.ref, missing)
        except LocalspecError as error:
            self._give(self._fail, error)
        else:
            self._give(self._switch, *pair)

    def _give(self, take: Callable[..., None], *parameters: object) -> None:
        def give() -> None:
            if self.is_attached and self.query("#about"):  # a screen that goes loses its children first
                take(*parameters)

        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(give)

    def action_cancel(self) -> None:
        if self._host.download is not None:
            self._host.download.cancel()

    def action_back(self) -> None:
        download = self._host.download
        if download is not None and download.phase in ("asking", "planned"):
            download.cancel()
        else:
            self.dismiss()

    def _switch(self, pair: LoadSettings, remark: str) -> None:
        try:
            self._host.engine.switch_pair(pair)
            self._host.engine.state.remark(remark)
        except LocalspecError as error:
            self._fail(error)
            return
        self._host.say(sanitize(f"loading {pair.name}"))
        self.dismiss()

    def _ask(self, ref: str, missing: NotCachedError) -> None:
        download = self._host.download
        if download is not None and not download.is_over:
            self._fail(NotFoundError(f"{missing.message}; one download at a time", hint="Ctrl+X cancels the other"))
        elif must_stay_offline() or self._host.form.is_on("offline"):
            self._fail(NotFoundError(f"{missing.message}, and downloads are switched off", hint=missing.hint))
        else:
            self._error = None
            self._host.download = Download(ref, missing.wanted)
            self._host.download.start()
            self._host.watch_download()
            self._draw_download()

    def _fail(self, error: LocalspecError) -> None:
        self._error = error
        self._about()

    def _took_memory(self, memory: FreeMemory) -> None:
        self._memory = memory
        self._fill()

    def _took_broken(self, ref: str, problem: str) -> None:
        self._broken[ref] = problem
        self._fill()

    def _took_verdict(self, offer: AvailablePair, words: str) -> None:
        if self.chosen == offer:
            self._verdict = words
            self._about()

    def _fill(self) -> None:
        written = self.query_one("#filter", Input).value
        was = self.chosen
        self._seen, self._filtered = self._matching(written), written
        table = self.table
        table.clear(columns=True)
        columns = columns_of(
            self.size.width,
            longest(offer.name for offer in self._seen),
            longest(offer.draft for offer in self._seen),
        )
        for name, width in columns.items():
            table.add_column(name, width=width)
        for offer in self._seen:
            row = cells(offer, self._memory, columns, is_broken=offer.ref in self._broken)
            table.add_row(*(row[name] for name in columns))
        if was in self._seen:
            table.move_cursor(row=self._seen.index(was))
        self._about()

    def _matching(self, written: str) -> list[AvailablePair]:
        words = written.casefold().split()
        matching = [offer for offer in self._offers if offer.has(words)]
        matching.sort(key=lambda offer: not all(word in offer.name.casefold() for word in words))
        if is_path(written):
            folder, slash, name = written.rpartition("/")
            here = files_of(typed_path(folder + slash))
            known = {offer.file for offer in matching}
            matching += [each for each in here if each.name.startswith(name) and each.file not in known]
        return matching

    def _about(self) -> None:
        about = self.query_one("#about", Folded)
        if self._error is not None:
            start = "" if self._error.is_sentence else "Try: "
            hint = f"\n{start}{self._error.hint}" if self._error.hint else ""
            about.update(Content.assemble((sanitize(self._error.message), "$error"), sanitize(hint)))
        elif self.chosen is None:
            about.update(Content("No match. Enter opens it as a path or hub name."))
        else:
            about.update(described(self.chosen, self._memory, self._verdict, self._broken.get(self.chosen.ref, "")))

    def _draw_download(self) -> None:
        drawer, download = self.query_one("#drawer", Static), self._host.download
        drawer.display = download is not None
        if download is not None:
            drawer.update(drawn(download, self.size.width - 2))
            is_news = download.phase == "done" and not download.is_told
            if is_news and any(offer.where != "here" for offer in self._offers):
                download.is_told = True
                self.read()
