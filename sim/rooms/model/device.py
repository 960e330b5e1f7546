"""The events of one client, in order: when it connects, publishes, and disconnects.

    Connect, Publish, Publish, …                               a device that is always online
    Connect, Publish, Disconnect, Connect, Publish, …          one that sleeps or flaps

Streams are the topics on which a client publishes, by number. What would be due while a device is offline is
not published: the device does not measure then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from random import Random
from typing import TypeAlias

from ..scenario.settings import Absence, Command, Report
from .arrivals import arrivals
from .values import payload_source

__all__ = [
    "Action",
    "Connect",
    "Disconnect",
    "Event",
    "Publish",
    "always_connected",
    "controller",
    "device",
    "online_times",
    "person",
    "updater",
    "walk",
]


@dataclass(frozen=True, slots=True)
class Connect:
    """The client connects."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The client disconnects. `is_abrupt`: it breaks off, without DISCONNECT."""

    is_abrupt: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """The client publishes on one of its streams."""

    stream: int
    body: bytes


Action: TypeAlias = Connect | Disconnect | Publish
Event: TypeAlias = tuple[float, Action]
"""Seconds since the beginning, and what happens."""

_CONNECT = Connect()


def device(
    random: Random,
    reports: Sequence[Report],
    absence: Absence | None,
    block: bytes,
    *,
    clock_s: float,
    first_stream: int,
) -> Iterator[Event]:
    """The events of a device with these reports. The first report is on the stream `first_stream`."""
    publications = merge(
        *(
            _report_events(Random(random.getrandbits(64)), report, number, block, clock_s)
            for number, report in enumerate(reports, first_stream)
        ),
        key=_when,
    )
    if absence is None:
        return always_connected(publications)
    return _with_absences(publications, online_times(random, absence), absence.is_abrupt)


def controller(random: Random, commands: Sequence[tuple[int, Command]], *, clock_s: float) -> Iterator[Event]:
    """The events of a room's controller, with the stream of each command that it gives."""
    return always_connected(
        merge(
            *(
                _command_events(Random(random.getrandbits(64)), command, stream, clock_s)
                for stream, command in commands
            ),
            key=_when,
        )
    )


def person(random: Random, streams: Sequence[int], stay_s: float) -> Iterator[Event]:
    """The events of a person. `streams`: by room, the person's stream there."""
    return always_connected(_walk_events(random, streams, stay_s))


def updater(at_s: float, size: int, block: bytes) -> Iterator[Event]:
    """The events of a client that publishes one image, on stream 0."""
    return always_connected(iter([(at_s, Publish(0, (block * (size // len(block) + 1))[:size]))]))


def always_connected(publications: Iterator[Event]) -> Iterator[Event]:
    """The events of a client that is connected from the beginning."""
    yield 0.0, _CONNECT
    yield from publications


def online_times(random: Random, absence: Absence) -> Iterator[tuple[float, float]]:
    """The begin and end of each time for which a device is online, in seconds. The first begins at 0.

    An alternating renewal process with exponential times.
    """
    at = 0.0
    while True:
        until = at + random.expovariate(1 / absence.up_s)
        yield at, until
        at = until + random.expovariate(1 / absence.down_s)


def walk(random: Random, rooms: int, stay_s: float) -> Iterator[tuple[float, int]]:
    """The times at which a person enters a room, and the room; the first time is 0.

    A random walk in continuous time: a person stays for an exponential time, and then goes to another room,
    each with the same probability. So in the long run a person is in each room for the same share of the
    time, whatever the first room was.
    """
    room = random.randrange(rooms)
    at = 0.0
    while True:
        yield at, room
        at += random.expovariate(1 / stay_s)
        if rooms > 1:
            room = (room + random.randrange(1, rooms)) % rooms


def _report_events(
    random: Random, report: Report, stream: int, block: bytes, clock_s: float
) -> Iterator[Event]:
    next_payload: Callable[[], bytes] = payload_source(random, report, block)
    for at in arrivals(random, report.pattern, clock_s):
        yield at, Publish(stream, next_payload())


def _command_events(random: Random, command: Command, stream: int, clock_s: float) -> Iterator[Event]:
    for at in arrivals(random, command.pattern, clock_s):
        yield at, Publish(stream, random.choice((b"on", b"off")))


def _walk_events(random: Random, streams: Sequence[int], stay_s: float) -> Iterator[Event]:
    before: int | None = None
    for at, room in walk(random, len(streams), stay_s):
        if before is not None:
            yield at, Publish(streams[before], b"out")
        yield at, Publish(streams[room], b"in")
        before = room


def _with_absences(
    publications: Iterator[Event], times: Iterator[tuple[float, float]], is_abrupt: bool
) -> Iterator[Event]:
    disconnect = Disconnect(is_abrupt)
    since, until = next(times)
    yield since, _CONNECT
    for at, action in publications:
        while at >= until:
            yield until, disconnect
            since, until = next(times)
            yield since, _CONNECT
        if at >= since:
            yield at, action


def _when(event: Event) -> float:
    return event[0]
