"""`hbroker top` on a real network, in a terminal of Textual's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, Static, TabbedContent

from hbroker.cli import main
from hbroker.cli.exits import FAILED
from hbroker.cli.top.app import TopApp
from hbroker.runtime.client.async_client import Connecting, connect
from tests.product.network import PATIENCE, network_of

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
"""


def cells(app: TopApp, name: str) -> list[list[str]]:
    """The rows of a table."""
    table: DataTable[Text] = app.query_one(f"#{name}-table", DataTable)
    return [[str(cell) for cell in table.get_row_at(number)] for number in range(table.row_count)]


async def shown(pilot: Pilot[None], is_true: Callable[[], bool]) -> None:
    """Waits until the application shows something."""
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        await pilot.pause(0.05)


async def test_a_network_is_shown_and_keys_work(tmp_path: Path) -> None:
    with network_of(FILE, tmp_path) as (network, root):
        (state,) = (file.parent for file in network.directory.glob("*/state.json"))

        def connecting() -> Connecting:
            authority, token = state / "authority" / "authority.crt", state / "operator.token"
            return connect(root, timeout=PATIENCE, authority=authority, token=token)

        app = TopApp(connecting, root)
        async with app.run_test(size=(140, 40)) as pilot:
            await shown(pilot, lambda: len(cells(app, "nodes")) == 2)
            assert [row[0] for row in cells(app, "nodes")] == ["root", "└─ kitchen"]
            assert "2 nodes" in str(app.query_one("#summary", Static).render())
            await pilot.press("down", "s")
            await shown(pilot, lambda: [row[0] for row in cells(app, "nodes")] == ["root", "kitchen"])
            assert app.query_one("#nodes-table", DataTable).cursor_row == 1
            await pilot.press("3")
            await shown(pilot, lambda: any(row[1] == "kitchen" for row in cells(app, "sessions")))
            await pilot.press("4")
            assert app.query_one("#tabs", TabbedContent).active == "events"
            async with connecting() as client:
                await client.publish(
                    "$SYS/audit/kitchen/joined", b'{"node": "kitchen", "event": "joined", "peer": "x"}', qos=1
                )
            await pilot.press("p")
            assert app.sub_title == "paused"
            await pilot.press("p", "1", "q")
        assert app.return_code == 0


def test_it_needs_a_terminal() -> None:
    assert main(["top", "--root", "127.0.0.1:1"]) == FAILED
