"""Runs of a network: which of the telemetry in a directory belongs together.

Each process names its files with the time of its own begin. A network goes on while its processes are killed,
restarted and replaced one by one, and it ends when all of them have ended. So a **run** of the network is a
set of processes that hang together in time: from the begin of the first one on, there was always one that had
begun and not ended. `hbroker up`, stopped and started again, makes two runs, however little time was between;
a process that is restarted while others go on makes none.

Clocks of several hosts that differ by more than the pause between two runs make one run of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from .errors import AnalysisError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_NAMED: Final = 3


@dataclass(frozen=True)
class Process:
    """One process. `began`, `ended`: in microseconds since the epoch; `files`: of its telemetry."""

    began: int
    ended: int
    files: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """One run of the network: its processes, in the order in which they began. There is at least one."""

    processes: tuple[Process, ...]

    @property
    def begin(self) -> datetime:
        """When the first process began."""
        return _time(self.processes[0].began)

    @property
    def end(self) -> datetime:
        """When the last process ended, or was last heard of."""
        return _time(max(process.ended for process in self.processes))

    def __str__(self) -> str:
        begin, end = self.begin, self.end
        shown = "%H:%M:%S" if begin.date() == end.date() else "%Y-%m-%d %H:%M:%S"
        return f"{begin:%Y-%m-%d %H:%M:%S} to {end.strftime(shown)}"


@dataclass(frozen=True)
class Wanted:
    """What is to be analysed: the latest run that has telemetry from `since` to before `until`, and of it
    what lies between."""

    since: datetime | None = None
    until: datetime | None = None
    at: datetime | None = None
    """The run that went on at this time, instead of the latest."""
    every: bool = False
    """All runs, as if they were one."""

    @property
    def is_bounded(self) -> bool:
        """Whether a part of a run may be all that is wanted."""
        return self.since is not None or self.until is not None

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """`since` and `until` in microseconds since the epoch."""
        return _micros(self.since), _micros(self.until)


@dataclass(frozen=True)
class Choice:
    """Runs that are analysed, and the others, the oldest first."""

    taken: tuple[Run, ...]
    left_out: tuple[Run, ...]

    def __str__(self) -> str:
        """In a line, for a person."""
        processes = sum(len(run.processes) for run in self.taken)
        reported = f"{_named(self.taken)} UTC, {processes} process{'es' if processes != 1 else ''}"
        if not self.left_out:
            return reported
        count = len(self.left_out)
        others = f"{count} other run{'s' if count > 1 else ''} of the network"
        return f"{reported}; left out: {others} ({_named(self.left_out)})"


def runs_of(processes: Iterable[Process]) -> list[Run]:
    """The runs that these processes make, the oldest first."""
    runs: list[list[Process]] = []
    goes_on_until = 0
    for process in sorted(processes, key=lambda process: (process.began, process.ended)):
        if not runs or process.began > goes_on_until:
            runs.append([])
        runs[-1].append(process)
        goes_on_until = max(goes_on_until, process.ended)
    return [Run(tuple(run)) for run in runs]


def choose(runs: Sequence[Run], wanted: Wanted) -> Choice:
    """The runs that are wanted. Raises AnalysisError where there are runs, and none of them is."""
    there = [run for run in runs if _lies_within(run, wanted)]
    if wanted.at is not None:
        there = [run for run in there if run.begin.replace(microsecond=0) <= wanted.at <= run.end]
    elif not wanted.every:
        there = there[-1:]
    if runs and not there:
        raise AnalysisError(f"no run of the network has telemetry of that time; there are {_named(runs)} UTC")
    return Choice(tuple(there), tuple(run for run in runs if run not in there))


def _lies_within(run: Run, wanted: Wanted) -> bool:
    return (wanted.since is None or run.end > wanted.since) and (
        wanted.until is None or run.begin < wanted.until
    )


def _named(runs: Sequence[Run]) -> str:
    """The latest of them, each by its times."""
    named = ", ".join(str(run) for run in runs[-_MOST_NAMED:])
    return named if len(runs) <= _MOST_NAMED else f"…, {named}"


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _micros(time: datetime | None) -> int | None:
    return None if time is None else (time - _EPOCH) // timedelta(microseconds=1)
