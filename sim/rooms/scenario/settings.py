"""The settings of a scenario: frozen, checked, in seconds and bytes.

A *room* is a branch of the topics in which devices are. A *kind* is what devices of one sort do: what they
*report* and in which *pattern*, which *commands* they obey, and whether they are *absent* at times.
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
    "Pattern",
    "People",
    "Periodic",
    "Poisson",
    "Report",
    "Room",
    "Scenario",
    "Size",
    "Skew",
    "Transport",
    "Update",
    "Value",
    "Watcher",
]


class Transport(Enum):
    """How a client connects to the network."""

    NATIVE = "native"
    """UDP, to the owners."""
    MQTT = "mqtt"
    """MQTT 5, to a gateway."""
    ANY = "any"
    """Either way, so that the scenario's share of MQTT results."""


@dataclass(frozen=True, slots=True)
class Periodic:
    """Every `every_s` seconds, from a random phase, or, if `aligned`, when the clock shows a multiple of it.

    `jitter`: the largest deviation of an event as a share of the period, uniformly distributed; it does not
    accumulate. `drift_ppm`: the standard deviation of the devices' clock rates, in parts per million; its
    effect accumulates.
    """

    every_s: float
    jitter: float = 0.0
    drift_ppm: float = 0.0
    aligned: bool = False

    @property
    def rate(self) -> float:
        """Events a second."""
        return 1 / self.every_s

    def with_rate_factor(self, factor: float) -> Self:
        """The same pattern, `factor` times as often."""
        return replace(self, every_s=self.every_s / factor)


@dataclass(frozen=True, slots=True)
class Burst:
    """Each event of a Poisson process is followed by others.

    Their number is geometric, so that a burst has `size` events on average. They are `every_s` seconds apart
    on average (exponentially).
    """

    size: float
    every_s: float


@dataclass(frozen=True, slots=True)
class Poisson:
    """A Poisson process: `per_hour` events by day, and `at_night` times that rate by night."""

    per_hour: float
    at_night: float = 1.0
    burst: Burst | None = None

    @property
    def rate(self) -> float:
        """Events a second by day."""
        return self.per_hour / 3600 * (self.burst.size if self.burst else 1.0)

    def with_rate_factor(self, factor: float) -> Self:
        """The same pattern, `factor` times as often."""
        return replace(self, per_hour=self.per_hour * factor)


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a camera, `per_s` a second.

    Every `key_every`-th is a key frame, whose size is in the upper half of the range; the others are in the
    lower half.
    """

    per_s: float
    key_every: int = 10

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.per_s

    def with_rate_factor(self, factor: float) -> Self:
        """The same pattern, `factor` times as often."""
        return replace(self, per_s=self.per_s * factor)


Pattern: TypeAlias = Periodic | Poisson | Frames


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of payloads in bytes, uniform between `least` and `most`."""

    least: int
    most: int

    @property
    def mean(self) -> float:
        """The mean size."""
        return (self.least + self.most) / 2


@dataclass(frozen=True, slots=True)
class Value:
    """A reading that wanders: drawn back to `usual`, with a random step of the standard deviation `step`."""

    usual: float
    step: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a device publishes by itself, on the topic `leaf` below its own."""

    leaf: str
    pattern: Pattern
    size: Size
    qos: int = 0
    retain: bool = False
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """What a device receives on the topic `leaf` below its own, and answers at once on `answer`."""

    leaf: str
    answer: str
    pattern: Poisson | Periodic
    qos: int = 1


@dataclass(frozen=True, slots=True)
class Absence:
    """A device is online for `up_s` and offline for `down_s` seconds, both exponential with this mean.

    `is_abrupt`: it breaks off, and its will is published; otherwise it sends DISCONNECT.
    """

    up_s: float
    down_s: float
    is_abrupt: bool

    @property
    def share(self) -> float:
        """The share of the time for which it is online."""
        return self.up_s / (self.up_s + self.down_s)


@dataclass(frozen=True, slots=True)
class Kind:
    """What devices of this kind do."""

    name: str
    reports: tuple[Report, ...] = ()
    commands: tuple[Command, ...] = ()
    absence: Absence | None = None
    transport: Transport = Transport.ANY

    @property
    def rate(self) -> float:
        """Messages a second of one such device, with its answers and the commands to it, without births and
        wills."""
        reported = sum(report.pattern.rate for report in self.reports)
        commanded = sum(2 * command.pattern.rate for command in self.commands)
        return (reported + commanded) * (self.absence.share if self.absence else 1.0)

    def with_rate_factor(self, factor: float) -> Kind:
        """The same kind with every pattern `factor` times as often."""
        if factor == 1.0:
            return self
        return replace(
            self,
            reports=tuple(replace(r, pattern=r.pattern.with_rate_factor(factor)) for r in self.reports),
            commands=tuple(replace(c, pattern=c.pattern.with_rate_factor(factor)) for c in self.commands),
        )


@dataclass(frozen=True, slots=True)
class Room:
    """One room. `path`: below the scenario's top. `devices`: kind and number."""

    path: str
    devices: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Watcher:
    """A receiver besides the rooms' controllers: a dashboard, a recorder. `filters`: with the scenario's
    top."""

    name: str
    filters: tuple[str, ...]
    qos: int = 2
    transport: Transport = Transport.NATIVE


@dataclass(frozen=True, slots=True)
class People:
    """People who walk from room to room, and stay `stay_s` seconds on average (exponentially)."""

    count: int
    stay_s: float
    transport: Transport = Transport.ANY


@dataclass(frozen=True, slots=True)
class Update:
    """An image of `size` bytes, published `at_s` seconds after the beginning.

    It goes to all devices below `area` that are always online. `kinds`: only to these; empty: to all.
    """

    at_s: float
    area: str
    size: int
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skew:
    """The share `share` of all reports and commands belongs to `room`."""

    room: str
    share: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario.

    `top`: the levels above all rooms. `clock_s`: the time of day at its begin. `mqtt`: the share of the
    devices that connect to a gateway.
    """

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
        """The number of devices, without people."""
        return sum(count for room in self.rooms for _, count in room.devices)
