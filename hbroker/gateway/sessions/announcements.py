"""What a gateway says of itself to the others, and what it hears of them.

The will that takes back what it says is registered first. So whoever has heard that it is there will hear
that it is gone, too. When it may have been published (the link to its owner was down, or it was heard), the
gateway says that it is there under a higher stamp, which that will does not reach.

What stands under its topic and is not true it writes again; what is not true of a gateway that is gone, the
first of those that are there by rendezvous writes again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hbroker.gateway.connect.wills import registered
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import WillMessage
from hbroker.gateway.outbox import OutboxMessage
from hbroker.gateway.sessions.claims import NEVER, Stamp
from hbroker.gateway.sessions.gateways import Presence, PresenceChange
from hbroker.gateway.sessions.record_authentication import GATEWAYS, last_level, sign, verify
from hbroker.gateway.sessions.startup import PATIENCE
from hbroker.gateway.subscriptions.network_clients import SHARED
from hbroker.protocol.results import WillRefused, WillSet
from hbroker.protocol.timer_queue import TimerQueue, earliest
from hbroker.protocol.timers import SECOND

__all__ = ["Announcements"]

_PAUSE: Final = SECOND // 10
"""After which what is not true is put right, however often it was written meanwhile."""
_EVERY: Final = SECOND
"""Nothing is put right, and no higher stamp taken, again before that: two gateways with one name and
different keys would not let each other be."""


class Announcements:
    """The presence of one gateway."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context
        self._name = context.settings.name
        self._own: Presence | None = None
        """What is true of this gateway, while it takes clients."""
        self._payload = b""
        """How that is written; empty until the will is registered."""
        self._highest = NEVER
        """The highest stamp under its name."""
        self._since_us = 0
        """When the latest other run under its name began, as that one says."""
        self._renewed_at = self._restored_at = -_EVERY
        self._renew_at: int | None = None
        self._wrong: TimerQueue[str] = TimerQueue()
        """Topics under which something stands that is not true."""

    # In

    def announce(self, now: int, listeners: tuple[str, ...]) -> None:
        """Tells the others that this gateway is there, and where it takes clients."""
        clock = self._context.clock
        since_us = max(clock.unix_us(now), self._since_us + 1)
        self._own = Presence(self._name, clock.run, listeners=listeners, since_us=since_us)
        self.renew(now)

    def renew(self, now: int) -> None:
        """Its will may have been published, or what it said be lost: says again that it is there."""
        if self._own is not None and self._renew_at is None:
            self._renew_at = max(now, self._renewed_at + _EVERY)
            self.handle_timeout(now)

    def withdraw(self, now: int) -> None:
        """Tells the others that this gateway takes no clients any more."""
        if self._own is not None:
            payload = self._signed(replace(self._own, is_alive=False))
            self._own, self._renew_at = None, None
            self._enqueue(now, GATEWAYS + self._name, payload)

    def handle_message(self, now: int, topic: str, payload: bytes) -> str | None:
        """What stands under a gateway's topic now. Returns the name of another gateway of which it tells
        something new."""
        body = verify(self._context.key, topic, payload) if payload else None
        presence = None if body is None else Presence.parse(body)
        if presence is None or presence.topic != topic:
            if payload:
                self._context.count("presence_dropped")
            self._contradict(now, topic)
            return None
        if presence.name == self._name:
            self._handle_own_name(now, presence)
            return None
        change = self._context.gateways.take(presence, payload)
        if change is PresenceChange.OLD:
            self._handle_old(now, topic)
        elif change is PresenceChange.TOO_MANY:
            self._context.count("gateways_refused")
        return presence.name if change is PresenceChange.NEW else None

    def handle_will(self, now: int, result: WillSet | WillRefused) -> None:
        """The owner of its topic has the will, or does not take it now; then it goes on being tried."""
        if isinstance(result, WillRefused):
            self._context.count("presence_without_will")
        if self._own is not None:
            self._payload = self._signed(self._own)
            self._enqueue(now, self._own.topic, self._payload)

    def handle_timeout(self, now: int) -> None:
        """Does what is due."""
        if self._renew_at is not None and self._renew_at <= now:
            self._renew_at = None
            self._renew(now)
        for topic in self._wrong.due(now):
            payload = self._truth(topic)
            if payload:
                self._restored_at = now
                self._context.count("presence_restored")
                self._enqueue(now, topic, payload)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return earliest(self._renew_at, self._wrong.next())

    def _renew(self, now: int) -> None:
        own, clock = self._own, self._context.clock
        assert own is not None, "it is planned only while there is one"
        stamp = clock.stamp(now)
        if stamp <= self._highest:
            stamp = Stamp(self._highest.time_us + 1, clock.run)
        self._own = replace(own, stamp=stamp)
        self._highest, self._payload, self._renewed_at = stamp, b"", now
        gone = replace(self._own, is_alive=False, listeners=())
        will = registered(self._message(gone.topic, self._signed(gone)))
        assert will is not None, "a name has 63 bytes at most"
        self._context.network_clients.control(SHARED).set_will(now, will, patience=PATIENCE)
        self._context.network_clients.touch(SHARED)

    def _handle_own_name(self, now: int, presence: Presence) -> None:
        """An earlier run of this gateway, or its will, which came late or is said again, or this run's own.
        Another gateway that began later under the same name is left alone: else the two would never be
        quiet."""
        own = self._own
        if not self._context.gateways.is_self(presence.run):
            self._since_us = max(self._since_us, presence.since_us)
        self._highest = max(self._highest, presence.stamp)
        if own is None or presence.order == own.order:
            return
        if presence.order < own.order:
            self._handle_old(now, presence.topic)
        elif not presence.is_alive or presence.since_us <= own.since_us:
            self.renew(now)

    def _handle_old(self, now: int, topic: str) -> None:
        self._context.count("presence_old")
        self._contradict(now, topic)

    def _contradict(self, now: int, topic: str) -> None:
        if topic not in self._wrong and self._truth(topic):
            self._wrong.set(topic, max(now + _PAUSE, self._restored_at + _EVERY))

    def _truth(self, topic: str) -> bytes | None:
        """What is to stand under a topic, if this gateway is to see to that. Nothing, while another run has
        the name, or the will is not registered yet: then it is said once that is."""
        name = last_level(topic)
        if name != self._name:
            return self._context.gateways.truth(name)
        return self._payload if self._own is not None and self._highest == self._own.stamp else None

    def _signed(self, presence: Presence) -> bytes:
        return sign(self._context.key, presence.topic, presence.body())

    def _message(self, topic: str, payload: bytes) -> WillMessage:
        return WillMessage(topic, payload, qos=1, retain=True)

    def _enqueue(self, now: int, topic: str, payload: bytes) -> None:
        self._context.outbox.enqueue(now, OutboxMessage(self._message(topic, payload), replaces=True))
