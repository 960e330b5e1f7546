"""The progress of the analysis: one line for each step, and a bar of Spark's tasks while it runs.

Spark runs a step as jobs of stages of tasks. Its status tracker has the active stages and the number of their
completed tasks; a thread reads it five times a second. The bar goes back and forth as stages come and go: it
shows that the step is alive. Its line at the end shows the result.

Progress goes to standard error, so that standard output has only the result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_EVERY_S: Final = 0.2


class Step:
    """A step that is running."""

    def __init__(self) -> None:
        self.result = ""

    def tell(self, result: str) -> None:
        """Sets the result that its line shows."""
        self.result = result


class Progression:
    """Lines for a person; on a terminal also a bar while Spark works."""

    def __init__(self, spark: SparkSession) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._spark = spark

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Runs a step under its title, and prints its line at its end."""
        reported = Step()
        begun = time.monotonic()
        self._spark.sparkContext.setJobDescription(title)
        with self._bar(title):
            yield reported
        seconds = time.monotonic() - begun
        self._console.print(
            f"{seconds:7.1f} s  {title}{': ' if reported.result else ''}{reported.result}", markup=False
        )

    @contextmanager
    def _bar(self, title: str) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        columns = (TextColumn("           {task.description}"), BarColumn(), _tasks(), TimeElapsedColumn())
        over = threading.Event()
        with Progress(*columns, console=self._console, transient=True) as bar:
            watcher = threading.Thread(
                target=self._watch, args=(bar, bar.add_task(title, total=None), over), daemon=True
            )
            watcher.start()
            try:
                yield
            finally:
                over.set()
                watcher.join()

    def _watch(self, bar: Progress, task: TaskID, over: threading.Event) -> None:
        tracker = self._spark.sparkContext.statusTracker()
        while not over.wait(_EVERY_S):
            try:
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            except (PySparkException, OSError):
                return
            there = [stage for stage in stages if stage is not None]
            if there:
                done = sum(stage.numCompletedTasks for stage in there)
                bar.update(task, total=sum(stage.numTasks for stage in there), completed=done)


def _tasks() -> TextColumn:
    return TextColumn("{task.completed:.0f} of {task.total} tasks")
