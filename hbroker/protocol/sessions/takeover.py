"""Telling a client that another run of it has its session now (§6.4).

Its link is the later run's. So it is told outside of a session, at its last address, and as that may be lost
several times over. Only who knows the session id can tell it so. A client that heard nothing makes its
session again, and takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import NodeCore
from hbroker.protocol.packets import Address, pack
from hbroker.protocol.timer_queue import TimerQueue
from hbroker.protocol.timers import SECOND

__all__ = ["Takeovers"]

_FIRST: Final = SECOND // 100
"""Until the first word: by then it is known where the later run is."""
_REPEATS: Final = (SECOND // 4, SECOND, 2 * SECOND)
"""After the first word, and after each other."""
_MOST: Final = 10_000


@dataclass(slots=True)
class _FormerLink:
    """Where the former run was. `repeats`: how often."""

    address: Address
    repeats: int = 0


class Takeovers:
    """The former runs that are still to be told."""

    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._former: dict[int, _FormerLink] = {}
        self._due: TimerQueue[int] = TimerQueue()

    def handle_link_down(self, now: int, session: int, address: Address) -> None:
        """Another run's first datagram ended the link of the run that was at `address`."""
        if len(self._former) < _MOST:
            self._former[session] = _FormerLink(address)
            self._due.set(session, now + _FIRST)

    def handle_link_up(self, session: int, address: Address) -> None:
        """The later run is here. One at the same address, which the former has left, must not be told."""
        former = self._former.get(session)
        if former is not None and former.address == address:
            self._forget(session)

    def handle_timeout(self, now: int) -> None:
        """Tells those whose turn it is."""
        for session in self._due.due(now):
            former = self._former[session]
            leave = pb.Leave(session=session, reason=pb.REASON_SESSION_TAKEN_OVER)
            self._core.send_to(former.address, pack(leave))
            if former.repeats < len(_REPEATS):
                self._due.set(session, now + _REPEATS[former.repeats])
                former.repeats += 1
            else:
                self._forget(session)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return self._due.next()

    def _forget(self, session: int) -> None:
        del self._former[session]
        self._due.cancel(session)
