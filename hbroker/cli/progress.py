"""The progress of long work: a line for each step that begins, and on a terminal a live line below them.

rich is imported only for a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Live


@dataclass(frozen=True, slots=True)
class Progress:
    """`say` is called with each step that begins, `advance` when a part of the whole is done."""

    say: Callable[[str], None]
    advance: Callable[[], None] = lambda: None


@contextmanager
def progress(*, is_silent: bool, parts: int | None = None) -> Iterator[Progress]:
    """Shows the progress of work on standard error. `parts`: how many the work has, if that is known.
    `is_silent`: shows nothing."""
    if is_silent:
        yield Progress(lambda _: None)
    elif not sys.stderr.isatty():
        yield Progress(lambda step: print(step, file=sys.stderr, flush=True))
    else:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Live
        from rich.table import Column

        console = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)
        text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
        columns = (SpinnerColumn(), text, *([BarColumn()] if parts else []), TimeElapsedColumn())
        with Live(*columns, console=console, transient=True, redirect_stdout=False) as live:
            task = live.add_task("", total=parts)

            def say(step: str) -> None:
                console.print(step)
                live.update(task, description=step)

            yield Progress(say, lambda: live.advance(task))


class StartBar:
    """How many processes of a network serve, on standard output if it is a terminal, until the bar's end.

    A context manager. No thread draws the bar, because the launcher forks.
    """

    def __init__(self, processes: int, *, is_silent: bool) -> None:
        self._live: Live | None = None
        if not is_silent and sys.stdout.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress

            self._live = Progress(
                BarColumn(),
                MofNCompleteColumn(),
                console=Console(),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._live.add_task("", total=processes)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def show(self, serving: int) -> None:
        """Shows that so many processes serve."""
        if self._live is not None:
            self._live.update(self._task, completed=serving, refresh=True)

    def print(self, line: str) -> None:
        """Prints a line, above the bar."""
        if self._live is not None:
            self._live.stop()
        print(line, flush=True)
        if self._live is not None:
            self._live.start()

    def end(self) -> None:
        """Removes the bar."""
        if self._live is not None:
            self._live.stop()
            self._live = None
