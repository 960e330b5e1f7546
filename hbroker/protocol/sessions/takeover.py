"""Informs a former run of a client that another run has its session now (§6.4).

The session's link belongs to the later run. So the node sends LEAVE outside of a session, to the former run's
last address, and repeats it, because datagrams are lost. The LEAVE has the session id, so nobody else can
forge it. A former run that receives none of them makes its session again, and so takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import NodeCore
from hbroker.protocol.packets import Address, pack
from hbroker.protocol.timers import SECOND, TimerQueue

__all__ = ["TakeoverNotices"]

_FIRST: Final = SECOND // 100
"""Microseconds until the first LEAVE. By then the later run's address is known."""
_REPEATS: Final = (SECOND // 4, SECOND, 2 * SECOND)
"""Microseconds from each LEAVE to the next."""
_MOST: Final = 10_000


@dataclass(slots=True)
class _FormerLink:
    """The last address of the former run. `repeats`: how many LEAVEs were repeated."""

    address: Address
    rights: int
    repeats: int = 0


class TakeoverNotices:
    """The former runs that are still to be informed."""

    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._former: dict[int, _FormerLink] = {}
        self._due: TimerQueue[int] = TimerQueue()

    def handle_link_down(self, now: int, session: int, address: Address, rights: int) -> None:
        """The first datagram of another run ended the link of the run at `address`, whose rights have this
        key."""
        if len(self._former) < _MOST:
            self._former[session] = _FormerLink(address, rights)
            self._due.set(session, now + _FIRST)

    def handle_link_up(self, session: int, address: Address) -> None:
        """The later run has a link. If it has the former run's address, the former run is gone, and must not
        be informed there."""
        former = self._former.get(session)
        if former is not None and former.address == address:
            self._forget(session)

    def handle_timeout(self, now: int) -> None:
        """Sends each LEAVE that is due."""
        for session in self._due.due(now):
            former = self._former[session]
            leave = pb.Leave(session=session, reason=pb.REASON_SESSION_TAKEN_OVER)
            self._core.send_to(former.address, pack(leave), rights=former.rights)
            if former.repeats < len(_REPEATS):
                self._due.set(session, now + _REPEATS[former.repeats])
                former.repeats += 1
            else:
                self._forget(session)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return self._due.next()

    def _forget(self, session: int) -> None:
        del self._former[session]
        self._due.cancel(session)
