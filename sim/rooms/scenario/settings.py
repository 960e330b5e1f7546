"""A scenario, as its file says it: frozen, checked, in seconds and bytes.

A *room* is a branch of the topics in which devices are. A *kind* is what devices of one sort do: what they
*report* by themselves and in which *pattern*, what *commands* they obey, whether they are *absent* at times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Self, TypeAlias

__all__ = [
    "Absence",
    "Burst",
    "Command",
    "Frames",
    "Kind",
    "Over",
    "Pattern",
    "People",
    "Periodic",
    "Poisson",
    "Report",
    "Room",
    "Scenario",
    "Size",
    "Skew",
    "Update",
    "Value",
    "Watcher",
]


class Over(Enum):
    """How a client reaches the network."""

    NATIVE = "native"
    """UDP, to the owners themselves."""
    MQTT = "mqtt"
    """MQTT 5, to a gateway."""
    ANY = "any"
    """Either, so that the scenario's share comes out."""


@dataclass(frozen=True, slots=True)
class Periodic:
    """Every `every_s` seconds, from a random phase, or, if `aligned`, when the clock shows a multiple of it.

    `jitter`: how far each is off, evenly, as a share of the period; it does not accumulate. `drift_ppm`: the
    standard deviation of the devices' clocks, in parts per million; that does.
    """

    every_s: float
    jitter: float = 0.0
    drift_ppm: float = 0.0
    aligned: bool = False

    @property
    def rate(self) -> float:
        """Events a second."""
        return 1 / self.every_s

    def faster(self, tempo: float) -> Self:
        """The same, so many times as often."""
        return replace(self, every_s=self.every_s / tempo)


@dataclass(frozen=True, slots=True)
class Burst:
    """Each event of a Poisson process is followed by others: geometrically many, so that there are `size` in
    all on average, `every_s` seconds apart on average (exponentially)."""

    size: float
    every_s: float


@dataclass(frozen=True, slots=True)
class Poisson:
    """Events that nothing foretells, `per_hour` by day and `at_night` times as many by night."""

    per_hour: float
    at_night: float = 1.0
    burst: Burst | None = None

    @property
    def rate(self) -> float:
        """Events a second by day."""
        return self.per_hour / 3600 * (self.burst.size if self.burst else 1.0)

    def faster(self, tempo: float) -> Self:
        """The same, so many times as often."""
        return replace(self, per_hour=self.per_hour * tempo)


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a camera, `per_s` a second. Every `key_every`-th is a key frame, in the upper half of the
    sizes; the others are in the lower."""

    per_s: float
    key_every: int = 10

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.per_s

    def faster(self, tempo: float) -> Self:
        """The same, so many times as often."""
        return replace(self, per_s=self.per_s * tempo)


Pattern: TypeAlias = Periodic | Poisson | Frames


@dataclass(frozen=True, slots=True)
class Size:
    """Of payloads in bytes, evenly between these."""

    least: int
    most: int

    @property
    def mean(self) -> float:
        """On average."""
        return (self.least + self.most) / 2


@dataclass(frozen=True, slots=True)
class Value:
    """A reading that wanders: drawn back to the `usual`, and off by `step` at each reading."""

    usual: float
    step: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a device says by itself, on the topic `leaf` below its own."""

    leaf: str
    pattern: Pattern
    size: Size
    qos: int = 0
    retain: bool = False
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """What a device is told on the topic `leaf` below its own, and answers at once on `answer`."""

    leaf: str
    answer: str
    pattern: Poisson | Periodic
    qos: int = 1


@dataclass(frozen=True, slots=True)
class Absence:
    """A device is there for `up_s` and away for `down_s` seconds, both exponential with that mean.
    `is_abrupt`: it breaks off (and its will is published); else it says goodbye."""

    up_s: float
    down_s: float
    is_abrupt: bool

    @property
    def share(self) -> float:
        """Of the time for which it is there."""
        return self.up_s / (self.up_s + self.down_s)


@dataclass(frozen=True, slots=True)
class Kind:
    """What devices of this sort do."""

    name: str
    reports: tuple[Report, ...] = ()
    commands: tuple[Command, ...] = ()
    absence: Absence | None = None
    over: Over = Over.ANY

    @property
    def rate(self) -> float:
        """Messages a second of one such device, answers and commands to it counted, births and wills not."""
        reported = sum(report.pattern.rate for report in self.reports)
        on_result = sum(2 * command.pattern.rate for command in self.commands)
        return (reported + on_result) * (self.absence.share if self.absence else 1.0)

    def faster(self, tempo: float) -> Kind:
        """The same, saying all so many times as often."""
        if tempo == 1.0:
            return self
        return replace(
            self,
            reports=tuple(replace(r, pattern=r.pattern.faster(tempo)) for r in self.reports),
            commands=tuple(replace(c, pattern=c.pattern.faster(tempo)) for c in self.commands),
        )


@dataclass(frozen=True, slots=True)
class Room:
    """`path`: below the scenario's top. `devices`: (kind, how many)."""

    path: str
    devices: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Watcher:
    """A receiver beside the rooms' controllers: a dashboard, a recorder. Its `filters` are whole."""

    name: str
    filters: tuple[str, ...]
    qos: int = 2
    over: Over = Over.NATIVE


@dataclass(frozen=True, slots=True)
class People:
    """Persons who walk from room to room, and stay `stay_s` seconds on average (exponentially)."""

    count: int
    stay_s: float
    over: Over = Over.ANY


@dataclass(frozen=True, slots=True)
class Update:
    """An image of `size` bytes that goes, `at_s` seconds after the beginning, to all devices below `area`
    that are always there. `kinds`: to these alone; empty: to all."""

    at_s: float
    area: str
    size: int
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skew:
    """`share` of all that devices report and are told belongs to `room`."""

    room: str
    share: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """`top`: the levels above all rooms. `clock_s`: the time of day at which it begins. `mqtt`: the share of
    the devices that come over a gateway."""

    name: str
    top: str
    kinds: dict[str, Kind]
    rooms: tuple[Room, ...]
    about: str = ""
    seed: int = 1
    speed: float = 1.0
    clock_s: float = 43_200.0
    mqtt: float = 0.0
    watchers: tuple[Watcher, ...] = ()
    people: People | None = None
    updates: tuple[Update, ...] = ()
    skew: Skew | None = None

    @property
    def devices(self) -> int:
        """How many there are, people not counted."""
        return sum(count for room in self.rooms for _, count in room.devices)
