"""The progress of a run: a live picture on a terminal; otherwise a line every two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .play import Progress

__all__ = ["line", "progress_display"]

_EVERY_S: Final = 2.0
_WIDTH: Final = 60


@contextmanager
def progress_display(title: str) -> Iterator[Callable[[Progress], None]]:
    """The function to call with the progress, which goes to standard error. The result goes to standard
    output."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield lambda progress: live.update(_picture(title, progress))


def line(progress: Progress) -> str:
    """The progress in one line."""
    if progress.phase == "connecting":
        return f"connecting: {progress.connected} of {progress.devices} devices, {progress.elapsed_s:.0f} s"
    late = progress.late.quantile(0.99)
    return (
        f"{progress.phase}, {progress.elapsed_s:.0f} s: {progress.connected} devices,"
        f" {progress.published_per_s:.0f} said/s, {progress.received_per_s:.0f} received/s,"
        f" {progress.outstanding} on their way, {progress.busy:.0%} of a processor"
        + ("" if late is None else f", {late:.0f} ms late (p99)")
    )


def _lines() -> Callable[[Progress], None]:
    shown = 0.0

    def show(progress: Progress) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _EVERY_S:
            shown = now
            print(line(progress), file=sys.stderr, flush=True)

    return show


def _picture(title: str, progress: Progress) -> Group:
    is_connecting = progress.phase == "connecting"
    bar = Table.grid()
    bar.add_row(
        ProgressBar(
            total=max(progress.devices, 1) if is_connecting else progress.duration_s,
            completed=progress.connected if is_connecting else min(progress.played_s, progress.duration_s),
            width=_WIDTH,
        )
    )
    numbers = Table(box=None, padding=(0, 2), show_header=False)
    late = progress.late.quantile(0.99)
    latency = progress.latency
    rows = [
        ("devices", f"{progress.connected} of {progress.devices} connected"),
        ("said", f"{progress.published} of {progress.asked} due, {progress.published_per_s:.0f}/s"),
        (
            "received",
            f"{progress.received}, {progress.received_per_s:.0f}/s, {progress.outstanding} on their way",
        ),
        ("latency", f"p50 {_ms(latency.quantile(0.5))}, p99 {_ms(latency.quantile(0.99))}"),
        ("this process", f"{progress.busy:.0%} of a processor, events {_ms(late)} late (p99)"),
    ]
    for name, text in rows:
        numbers.add_row(name, text)
    return Group(Text(f"{title}: {progress.phase}"), bar, numbers)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
