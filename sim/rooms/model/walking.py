"""Where a person is: a random walk over the rooms in continuous time.

A person stays for an exponential time, and then goes to another room, each with the same probability. So in
the long run a person is in each room for the same share of the time, whatever the first room was.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

__all__ = ["walk"]


def walk(random: Random, rooms: int, stay_s: float) -> Iterator[tuple[float, int]]:
    """The times at which the person enters a room, and the room; the first time is 0."""
    room = random.randrange(rooms)
    at = 0.0
    while True:
        yield at, room
        at += random.expovariate(1 / stay_s)
        if rooms > 1:
            room = (room + random.randrange(1, rooms)) % rooms
