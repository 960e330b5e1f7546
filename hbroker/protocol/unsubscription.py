"""The end of a subscription (§6.3): UNSUBSCRIBE to every owner, and the answers.

An owner whose link goes down has dropped the subscription with it. One that does not answer in time is left
to the end of its session: the application is not kept waiting for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.agenda import Agenda
from hbroker.protocol.core import Core
from hbroker.protocol.outcome import Unsubscribed
from hbroker.protocol.packets import pack
from hbroker.protocol.subscription import Key
from hbroker.protocol.timers import SECOND

__all__ = ["Unsubscriptions"]

_PATIENCE: Final = 2 * SECOND


@dataclass(slots=True, eq=False)
class _Ending:
    """`listener`: whom to tell. `awaited`: the owners that have not answered, by request id."""

    listener: int
    awaited: dict[int, int]


class Unsubscriptions:
    """All subscriptions that are ending."""

    def __init__(self, core: Core, random: Random) -> None:
        self._core = core
        self._random = random
        self._by_request: dict[int, _Ending] = {}
        self._deadlines: Agenda[_Ending] = Agenda()
        self._outcomes: deque[Unsubscribed] = deque()

    def start(self, now: int, listener: int, key: Key, links: Iterable[int]) -> None:
        """Ends `key` in the sessions of `links`, and then says that `listener` is unsubscribed."""
        group, filter = key
        ending = _Ending(listener, {})
        for link in links:
            request = self._random.getrandbits(64) or 1
            if self._core.send(link, pack(pb.Unsubscribe(request=request, filter=filter, group=group))):
                ending.awaited[request] = link
                self._by_request[request] = ending
        self._deadlines.set(ending, now + _PATIENCE)
        self._finish_if_answered(ending)

    def forget(self, link: int, key: Key) -> None:
        """Ends `key` in one session, for nobody who waits."""
        group, filter = key
        request = self._random.getrandbits(64) or 1
        self._core.send(link, pack(pb.Unsubscribe(request=request, filter=filter, group=group)))

    def handle_suback(self, request: int) -> bool:
        """Takes the answer to an UNSUBSCRIBE; False: it answers something else."""
        ending = self._by_request.pop(request, None)
        if ending is None:
            return False
        del ending.awaited[request]
        self._finish_if_answered(ending)
        return True

    def handle_link_down(self, link: int) -> None:
        """The session is gone, and its subscriptions with it."""
        for request, ending in list(self._by_request.items()):
            if ending.awaited[request] == link:
                self.handle_suback(request)

    def handle_timeout(self, now: int) -> None:
        """Waits no longer for those who are silent."""
        for ending in self._deadlines.due(now):
            for request in ending.awaited:
                del self._by_request[request]
            ending.awaited.clear()
            self._finish_if_answered(ending)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return self._deadlines.next()

    def poll_outcome(self) -> Unsubscribed | None:
        """The next that has ended."""
        return self._outcomes.popleft() if self._outcomes else None

    def _finish_if_answered(self, ending: _Ending) -> None:
        if not ending.awaited:
            self._deadlines.cancel(ending)
            self._outcomes.append(Unsubscribed(ending.listener))
