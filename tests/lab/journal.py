"""The journal of a client under test. It is written before the client continues, so that `kill -9` loses no
entry.

A line is one write(2) to a file opened for appending: the kernel has it, whatever happens to the process.
Times are microseconds of the machine's monotonic clock, so that all journals agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Acknowledged", "Begun", "Journal", "Reader", "Received", "now"]


@dataclass(frozen=True, slots=True)
class Begun:
    """A publisher is about to publish a message. `number` counts the messages of one publisher program
    from 0, over its restarts."""

    at: int
    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The PUBACK of a message was received. `sequence`: the sequence number that the client gave the
    message."""

    at: int
    topic: str
    number: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Received:
    """A subscriber has read a message. `source`: the name of the publisher program. `publisher` and
    `sequence`: the message id. `begun_at`: the time before it was published."""

    at: int
    topic: str
    number: int
    source: str
    publisher: int
    sequence: int
    begun_at: int


Entry = Begun | Acknowledged | Received
_KINDS: dict[str, Callable[..., Entry]] = {kind.__name__: kind for kind in (Begun, Acknowledged)}


class Journal:
    """A journal for writing. A program that restarts appends to it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, entry: Entry) -> None:
        """Adds a line. It cannot be lost after this call."""
        values = (str(getattr(entry, name)) for name in type(entry).__slots__)
        os.write(self._descriptor, f"{type(entry).__name__} {' '.join(values)}\n".encode())


class Reader:
    """Reads a journal while it is being written. Each entry is returned once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_entries(self) -> Iterator[Entry]:
        """The new entries, oldest first. No topic or name contains a space.

        An incomplete line is left for the next call.
        """
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield _entry(line.decode())


def now() -> int:
    """The clock of every journal."""
    return time.monotonic_ns() // 1_000


def _entry(line: str) -> Entry:
    kind, at, topic, number, *rest = line.split()
    if kind == Received.__name__:
        source, *numbers = rest
        return Received(int(at), topic, int(number), source, *map(int, numbers))
    return _KINDS[kind](int(at), topic, int(number), *map(int, rest))
