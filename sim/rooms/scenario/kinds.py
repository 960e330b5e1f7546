"""The section `kinds`: what devices of one kind do.

The pattern of a report follows from its key: `every` (periodic), `per_hour` (a Poisson process) or
`frames_per_s` (a camera).
"""

from __future__ import annotations

from typing import Final

import yaml

from hbroker.topology.document import Report as Errors

from .reading import Reader
from .settings import (
    Absence,
    Burst,
    Command,
    Frames,
    Kind,
    Pattern,
    Periodic,
    Poisson,
    Report,
    Size,
    Transport,
    Value,
)

__all__ = ["is_level", "read_kind"]

_KIND_KEYS: Final = ("reports", "commands", "sleeps", "flaps", "over")
_PERIODIC: Final = ("every", "jitter", "drift_ppm", "aligned")
_POISSON: Final = ("per_hour", "at_night", "burst")
_FRAMES: Final = ("frames_per_s", "key_every")
_REPORT_KEYS: Final = (*_PERIODIC, *_POISSON, *_FRAMES, "bytes", "qos", "retain", "value")
_COMMAND_KEYS: Final = (*_PERIODIC, *_POISSON, "answer", "qos")
_SIZE: Final = Size(8, 8)
_FRAME_SIZE: Final = Size(5_000, 60_000)
_YEAR_S: Final = 31_536_000.0


def read_kind(node: yaml.Node, name: str, errors: Errors) -> Kind:
    """Reads one kind. Adds its errors to `errors`."""
    reader = Reader(errors, node, f"kind {name!r}", _KIND_KEYS)
    if not is_level(name):
        errors.error(node, f"{name!r} cannot be a level of a topic", "name it without `/`, `+`, `#` and `$`")
    reports = tuple(reader.named("reports", lambda value, leaf: _report(value, leaf, name, errors)).values())
    commands = tuple(
        reader.named("commands", lambda value, leaf: _command(value, leaf, name, errors)).values()
    )
    absence = _absence(reader, errors)
    if not reports and not commands:
        reader.error("reports", "it says nothing", "add `reports` or `commands`")
    if absence and commands:
        reader.error(
            "commands", "a device that is offline obeys no command", "take `commands` or the absence out"
        )
    return Kind(name, reports, commands, absence, reader.transport("over", Transport.ANY))


def is_level(text: str) -> bool:
    """Whether a text can be one topic level below a scenario's top."""
    return bool(text) and not set(text) & set("/+#$") and text.isprintable()


def _report(node: yaml.Node, leaf: str, kind: str, errors: Errors) -> Report:
    reader = Reader(errors, node, f"kind {kind!r}: report {leaf!r}", _REPORT_KEYS)
    pattern = _pattern(reader, errors)
    size = reader.size("bytes", _FRAME_SIZE if isinstance(pattern, Frames) else _SIZE)
    value = _value(reader, errors) if "value" in reader else None
    return Report(leaf, pattern, size, reader.integer("qos", 0, 0, 2), reader.truth("retain"), value)


def _command(node: yaml.Node, leaf: str, kind: str, errors: Errors) -> Command:
    reader = Reader(errors, node, f"kind {kind!r}: command {leaf!r}", _COMMAND_KEYS)
    pattern = _pattern(reader, errors)
    assert not isinstance(pattern, Frames), "its keys are not a command's"
    answer = reader.text("answer", "state")
    if answer == leaf:
        reader.error("answer", "the answer would be a command", "answer on another leaf")
    return Command(leaf, answer, pattern, reader.integer("qos", 1, 0, 2))


def _pattern(reader: Reader, errors: Errors) -> Pattern:
    pattern_keys = [key for key in ("every", "per_hour", "frames_per_s") if key in reader]
    if len(pattern_keys) != 1:
        state = "no pattern" if not pattern_keys else f"several patterns, {' and '.join(pattern_keys)}"
        reader.error("", f"it has {state}", "give it one of `every`, `per_hour` and `frames_per_s`")
        return Periodic(1.0)
    (first,) = pattern_keys
    groups = {"every": _PERIODIC, "per_hour": _POISSON, "frames_per_s": _FRAMES}
    for key in {*_PERIODIC, *_POISSON, *_FRAMES}.difference(groups[first]):
        if key in reader:
            reader.error(key, f"`{key}` does not go with `{first}`", f"remove it, or `{first}`")
    if first == "every":
        return Periodic(
            reader.number("every", 1.0, 0.001, _YEAR_S),
            reader.number("jitter", 0.0, 0.0, 0.5),
            reader.number("drift_ppm", 0.0, 0.0, 10_000.0),
            reader.truth("aligned"),
        )
    if first == "frames_per_s":
        return Frames(
            reader.number("frames_per_s", 10.0, 0.001, 1_000.0), reader.integer("key_every", 10, 1, 10_000)
        )
    burst = _burst(reader, errors) if "burst" in reader else None
    return Poisson(
        reader.number("per_hour", 1.0, 1e-6, 3.6e6), reader.number("at_night", 1.0, 0.0, 100.0), burst
    )


def _burst(reader: Reader, errors: Errors) -> Burst:
    inner = Reader(errors, reader.at("burst"), f"{reader.label}: burst", ("size", "every"))
    inner.require("size", "every")
    return Burst(inner.number("size", 1.0, 1.0, 1e6), inner.number("every", 1.0, 1e-6, _YEAR_S))


def _value(reader: Reader, errors: Errors) -> Value:
    inner = Reader(errors, reader.at("value"), f"{reader.label}: value", ("usual", "step"))
    inner.require("usual", "step")
    return Value(inner.number("usual", 0.0, -1e9, 1e9), inner.number("step", 1.0, 0.0, 1e9))


def _absence(reader: Reader, errors: Errors) -> Absence | None:
    absence_keys = [key for key in ("sleeps", "flaps") if key in reader]
    if not absence_keys:
        return None
    if len(absence_keys) == 2:
        reader.error("flaps", "it sleeps and flaps", "keep one of `sleeps` and `flaps`")
    inner = Reader(errors, reader.at(absence_keys[0]), f"{reader.label}: {absence_keys[0]}", ("up", "down"))
    inner.require("up", "down")
    up, down = (inner.number(key, 1.0, 0.01, _YEAR_S) for key in ("up", "down"))
    return Absence(up, down, is_abrupt=absence_keys[0] == "flaps")
