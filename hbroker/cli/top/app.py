"""The application of `hbroker top`: four tables of what nodes say of themselves, refreshed each second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Sparkline, Static, TabbedContent, TabPane

from hbroker.cli.top import rows
from hbroker.operations.live_network import LiveNetwork
from hbroker.runtime.client.async_client import Connecting

__all__ = ["TopApp"]

_REFRESH_S: Final = 1.0
_SAMPLES: Final = 120
"""Seconds of the line of messages."""
_TABS: Final = ("nodes", "topics", "sessions", "events")


class TopApp(App[None]):
    """A network, live. `connect()`: a client of it. `root`: what the title says."""

    TITLE = "hbroker"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: 1; padding: 0 1; }
    #rate { height: 2; margin: 0 1; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("1", "tab('nodes')", "Nodes"),
        ("2", "tab('topics')", "Topics"),
        ("3", "tab('sessions')", "Sessions"),
        ("4", "tab('events')", "Events"),
        ("s", "sort", "Tree or load"),
        ("p", "pause", "Pause"),
    ]

    def __init__(self, connect: Callable[[], Connecting], root: str) -> None:
        super().__init__()
        self.live = LiveNetwork(connect)
        self._root = root
        self._by_load = False
        self._is_paused = False
        self._rate: deque[float] = deque([0.0] * _SAMPLES, maxlen=_SAMPLES)
        self._following: asyncio.Task[None] | None = None

    def compose(self) -> ComposeResult:
        """The widgets."""
        yield Static(f"asking {self._root} …", id="summary", markup=False)
        yield Sparkline(list(self._rate), id="rate")
        columns = (rows.NODE_COLUMNS, rows.TOPIC_COLUMNS, rows.SESSION_COLUMNS, rows.EVENT_COLUMNS)
        with TabbedContent(id="tabs"):
            for name, titles in zip(_TABS, columns, strict=True):
                with TabPane(name.capitalize(), id=name), Vertical():
                    table: DataTable[Text] = DataTable(id=f"{name}-table", cursor_type="row")
                    for title in titles:
                        table.add_column(_cell(title, title), key=title)
                    yield table
        yield Footer()

    def on_mount(self) -> None:
        """Begins to follow the network."""
        self._following = asyncio.create_task(self.live.run())
        self._table("nodes").focus()
        self.set_interval(_REFRESH_S, self.show_network)

    async def on_unmount(self) -> None:
        """Ends the client."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def action_tab(self, name: str) -> None:
        """Shows a tab."""
        self.query_one("#tabs", TabbedContent).active = name
        self._table(name).focus()

    def action_sort(self) -> None:
        """Changes between the tree and the nodes by load."""
        self._by_load = not self._by_load
        self.show_network()

    def action_pause(self) -> None:
        """Stops the tables, or lets them go on."""
        self._is_paused = not self._is_paused
        self.sub_title = "paused" if self._is_paused else ""
        self.show_network()

    def show_network(self) -> None:
        """Shows what is known now."""
        if self._is_paused:
            return
        totals = self.live.totals()
        is_away = self.live.client is None
        where = f"{self._root} cannot be reached" if is_away else self._root
        text = rows.summary(self.live, totals) if self.live.is_known else "no node has answered yet"
        self.query_one("#summary", Static).update(f"{where}   {text}")
        self._rate.append(totals.rates["messages_in"] + totals.rates["messages_out"])
        self.query_one("#rate", Sparkline).data = list(self._rate)
        match self.query_one("#tabs", TabbedContent).active:
            case "topics":
                self._fill("topics", rows.topic_rows(self.live))
            case "sessions":
                self._fill("sessions", rows.session_rows(self.live))
            case "events":
                self._fill("events", rows.event_rows(self.live.recent_events()))
            case _:
                self._fill("nodes", rows.node_rows(self.live, by_load=self._by_load))

    def _fill(self, name: str, wanted: Sequence[rows.Row]) -> None:
        """Makes the rows of a table these. The cursor stays on the row that it is on."""
        table = self._table(name)
        shown = [str(key.value) for key in table.rows]
        if shown == [key for key, _ in wanted]:
            titles = [str(key.value) for key in table.columns]
            for key, cells in wanted:
                for title, cell in zip(titles, cells, strict=True):
                    if table.get_cell(key, title).plain != cell:
                        table.update_cell(key, title, _cell(title, cell), update_width=True)
            return
        at = table.cursor_row
        chosen = shown[at] if at < len(shown) else None
        table.clear()
        titles = [str(key.value) for key in table.columns]
        for key, cells in wanted:
            table.add_row(*map(_cell, titles, cells), key=key)
        keys = [key for key, _ in wanted]
        table.move_cursor(row=keys.index(chosen) if chosen in keys else min(at, max(len(keys) - 1, 0)))

    def _table(self, name: str) -> DataTable[Text]:
        table: DataTable[Text] = self.query_one(f"#{name}-table", DataTable)
        return table


def _cell(title: str, text: str) -> Text:
    return Text(text, justify="right" if title in rows.NUMBERS else "left")
