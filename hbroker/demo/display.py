"""The progress of the demo: a live picture on a terminal; otherwise a line every two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from hbroker.demo.life import Progress

__all__ = ["line", "progress_display"]

_EVERY_S: Final = 2.0
_TEXT_LENGTH: Final = 12
_SHOWN: Final = (
    "home/kitchen/oven/temperature",
    "home/livingroom/light",
    "home/bedroom/temperature",
    "home/outside/wind",
    "home/outside/securitycams/front/motion",
    "home/office/computer/cpu/percent",
    "home/office/computer/memory/percent",
    "home/office/computer/network/received_bytes_per_s",
)


@contextmanager
def progress_display(console: Console) -> Iterator[Callable[[Progress], None]]:
    """The function to call with the progress."""
    if not console.is_terminal:
        yield _Lines(console).show
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield lambda progress: live.update(_picture(progress))


def line(progress: Progress) -> str:
    """The progress in one line."""
    received = sum(watch.received for watch in progress.watches)
    published = progress.published.total()
    return f"{progress.elapsed:4.1f} of {progress.seconds:g} s: {published} published, {received} received"


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0

    def show(self, progress: Progress) -> None:
        if progress.elapsed >= self._due:
            self._due += _EVERY_S
            self._console.print(line(progress), highlight=False)


def _picture(progress: Progress) -> Group:
    readings = Table(title="latest readings", title_justify="left", box=None, padding=(0, 2))
    readings.add_column("topic")
    readings.add_column("value", justify="right")
    for topic in _SHOWN:
        readings.add_row(topic, progress.latest.get(topic, b"").decode("utf-8", "replace")[:_TEXT_LENGTH])
    watchers = Table(title="watchers", title_justify="left", box=None, padding=(0, 2))
    watchers.add_column("filter")
    watchers.add_column("QoS")
    watchers.add_column("received", justify="right")
    watchers.add_column("held by")
    for watch in progress.watches:
        watchers.add_row(watch.filter, str(watch.qos), str(watch.received), ", ".join(watch.owners))
    # Alone, a bar does not end its line.
    bar = Table.grid()
    bar.add_row(ProgressBar(total=progress.seconds, completed=progress.elapsed, width=60))
    return Group(Text(line(progress)), bar, Text(), watchers, Text(), readings)
