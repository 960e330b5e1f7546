"""What the publisher, the subscriber and the measurement report to each other, in memory that all three
share.

Messages are numbered, so that the subscriber detects missing, duplicated and late ones. The publisher has a
*window*: it is never further ahead of the subscriber, so that both run at the speed of the slower one, and no
message need be dropped. This code is the same for every library, and costs little (`own_cost_us`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from enum import IntEnum, unique
from multiprocessing.sharedctypes import RawArray
from struct import Struct
from typing import Any, Final, TypeAlias

Board: TypeAlias = Any
"""An array of 64-bit numbers, one for each `Field`. (`multiprocessing` has no better type for it.)"""

BURST: Final = 256
"""Messages that a publisher sends between two checks of the window."""
PAYLOAD_BYTES: Final = 64

_PAYLOAD: Final = Struct(f"<Q{PAYLOAD_BYTES - 8}s")
_FILLER: Final = bytes(range(PAYLOAD_BYTES - 8))
_PAUSE_S: Final = 0.001
_GLANCE_S: Final = 0.05
_LAST_S: Final = 5.0
"""Seconds for the last message to arrive after it was sent."""


@unique
class Field(IntEnum):
    """The fields of a board. Each has one writer."""

    IS_OVER = 0
    """Written by the measurement: stop publishing."""
    PUBLISHED = 1
    HAS_PUBLISHED = 2
    """Written by the publisher: it has sent all."""
    IS_SUBSCRIBED = 3
    DELIVERED = 4
    """One more than the highest number that has arrived. A number below it that is missing is lost."""
    LOST = 5
    DUPLICATED = 6
    DISORDERED = 7
    DAMAGED = 8


def new_board() -> Board:
    """A board whose fields are all 0."""
    return RawArray("Q", len(Field))


class Pace:
    """The publisher's end: what to send next, and when. `window`: messages in flight, in whole bursts."""

    def __init__(self, board: Board, window: int) -> None:
        self._board = board
        self._window = window

    def bursts(self) -> Iterator[list[bytes]]:
        """The payloads to publish at once, until the end. It sleeps while the window is full."""
        while not self._board[Field.IS_OVER]:
            if burst := self._burst():
                yield burst
            else:
                time.sleep(_PAUSE_S)

    async def bursts_in_turn(self) -> AsyncIterator[list[bytes]]:
        """The same for an event loop, which runs once after each burst."""
        while not self._board[Field.IS_OVER]:
            if burst := self._burst():
                yield burst
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(_PAUSE_S)

    def finish(self) -> None:
        """Reports that all is sent."""
        self._board[Field.HAS_PUBLISHED] = 1

    def _burst(self) -> list[bytes]:
        first = self._board[Field.PUBLISHED]
        if first + BURST > self._board[Field.DELIVERED] + self._window:
            return []
        self._board[Field.PUBLISHED] = first + BURST
        return [_PAYLOAD.pack(number, _FILLER) for number in range(first, first + BURST)]


class ReceiveChecker:
    """The subscriber's end: checks the messages that arrive."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._next = 0
        self._missing: set[int] = set()

    def begin(self) -> None:
        """Reports that messages can come."""
        self._board[Field.IS_SUBSCRIBED] = 1

    def take(self, payload: bytes | bytearray) -> None:
        """Counts a message, and checks whether it is the next one."""
        number, filler = _PAYLOAD.unpack(payload)
        if number != self._next:
            self._take_odd(number)
            return
        if filler != _FILLER:
            self._board[Field.DAMAGED] += 1
        self._next = self._board[Field.DELIVERED] = number + 1

    def wait(self) -> None:
        """Returns when every message has arrived, or the wait for the last ones has timed out."""
        for _ in self._glances():
            time.sleep(_GLANCE_S)

    async def wait_in_turn(self) -> None:
        """The same for an event loop."""
        for _ in self._glances():
            await asyncio.sleep(_GLANCE_S)

    def _glances(self) -> Iterator[None]:
        while not self._board[Field.HAS_PUBLISHED]:
            yield
        deadline = time.monotonic() + _LAST_S
        while time.monotonic() < deadline and (self._missing or self._next < self._board[Field.PUBLISHED]):
            yield
        self._board[Field.LOST] = len(self._missing) + self._board[Field.PUBLISHED] - self._next

    def _take_odd(self, number: int) -> None:
        if number in self._missing:
            self._missing.remove(number)
            self._board[Field.DISORDERED] += 1
        elif number < self._next:
            self._board[Field.DUPLICATED] += 1
        else:
            self._missing.update(range(self._next, number))
            self._next = self._board[Field.DELIVERED] = number + 1


def own_cost_us() -> tuple[float, float]:
    """The CPU time in microseconds that numbering and checking a message takes at the two ends, with any
    library."""
    board = new_board()
    pace, checker = Pace(board, _OWN_MESSAGES), ReceiveChecker(board)
    began = time.thread_time()
    payloads = [payload for _ in range(_OWN_MESSAGES // BURST) for payload in pace._burst()]
    published = time.thread_time()
    for payload in payloads:
        checker.take(payload)
    taken = time.thread_time()
    return 1e6 * (published - began) / len(payloads), 1e6 * (taken - published) / len(payloads)


_OWN_MESSAGES: Final = 200 * BURST
