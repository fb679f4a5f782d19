"""A list makes only the rows that are seen, and its cursor stays on them."""

from rich.text import Text
from textual.app import App, ComposeResult

from localspec.tui.widgets.listing import Listing

ROWS, HEIGHT = 1000, 10


class Lists(App[None]):
    """A list of a thousand rows; `made` are those that were drawn, `said` what it told of."""

    CSS = f"Listing {{ height: {HEIGHT}; }}"

    def __init__(self) -> None:
        super().__init__()
        self.made: set[int] = set()
        self.said: list[str] = []

    def compose(self) -> ComposeResult:
        yield Listing(self.line)

    def line(self, row: int, width: int) -> Text:
        """Make a row."""
        self.made.add(row)
        return Text(f"row {row}".ljust(width))

    def on_listing_moved(self) -> None:
        self.said.append(f"moved to {self.query_one(Listing).cursor_row}")

    def on_listing_chosen(self) -> None:
        self.said.append(f"chosen {self.query_one(Listing).cursor_row}")


async def test_only_the_rows_in_sight_are_made() -> None:
    async with Lists().run_test(size=(40, 20)) as pilot:
        app = pilot.app
        assert isinstance(app, Lists)
        listing = app.query_one(Listing)
        listing.fill(ROWS, 0)
        await pilot.pause()
        assert app.made == set(range(HEIGHT))
        app.made.clear()
        listing.move_cursor(ROWS)
        await pilot.pause()
        assert listing.cursor_row == ROWS - 1
        assert app.made == set(range(ROWS - HEIGHT, ROWS))
        listing.move_cursor(-1)
        await pilot.pause()
        listing.move_cursor(0)  # it is there already
        await pilot.click(Listing, offset=(3, 4))
        await pilot.click(Listing, offset=(3, 4))
        await pilot.pause()
        assert app.said == ["moved to 999", "moved to 0", "moved to 4", "chosen 4"]
        listing.fill(3, 999)
        await pilot.pause()
        assert listing.cursor_row == 2
        await pilot.click(Listing, offset=(3, 3))  # below the last row
        await pilot.pause()
        assert app.said[4:] == []
        app.made.clear()
        listing.fill(0, 0)
        await pilot.pause()
        assert listing.cursor_row == 0
        assert app.made == set()
