"""Converts mosquitto's files of passwords and access rules (mosquitto_passwd(1), mosquitto.conf(5)).

Both have the same form here, so their lines are kept. A line is left out, and reported, only if mosquitto
does not use it, or if it means something else here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hbroker.errors import ConfigErrors
from hbroker.gateway.access import acl_file, password_file
from hbroker.mosquitto.conf_file import Line
from hbroker.mosquitto.outcome import Report
from hbroker.topology.document import read_text

__all__ = ["Converted", "passwords", "rules"]

_NAMES: Final = ("%c", "%u")


@dataclass(frozen=True, slots=True)
class Converted:
    """The text of a file. `count`: how many users or rules it has."""

    text: str
    count: int


def passwords(line: Line, report: Report) -> Converted:
    """The users of the file that a line names. Raises ConfigErrors if it cannot be read."""
    kept: list[str] = []
    users: set[str] = set()
    for number, text in enumerate(read_text(Path(line.value)).splitlines(), 1):
        entry = Line("user", text.strip(), line.value, number)
        if not entry.value or entry.value.startswith("#"):
            continue
        user = entry.value.partition(":")[0]
        try:
            password_file.parse(entry.value, line.value)
        except ConfigErrors:
            report.missing(entry, f"{user!r} has no hash of a password: set one with `hbroker passwd`")
            continue
        if user in users:
            report.missing(entry, f"{user!r} has a second password: the first one counts")
            continue
        users.add(user)
        kept.append(entry.value)
    report.converted(line, f"{len(kept)} users, with their passwords")
    return Converted("".join(f"{entry}\n" for entry in kept), len(kept))


def rules(line: Line, report: Report) -> Converted:
    """The rules of the file that a line names. Raises ConfigErrors if it cannot be read, or has an error,
    with which mosquitto does not start."""
    text = read_text(Path(line.value))
    kept: list[str] = []
    count = 0
    for number, written in enumerate(text.splitlines(), 1):
        entry = Line(written.strip().partition(" ")[0], written.strip(), line.value, number)
        if entry.option == "topic" and any(name in entry.value for name in _NAMES):
            report.missing(
                entry, "left out: a `topic` does not know %c and %u. Write `pattern`, if you meant it"
            )
            continue
        count += entry.option in ("topic", "pattern")
        kept.append(written)
        _note(entry, report)
    converted = "".join(f"{entry}\n" for entry in kept)
    acl_file.parse(converted, line.value)
    report.converted(line, f"{count} rules, word for word")
    return Converted(converted, count)


def _note(entry: Line, report: Report) -> None:
    """Reports a rule that does not allow here what it allows there."""
    if entry.option == "pattern" and any(name in entry.value for name in _NAMES):
        text = "kept. A client id or user name that holds `/` gets nothing by it here"
        if not any(o.text == text for o in report.outcomes):
            report.missing(entry, text)
    filter = entry.value.rpartition(" ")[2]
    is_own = filter.startswith("$") and not filter.startswith("$SYS/")
    if entry.option in ("topic", "pattern") and is_own:
        report.missing(
            entry, "kept. Topics that begin with `$` belong to the network: clients read `$SYS` alone"
        )
