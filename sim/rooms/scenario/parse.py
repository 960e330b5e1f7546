"""Parses a scenario file into a valid `Scenario`, or finds all errors in it."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import yaml

from hbroker._native import filter_is_valid
from hbroker.topology.document import Report as Errors
from hbroker.topology.document import compose

from .kinds import is_level, read_kind
from .ranges import expand, substitute
from .reading import MAX_PAYLOAD, Reader
from .settings import Kind, People, Room, Scenario, Skew, Transport, Update, Watcher

__all__ = ["parse"]

_KEYS: Final = (
    "about", "top", "seed", "speed", "clock", "mqtt",
    "kinds", "rooms", "watchers", "people", "updates", "skew",
)  # fmt: skip
_NOON_S: Final = 43_200.0
MOST_DEVICES: Final = 1_000_000


def parse(text: str, *, file: str = "scenario.yaml", common: tuple[str, str] | None = None) -> Scenario:
    """The scenario. `common`: text and name of a file with kinds that it may use. Raises ConfigErrors."""
    kinds = {} if common is None else _common(*common)
    errors = Errors(file)
    reader = Reader(errors, _document(text, errors), "the file", _KEYS)
    reader.require("top", "rooms")
    kinds |= reader.named("kinds", lambda node, name: read_kind(node, name, errors))
    rooms = [
        room
        for found in reader.list("rooms", lambda n, i: _rooms(n, i, kinds, errors), _ROOM)
        for room in found
    ]
    top = reader.text("top", "top")
    _check_branch(reader, "top", top, top)
    _check_paths(rooms, reader)
    watchers = reader.list(
        "watchers", lambda node, i: _watchers(node, i, errors), "- {name: …, filters: […]}"
    )
    people = _people(reader.at("people"), errors) if "people" in reader else None
    updates = reader.list(
        "updates", lambda node, i: _update(node, i, rooms, errors), "- {at: …, area: …, bytes: …}"
    )
    skew = _skew(reader.at("skew"), rooms, errors) if "skew" in reader else None
    scenario = Scenario(
        name=file.rpartition("/")[2].removesuffix(".yaml"),
        top=top,
        kinds=kinds,
        rooms=tuple(rooms),
        about=reader.text("about"),
        seed=reader.integer("seed", 1, 0, 1 << 53),
        speed=reader.number("speed", 1.0, 0.001, 10_000.0),
        clock_s=reader.clock("clock", _NOON_S),
        mqtt=reader.number("mqtt", 0.0, 0.0, 1.0),
        watchers=tuple(watcher for some in watchers for watcher in some),
        people=people,
        updates=tuple(updates),
        skew=skew,
    )
    if scenario.devices > MOST_DEVICES:
        reader.error("rooms", f"{scenario.devices} devices", f"have {MOST_DEVICES} at most")
    errors.raise_if_any()
    return scenario


_ROOM: Final = "- {path: …, devices: {…}}"


def _document(text: str, errors: Errors) -> yaml.Node:
    node = compose(text, errors)
    errors.raise_if_any()
    assert node is not None, "compose notes an error or returns a node"
    return node


def _common(text: str, file: str) -> dict[str, Kind]:
    errors = Errors(file)
    reader = Reader(errors, _document(text, errors), "the file", ("kinds",))
    kinds = reader.named("kinds", lambda node, name: read_kind(node, name, errors))
    errors.raise_if_any()
    return kinds


def _rooms(node: yaml.Node, number: int, kinds: dict[str, Kind], errors: Errors) -> list[Room]:
    reader = Reader(errors, node, f"room {number}", ("path", "devices"))
    reader.require("path", "devices")

    def read_count(value: yaml.Node, kind: str) -> int:
        if kind not in kinds:
            errors.error(
                value, f"room {number}: no kind {kind!r}", "define it under `kinds`, or fix its name"
            )
        return errors.integer(value, f"room {number}: {kind}", 0, MOST_DEVICES) or 0

    devices = tuple(reader.named("devices", read_count).items())
    return [Room(path, devices) for path in _expanded(reader, "path")]


def _expanded(reader: Reader, key: str) -> list[str]:
    pattern = reader.text(key)
    try:
        names = [name for name, _ in expand(pattern)]
    except ValueError as error:
        reader.error(key, str(error), "write ranges as in `floor-[1-4]`")
        return []
    if pattern:
        _check_branch(reader, key, pattern, names[0])
    return names


def _check_branch(reader: Reader, key: str, text: str, branch: str) -> None:
    """`text`: the branch as the file has it."""
    if not all(map(is_level, branch.split("/"))):
        reader.error(
            key, f"{text!r} is no branch of a topic", "name levels, parted by `/`, without wildcards"
        )


def _check_paths(rooms: list[Room], reader: Reader) -> None:
    """Checks that no room lies inside another: a controller subscribes to everything below its room."""
    for before, after in pairwise(sorted(room.path + "/" for room in rooms)):
        if after.startswith(before):
            remedy = "have every room in one item, and none within another"
            reader.error("rooms", f"{after[:-1]!r} is, or lies in, another room", remedy)


def _watchers(node: yaml.Node, number: int, errors: Errors) -> list[Watcher]:
    reader = Reader(errors, node, f"watcher {number}", ("name", "filters", "qos", "over"))
    reader.require("name", "filters")
    qos, transport = reader.integer("qos", 2, 0, 2), reader.transport("over", Transport.NATIVE)
    found = []
    try:
        for name, numbers in expand(reader.text("name")):
            filters = tuple(substitute(filter, numbers) for filter in reader.texts("filters"))
            found.append(Watcher(name, filters, qos, transport))
    except ValueError as error:
        reader.error(
            "name", str(error), "write ranges as in `floor-[1-4]`, and `$1` for the number in a filter"
        )
    for filter in found[0].filters if found else ():
        if not filter_is_valid(filter):
            reader.error(
                "filters", f"{filter!r} is no topic filter", "write it as MQTT has it, with `+` and `#`"
            )
    return found


def _people(node: yaml.Node, errors: Errors) -> People:
    reader = Reader(errors, node, "people", ("count", "stay", "over"))
    reader.require("count", "stay")
    return People(
        reader.integer("count", 1, 0, MOST_DEVICES),
        reader.number("stay", 600.0, 0.01, 1e9),
        reader.transport("over", Transport.ANY),
    )


def _update(node: yaml.Node, number: int, rooms: list[Room], errors: Errors) -> Update:
    reader = Reader(errors, node, f"update {number}", ("at", "area", "bytes", "kinds"))
    reader.require("at", "area", "bytes")
    area = reader.text("area")
    if area and not any(f"{room.path}/".startswith(f"{area}/") for room in rooms):
        reader.error("area", f"no room is in {area!r}", "name a room, or levels above some")
    return Update(
        reader.number("at", 0.0, 0.0, 1e9),
        area,
        reader.integer("bytes", 1_000_000, 64, MAX_PAYLOAD),
        reader.texts("kinds"),
    )


def _skew(node: yaml.Node, rooms: list[Room], errors: Errors) -> Skew:
    reader = Reader(errors, node, "skew", ("room", "share"))
    reader.require("room", "share")
    room = reader.text("room")
    if room and room not in [room.path for room in rooms]:
        reader.error("room", f"there is no room {room!r}", "name one of `rooms`")
    return Skew(room, reader.number("share", 0.8, 0.001, 0.999))
