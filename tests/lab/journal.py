"""What a client under test saw, written down before it goes on, so that `kill -9` takes none of it.

A line is one write(2) to a file opened for appending: what was written is the kernel's, whatever becomes of
the process. Times are microseconds of this machine's monotonic clock, so that all journals agree.
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
    """A publisher is about to publish a message. `number` counts the messages of one publisher program,
    over its restarts, from 0."""

    at: int
    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The PUBACK of a message has come; `sequence`: under which the client published it."""

    at: int
    topic: str
    number: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Received:
    """A subscriber has read a message. `source`: the publisher program's name; `publisher` and `sequence`
    are the message id; `begun_at`: when it was about to be published."""

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
    """A journal to write to; a program that starts again goes on with it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, entry: Entry) -> None:
        """Adds a line. Once this returns it cannot be lost."""
        values = (str(getattr(entry, name)) for name in type(entry).__slots__)
        os.write(self._descriptor, f"{type(entry).__name__} {' '.join(values)}\n".encode())


class Reader:
    """Reads a journal while it is written: what was read once is not read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def news(self) -> Iterator[Entry]:
        """What was added since, the oldest first. No topic or name has a space in it.

        A line that is still being written is left for the next time.
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
    """The time of every journal."""
    return time.monotonic_ns() // 1_000


def _entry(line: str) -> Entry:
    kind, at, topic, number, *rest = line.split()
    if kind == Received.__name__:
        source, *numbers = rest
        return Received(int(at), topic, int(number), source, *map(int, numbers))
    return _KINDS[kind](int(at), topic, int(number), *map(int, rest))
