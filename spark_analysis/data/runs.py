"""Runs of a network: which telemetry of a directory belongs together.

Each process names its files with its own start time. A network goes on while its processes are killed,
restarted and replaced one by one, and ends when all of them have ended. So a **run** of the network is a set
of processes that are connected in time: from the begin of the first one on, there was always one that had
begun and not ended. If `hbroker up` is stopped and started again, that makes two runs, however short the
pause. If a process is restarted while others run, the run goes on.

If the clocks of several hosts differ by more than the pause between two runs, these become one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from ..errors import AnalysisError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_NAMED: Final = 3


@dataclass(frozen=True)
class Process:
    """One process. `began`, `ended`: in microseconds since the epoch; `files`: its telemetry."""

    began: int
    ended: int
    files: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """One run of the network: its processes in the order of their begin, at least one."""

    processes: tuple[Process, ...]

    @property
    def begin(self) -> datetime:
        """When the first process began."""
        return _time(self.processes[0].began)

    @property
    def end(self) -> datetime:
        """When the last process ended, or the end of its telemetry."""
        return _time(max(process.ended for process in self.processes))

    def __str__(self) -> str:
        begin, end = self.begin, self.end
        shown = "%H:%M:%S" if begin.date() == end.date() else "%Y-%m-%d %H:%M:%S"
        return f"{begin:%Y-%m-%d %H:%M:%S} to {end.strftime(shown)}"


@dataclass(frozen=True)
class RunSelection:
    """The telemetry to analyse: from `since` to before `until`, of the latest run that has such telemetry."""

    since: datetime | None = None
    until: datetime | None = None
    at: datetime | None = None
    """Takes the run at this time instead of the latest."""
    every: bool = False
    """Takes all runs, as if they were one."""

    @property
    def is_bounded(self) -> bool:
        """Whether only a part of a run may be wanted."""
        return self.since is not None or self.until is not None

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """`since` and `until` in microseconds since the epoch."""
        return _micros(self.since), _micros(self.until)


@dataclass(frozen=True)
class Choice:
    """The runs that are analysed, and the others, the oldest first."""

    taken: tuple[Run, ...]
    left_out: tuple[Run, ...]

    def __str__(self) -> str:
        """The choice in one line, for a person."""
        processes = sum(len(run.processes) for run in self.taken)
        reported = f"{_named(self.taken)} UTC, {processes} process{'es' if processes != 1 else ''}"
        if not self.left_out:
            return reported
        count = len(self.left_out)
        others = f"{count} other run{'s' if count > 1 else ''} of the network"
        return f"{reported}; left out: {others} ({_named(self.left_out)})"


def runs_of(processes: Iterable[Process]) -> list[Run]:
    """The runs of these processes, the oldest first."""
    runs: list[list[Process]] = []
    goes_on_until = 0
    for process in sorted(processes, key=lambda process: (process.began, process.ended)):
        if not runs or process.began > goes_on_until:
            runs.append([])
        runs[-1].append(process)
        goes_on_until = max(goes_on_until, process.ended)
    return [Run(tuple(run)) for run in runs]


def choose(runs: Sequence[Run], wanted: RunSelection) -> Choice:
    """The wanted runs. Raises AnalysisError if there are runs, and none of them is wanted."""
    there = [run for run in runs if _lies_within(run, wanted)]
    if wanted.at is not None:
        there = [run for run in there if run.begin.replace(microsecond=0) <= wanted.at <= run.end]
    elif not wanted.every:
        there = there[-1:]
    if runs and not there:
        raise AnalysisError(f"no run of the network has telemetry of that time; there are {_named(runs)} UTC")
    return Choice(tuple(there), tuple(run for run in runs if run not in there))


def _lies_within(run: Run, wanted: RunSelection) -> bool:
    return (wanted.since is None or run.end > wanted.since) and (
        wanted.until is None or run.begin < wanted.until
    )


def _named(runs: Sequence[Run]) -> str:
    """The latest of the runs, by their times."""
    named = ", ".join(str(run) for run in runs[-_MOST_NAMED:])
    return named if len(runs) <= _MOST_NAMED else f"…, {named}"


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _micros(time: datetime | None) -> int | None:
    return None if time is None else (time - _EPOCH) // timedelta(microseconds=1)
