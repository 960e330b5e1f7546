"""The end of a subscription (§6.3): UNSUBSCRIBE to every owner, and the answers.

If the link to an owner ends, the owner has ended the subscription, too. If an owner does not answer in time,
the application does not wait for it any longer.

If the client leaves a shared group, an owner that has not received the UNSUBSCRIBE sends messages that are
for another member (§6.5). So the core acknowledges no message without a listener, from before the listener is
removed until each owner has answered, or its link has ended.

A subscription may be moving from owner to owner when it ends (§5.4). Then an owner may take it over that got
no UNSUBSCRIBE. In a session that is not persistent, the client ends every subscription that it does not want
now. In a persistent session an earlier run may have made others. So this client remembers which subscriptions
it has ended, and ends only these again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import ClientCore
from hbroker.protocol.packets import pack
from hbroker.protocol.results import Result, Unsubscribed
from hbroker.protocol.subscriptions.client.options import Key
from hbroker.protocol.timer_queue import TimerQueue
from hbroker.protocol.timers import SECOND

__all__ = ["UnsubscribeRequests"]

_PATIENCE: Final = 2 * SECOND
_MOST_REMEMBERED: Final = 4_096
"""The most subscriptions that are remembered as ended: the latest."""


@dataclass(slots=True, eq=False)
class _PendingUnsubscribe:
    """`listener`: whose `Unsubscribed` follows; None: nobody's, or it has followed. `awaited`: the links of
    the owners that have not answered, by request."""

    listener: int | None
    is_shared: bool
    awaited: dict[int, int] = field(default_factory=dict)


class UnsubscribeRequests:
    """All subscriptions that are being ended. `tell`: called with each outcome."""

    __slots__ = ("_by_request", "_core", "_deadlines", "_ended", "_leaving", "_random", "_tell")

    def __init__(self, core: ClientCore, random: Random, tell: Callable[[Result], None]) -> None:
        self._core = core
        self._random = random
        self._by_request: dict[int, _PendingUnsubscribe] = {}
        self._deadlines: TimerQueue[_PendingUnsubscribe] = TimerQueue()
        self._tell = tell
        self._leaving = 0
        """The number of open requests about shared groups."""
        self._ended: dict[Key, None] = {}

    def prepare(self, key: Key) -> None:
        """A listener of `key` is about to be removed. `start` or `forget` follows."""
        group, _ = key
        if group:
            self._core.set_leaving(True)

    def remember(self, key: Key) -> None:
        """The last listener of `key` was removed, and no owner may keep the subscription."""
        self._ended[key] = None
        if len(self._ended) > _MOST_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def revoke(self, key: Key) -> None:
        """The client wants `key` again."""
        self._ended.pop(key, None)

    def has_ended(self, key: Key) -> bool:
        """Whether this run has ended `key`, and does not want it again."""
        return key in self._ended

    def start(self, now: int, listener: int, key: Key, links: Iterable[int]) -> None:
        """Ends `key` in the sessions of `links`. `Unsubscribed` for `listener` follows."""
        pending = self._send(listener, key, links)
        self._deadlines.set(pending, now + _PATIENCE)
        self._finish_if_answered(pending)

    def forget(self, key: Key, links: Iterable[int]) -> None:
        """Ends `key` in the sessions of `links`, without an outcome."""
        self._finish_if_answered(self._send(None, key, links))

    def handle_suback(self, request: int) -> bool:
        """Handles the answer to an UNSUBSCRIBE. False: it answers something else."""
        pending = self._by_request.pop(request, None)
        if pending is None:
            return False
        del pending.awaited[request]
        self._leaving -= pending.is_shared
        self._finish_if_answered(pending)
        return True

    def handle_link_down(self, link: int) -> None:
        """The link ended, and with it the subscriptions of the session."""
        for request, pending in list(self._by_request.items()):
            if pending.awaited[request] == link:
                self.handle_suback(request)

    def handle_timeout(self, now: int) -> None:
        """Reports the outcomes that silent owners have delayed for too long."""
        for pending in self._deadlines.due(now):
            self._say(pending)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return self._deadlines.next()

    def _send(self, listener: int | None, key: Key, links: Iterable[int]) -> _PendingUnsubscribe:
        group, filter = key
        pending = _PendingUnsubscribe(listener, bool(group))
        for link in links:
            request = self._random.getrandbits(64) or 1
            if self._core.send(link, pack(pb.Unsubscribe(request=request, filter=filter, group=group))):
                pending.awaited[request] = link
                self._by_request[request] = pending
                self._leaving += pending.is_shared
        return pending

    def _finish_if_answered(self, pending: _PendingUnsubscribe) -> None:
        if not pending.awaited:
            self._deadlines.cancel(pending)
            self._say(pending)
        if pending.is_shared:
            self._core.set_leaving(self._leaving > 0)

    def _say(self, pending: _PendingUnsubscribe) -> None:
        listener, pending.listener = pending.listener, None
        if listener is not None:
            self._tell(Unsubscribed(listener))
