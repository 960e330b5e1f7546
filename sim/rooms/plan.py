"""The clients of a scenario: their streams, their filters, and how each connects.

    <top>/<room>/<device>/<leaf>           reports, commands and answers of a device
    <top>/<room>/<device>/status           whether it is online (retained); also the will of one that flaps
    <top>/<room>/presence/<person>         when a person comes and goes
    <top>/<area>/firmware                  an image for all devices of an area

A *stream* is what one client publishes on one topic. Its messages are numbered from 0, so that a receiver can
tell which are missing. Each room has a controller, which subscribes to the whole room and gives the commands.
Pure: the same scenario and seed give the same plan, and a device's events do not depend on other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from hbroker._native import SubscriptionTrie

from .model.device import Event, controller, device, person, updater
from .model.values import noise
from .scaling import rate_factors
from .scenario.settings import Command, Kind, Room, Scenario, Transport

__all__ = ["Client", "Plan", "Role", "Stream", "plan"]

STATUS: Final = "status"
KNOWN_ROOMS: Final = 12
"""The most rooms between which a person walks."""


class Role:
    """The roles of clients that are not devices, as tables name them. Kinds of devices have their own
    names."""

    CONTROLLER: Final = "controller"
    PERSON: Final = "person"
    UPDATER: Final = "updater"
    WATCHER: Final = "watcher"


@dataclass(frozen=True, slots=True)
class Stream:
    """The messages of one client on one topic. `room`: the room to which tables add them."""

    number: int
    topic: str
    qos: int
    retain: bool
    room: str


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    `streams`: by the numbers of its events. `birth`, `will`: the streams of its status messages: online, and
    the will. `answers`: by a command's topic, the stream of the answer. `events`: makes its events anew.
    """

    number: int
    name: str
    role: str
    room: str
    is_native: bool
    is_device: bool
    events: Callable[[], Iterator[Event]]
    streams: tuple[Stream, ...] = ()
    birth: int | None = None
    will: int | None = None
    answers: Mapping[str, int] = field(default_factory=dict)
    filters: tuple[str, ...] = ()
    qos: int = 2
    no_local: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """All clients, those that only subscribe first.

    `receivers`: for each stream, the numbers of the clients that receive it. `rate`: expected messages a
    second of simulated time.
    """

    scenario: Scenario
    clients: tuple[Client, ...]
    streams: tuple[Stream, ...]
    receivers: tuple[tuple[int, ...], ...]
    rate: float

    @property
    def devices(self) -> int:
        """The number of clients that are devices or people."""
        return sum(client.is_device for client in self.clients)


def plan(scenario: Scenario) -> Plan:
    """The plan of a scenario."""
    return _Planner(scenario).plan()


class _Planner:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._block = noise(scenario.seed)
        self._streams: list[Stream] = []
        self._clients: list[Client] = []
        self._native = _shares(scenario)
        self._rate_factors = rate_factors(scenario)

    def plan(self) -> Plan:
        scenario = self._scenario
        for watcher in scenario.watchers:
            self._clients.append(
                Client(
                    len(self._clients), watcher.name, Role.WATCHER, "",
                    watcher.transport is not Transport.MQTT, is_device=False, events=_nothing,
                    filters=watcher.filters, qos=watcher.qos,
                )
            )  # fmt: skip
        for room in scenario.rooms:
            self._add_room(room)
        for number, _ in enumerate(range(scenario.people.count if scenario.people else 0), 1):
            self._add_person(number)
        for number, update in enumerate(scenario.updates, 1):
            image = self._stream(f"{scenario.top}/{update.area}/firmware", 1, update.area)
            events = partial(updater, update.at_s, update.size, self._block)
            self._clients.append(
                Client(
                    len(self._clients), f"updater-{number}", Role.UPDATER, update.area, is_native=True,
                    is_device=False, events=events, streams=(image,),
                )
            )  # fmt: skip
        rate = sum(
            self._scenario.kinds[kind].rate * count * self._rate_factors[room.path]
            for room in scenario.rooms
            for kind, count in room.devices
        )
        people = 2 * scenario.people.count / scenario.people.stay_s if scenario.people else 0.0
        clients = tuple(self._clients)
        return Plan(
            scenario, clients, tuple(self._streams), _receivers(clients, self._streams), rate + people
        )

    def _add_room(self, room: Room) -> None:
        """Adds the controller first, so that it has subscribed before a device publishes."""
        commands: list[tuple[int, Command]] = []
        streams: list[Stream] = []
        devices: list[Callable[[], None]] = []
        for kind_name, count in room.devices:
            kind = self._scenario.kinds[kind_name].with_rate_factor(self._rate_factors[room.path])
            for number in range(1, count + 1):
                name = kind_name if count == 1 else f"{kind_name}-{number}"
                topic = f"{self._scenario.top}/{room.path}/{name}"
                for command in kind.commands:
                    commands.append((len(streams), command))
                    streams.append(self._stream(f"{topic}/{command.leaf}", command.qos, room.path))
                devices.append(partial(self._add_device, kind, topic, room))
        name = f"{self._scenario.top}/{room.path}/controller"
        clock_s = self._scenario.clock_s
        self._clients.append(
            Client(
                len(self._clients), name, Role.CONTROLLER, room.path, is_native=True, is_device=False,
                events=lambda: controller(self._random(name), commands, clock_s=clock_s),
                streams=tuple(streams), filters=(f"{self._scenario.top}/{room.path}/#",), no_local=True,
            )
        )  # fmt: skip
        for add in devices:
            add()

    def _add_device(self, kind: Kind, topic: str, room: Room) -> None:
        """Adds a device. Its streams: its birth, its will if it breaks off, its reports, its answers."""
        streams = [self._stream(f"{topic}/{STATUS}", 1, room.path, retain=True)]
        breaks_off = kind.absence is not None and kind.absence.is_abrupt
        if breaks_off:
            streams.append(self._stream(f"{topic}/{STATUS}", 1, room.path, retain=True))
        first = len(streams)
        for report in kind.reports:
            streams.append(
                self._stream(f"{topic}/{report.leaf}", report.qos, room.path, retain=report.retain)
            )
        answers = {}
        for command in kind.commands:
            answers[f"{topic}/{command.leaf}"] = len(streams)
            streams.append(self._stream(f"{topic}/{command.answer}", command.qos, room.path))
        images = () if kind.absence else self._images(room, kind)
        self._clients.append(
            Client(
                len(self._clients), topic, kind.name, room.path, next(self._native[kind.transport]),
                is_device=True,
                events=lambda: device(
                    self._random(topic), kind.reports, kind.absence, self._block,
                    clock_s=self._scenario.clock_s, first_stream=first,
                ),
                streams=tuple(streams), birth=0, will=1 if breaks_off else None, answers=answers,
                filters=(*answers, *images),
            )
        )  # fmt: skip

    def _add_person(self, number: int) -> None:
        people = self._scenario.people
        assert people is not None, "or nobody is added"
        name = f"{self._scenario.top}/person-{number}"
        paths = [room.path for room in self._scenario.rooms]
        known = self._random(f"{name}/rooms").sample(paths, min(KNOWN_ROOMS, len(paths)))
        streams = tuple(
            self._stream(f"{self._scenario.top}/{path}/presence/person-{number}", 1, path) for path in known
        )
        self._clients.append(
            Client(
                len(self._clients), name, Role.PERSON, "", next(self._native[people.transport]),
                is_device=True, streams=streams,
                events=lambda: person(self._random(name), range(len(known)), people.stay_s),
            )
        )  # fmt: skip

    def _images(self, room: Room, kind: Kind) -> tuple[str, ...]:
        """The topics of the images for a device of this kind in this room."""
        return tuple(
            dict.fromkeys(
                f"{self._scenario.top}/{update.area}/firmware"
                for update in self._scenario.updates
                if f"{room.path}/".startswith(f"{update.area}/")
                and kind.name in (update.kinds or (kind.name,))
            )
        )

    def _stream(self, topic: str, qos: int, room: str, *, retain: bool = False) -> Stream:
        stream = Stream(len(self._streams), topic, qos, retain, room)
        self._streams.append(stream)
        return stream

    def _random(self, name: str) -> Random:
        return Random(f"{self._scenario.seed}/{name}")


def _shares(scenario: Scenario) -> dict[Transport, Iterator[bool]]:
    """By way into the network, whether each next device is native.

    Of the kinds with `Transport.ANY`, as many devices use MQTT as the scenario's share needs, in an order
    that the seed determines.
    """
    devices = {transport: 0 for transport in Transport}
    for room in scenario.rooms:
        for kind, count in room.devices:
            devices[scenario.kinds[kind].transport] += count
    if scenario.people:
        devices[scenario.people.transport] += scenario.people.count
    wanted = round(scenario.mqtt * sum(devices.values())) - devices[Transport.MQTT]
    mqtt = min(max(wanted, 0), devices[Transport.ANY])
    any_transport = [False] * mqtt + [True] * (devices[Transport.ANY] - mqtt)
    Random(f"{scenario.seed}/shares").shuffle(any_transport)
    return {
        Transport.NATIVE: iter([True] * devices[Transport.NATIVE]),
        Transport.MQTT: iter([False] * devices[Transport.MQTT]),
        Transport.ANY: iter(any_transport),
    }


def _receivers(clients: tuple[Client, ...], streams: list[Stream]) -> tuple[tuple[int, ...], ...]:
    trie = SubscriptionTrie()
    for client in clients:
        for filter in client.filters:
            trie.insert(filter, client.number)
    excluded = {
        stream.number: client.number for client in clients if client.no_local for stream in client.streams
    }
    return tuple(
        tuple(
            sorted({number for number in trie.matches(stream.topic) if number != excluded.get(stream.number)})
        )
        for stream in streams
    )


def _nothing() -> Iterator[Event]:
    return iter(())
