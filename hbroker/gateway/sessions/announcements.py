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
from hbroker.gateway.context import Common
from hbroker.gateway.native_api import WillMessage
from hbroker.gateway.outbox import Letter
from hbroker.gateway.sessions.claims import NEVER, Stamp
from hbroker.gateway.sessions.gateways import Heard, Presence
from hbroker.gateway.sessions.record_authentication import GATEWAYS, last_level, seal, unseal
from hbroker.gateway.sessions.startup import PATIENCE
from hbroker.gateway.subscriptions.network_clients import SHARED
from hbroker.protocol.results import WillRefused, WillSet
from hbroker.protocol.timer_queue import Agenda, earliest
from hbroker.protocol.timers import SECOND

__all__ = ["Announcing"]

_PAUSE: Final = SECOND // 10
"""After which what is not true is put right, however often it was written meanwhile."""
_EVERY: Final = SECOND
"""Nothing is put right, and no higher stamp taken, again before that: two gateways with one name and
different keys would not let each other be."""


class Announcing:
    """The presence of one gateway."""

    def __init__(self, common: Common) -> None:
        self._common = common
        self._name = common.settings.name
        self._own: Presence | None = None
        """What is true of this gateway, while it takes clients."""
        self._said = b""
        """How that is written; empty until the will is registered."""
        self._highest = NEVER
        """The highest stamp under its name."""
        self._since_us = 0
        """When the latest other run under its name began, as that one says."""
        self._renewed_at = self._restored_at = -_EVERY
        self._renew_at: int | None = None
        self._wrong: Agenda[str] = Agenda()
        """Topics under which something stands that is not true."""

    # In

    def announce(self, now: int, listeners: tuple[str, ...]) -> None:
        """Tells the others that this gateway is there, and where it takes clients."""
        clock = self._common.clock
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
            payload = self._sealed(replace(self._own, is_alive=False))
            self._own, self._renew_at = None, None
            self._post(now, GATEWAYS + self._name, payload)

    def handle_message(self, now: int, topic: str, payload: bytes) -> str | None:
        """What stands under a gateway's topic now. Returns the name of another gateway of which it tells
        something new."""
        body = unseal(self._common.key, topic, payload) if payload else None
        presence = None if body is None else Presence.parse(body)
        if presence is None or presence.topic != topic:
            if payload:
                self._common.count("presence_dropped")
            self._contradict(now, topic)
            return None
        if presence.name == self._name:
            self._hear_own_name(now, presence)
            return None
        heard = self._common.gateways.take(presence, payload)
        if heard is Heard.OLD:
            self._hear_old(now, topic)
        elif heard is Heard.TOO_MANY:
            self._common.count("gateways_refused")
        return presence.name if heard is Heard.NEW else None

    def handle_will(self, now: int, outcome: WillSet | WillRefused) -> None:
        """The owner of its topic has the will, or does not take it now; then it goes on being tried."""
        if isinstance(outcome, WillRefused):
            self._common.count("presence_without_will")
        if self._own is not None:
            self._said = self._sealed(self._own)
            self._post(now, self._own.topic, self._said)

    def handle_timeout(self, now: int) -> None:
        """Does what is due."""
        if self._renew_at is not None and self._renew_at <= now:
            self._renew_at = None
            self._renew(now)
        for topic in self._wrong.due(now):
            payload = self._truth(topic)
            if payload:
                self._restored_at = now
                self._common.count("presence_restored")
                self._post(now, topic, payload)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return earliest(self._renew_at, self._wrong.next())

    def _renew(self, now: int) -> None:
        own, clock = self._own, self._common.clock
        assert own is not None, "it is planned only while there is one"
        stamp = clock.stamp(now)
        if stamp <= self._highest:
            stamp = Stamp(self._highest.time_us + 1, clock.run)
        self._own = replace(own, stamp=stamp)
        self._highest, self._said, self._renewed_at = stamp, b"", now
        gone = replace(self._own, is_alive=False, listeners=())
        will = registered(self._message(gone.topic, self._sealed(gone)))
        assert will is not None, "a name has 63 bytes at most"
        self._common.members.control(SHARED).set_will(now, will, patience=PATIENCE)
        self._common.members.touch(SHARED)

    def _hear_own_name(self, now: int, presence: Presence) -> None:
        """An earlier run of this gateway, or its will, which came late or is said again, or this run's own.
        Another gateway that began later under the same name is left alone: else the two would never be
        quiet."""
        own = self._own
        if not self._common.gateways.is_self(presence.run):
            self._since_us = max(self._since_us, presence.since_us)
        self._highest = max(self._highest, presence.stamp)
        if own is None or presence.order == own.order:
            return
        if presence.order < own.order:
            self._hear_old(now, presence.topic)
        elif not presence.is_alive or presence.since_us <= own.since_us:
            self.renew(now)

    def _hear_old(self, now: int, topic: str) -> None:
        self._common.count("presence_old")
        self._contradict(now, topic)

    def _contradict(self, now: int, topic: str) -> None:
        if topic not in self._wrong and self._truth(topic):
            self._wrong.set(topic, max(now + _PAUSE, self._restored_at + _EVERY))

    def _truth(self, topic: str) -> bytes | None:
        """What is to stand under a topic, if this gateway is to see to that. Nothing, while another run has
        the name, or the will is not registered yet: then it is said once that is."""
        name = last_level(topic)
        if name != self._name:
            return self._common.gateways.truth(name)
        return self._said if self._own is not None and self._highest == self._own.stamp else None

    def _sealed(self, presence: Presence) -> bytes:
        return seal(self._common.key, presence.topic, presence.body())

    def _message(self, topic: str, payload: bytes) -> WillMessage:
        return WillMessage(topic, payload, qos=1, retain=True)

    def _post(self, now: int, topic: str, payload: bytes) -> None:
        self._common.outbox.post(now, Letter(self._message(topic, payload), replaces=True))
