"""What the two load processes count, in memory that the measuring process reads while they run.

Each counter has one writer, so none needs a lock. The closed loop is here too: the subscriber gives a credit
for each message that arrived, a batch at a time; the publisher has as many messages under way as it holds
credits. Where messages are lost their credits never come back: a publisher that waits in vain counts a stall,
and starts again with a full window.
"""

from __future__ import annotations

import os
import select
from multiprocessing.sharedctypes import RawArray, RawValue
from typing import Final

__all__ = ["COUNTERS", "Credits", "Tally"]

COUNTERS: Final = (
    "sent",
    "received",
    "acknowledged",
    "duplicated",
    "disordered",
    "corrupted",
    "stalls",
    "refusals",
    "overflows",
    "datagrams_to_broker",
    "datagrams_from_broker",
)
"""`received` counts each message once. `acknowledged`: by the broker, at QoS 1. `corrupted`: not what was
published. `refusals`: the endpoint took no more for now. `overflows`: latencies that there was no room for.
The datagrams are those that carry the messages: the publishers' out, the subscribers' in."""

_INDEX: Final = {name: index for index, name in enumerate(COUNTERS)}
_LATENCIES: Final = 1 << 18


class Tally:
    """Counters by name, and latencies in nanoseconds. Made before the processes that share it are forked."""

    def __init__(self) -> None:
        self._values = RawArray("Q", len(COUNTERS))
        self._latencies = RawArray("Q", _LATENCIES)
        self._latency_count = RawValue("Q", 0)

    def add(self, counter: str, amount: int = 1) -> None:
        """Adds to a counter. Only one process may write each."""
        self._values[_INDEX[counter]] += amount

    def put(self, counter: str, value: int) -> None:
        """Sets a counter. Only one process may write each."""
        self._values[_INDEX[counter]] = value

    def add_latency(self, nanoseconds: int) -> None:
        """Keeps one latency; only the subscriber may."""
        count = self._latency_count.value
        if count == _LATENCIES:
            self.add("overflows")
            return
        self._latencies[count] = max(0, nanoseconds)
        self._latency_count.value = count + 1

    def read(self) -> dict[str, int]:
        """All counters, now."""
        return dict(zip(COUNTERS, self._values, strict=True))

    def latencies(self, start: int = 0) -> list[int]:
        """The latencies from number `start` on, in nanoseconds."""
        return list(self._latencies[start : self._latency_count.value])


class Credits:
    """A counter in the kernel that can be waited for. Made before the processes that share it are forked."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def give(self, count: int) -> None:
        """Adds to the counter."""
        os.eventfd_write(self._fd, count)

    def take(self, timeout_s: float) -> int:
        """Takes all that there is, waiting for the first; 0: none came in time."""
        return os.eventfd_read(self._fd) if self._poll.poll(timeout_s * 1_000) else 0

    def fileno(self) -> int:
        """Readable while there are credits."""
        return self._fd

    def close(self) -> None:
        """Gives the descriptor back. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
