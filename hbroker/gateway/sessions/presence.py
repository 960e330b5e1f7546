"""The presence of this gateway, which it publishes, and the presence of the others.

The gateway first registers the will that takes its presence back. So every gateway that receives its presence
also learns when it has gone. If the will may have been published (the link to its owner was down, or the will
arrived), the gateway publishes its presence under a higher stamp, which that will does not reach.

If a false payload is written to its topic, the gateway writes the true one again. For a gateway that is gone,
the first one by rendezvous among the present gateways does so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import WillMessage
from hbroker.gateway.network_clients import SHARED
from hbroker.gateway.outbox import OutboxMessage
from hbroker.gateway.records.client_id_claims import NEVER, Stamp
from hbroker.gateway.records.gateways import GatewayRecord, GatewayRecordChange
from hbroker.gateway.records.record_authentication import GATEWAYS, last_level, sign, verify
from hbroker.gateway.records.wills import registered_will
from hbroker.gateway.sessions.startup import OWNER_TIMEOUT
from hbroker.protocol.results import WillRefused, WillSet
from hbroker.protocol.timers import SECOND, TimerQueue, earliest

__all__ = ["GatewayPresence"]

_PAUSE: Final = SECOND // 10
"""Time after which a topic is put right, however often it was written in the meantime."""
_EVERY: Final = SECOND
"""Time between two corrections, and between two higher stamps. Otherwise two gateways with one name and
different keys would correct each other without end."""


class GatewayPresence:
    """The presence of one gateway."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context
        self._name = context.settings.name
        self._own: GatewayRecord | None = None
        """The presence of this gateway while it takes clients; None: it takes none."""
        self._payload = b""
        """The payload of `_own`; empty until the will is registered."""
        self._highest = NEVER
        """The highest stamp under this gateway's name."""
        self._since_us = 0
        """The time at which the latest other run of this name began, according to its presence."""
        self._renewed_at = self._restored_at = -_EVERY
        self._renew_at: int | None = None
        self._to_correct: TimerQueue[str] = TimerQueue()
        """Topics whose payload must be corrected."""

    # In

    def announce(self, now: int, listeners: tuple[str, ...]) -> None:
        """Publishes that this gateway is present, with the URLs of its listeners."""
        clock = self._context.clock
        since_us = max(clock.unix_us(now), self._since_us + 1)
        self._own = GatewayRecord(self._name, clock.run, listeners=listeners, since_us=since_us)
        self.renew(now)

    def renew(self, now: int) -> None:
        """Publishes the presence again: its will may have been published, or the presence may be lost."""
        if self._own is not None and self._renew_at is None:
            self._renew_at = max(now, self._renewed_at + _EVERY)
            self.handle_timeout(now)

    def withdraw(self, now: int) -> None:
        """Publishes that this gateway takes no clients any more."""
        if self._own is not None:
            payload = self._signed(replace(self._own, is_alive=False))
            self._own, self._renew_at = None, None
            self._enqueue(now, GATEWAYS + self._name, payload)

    def handle_message(self, now: int, topic: str, payload: bytes) -> str | None:
        """Handles a message under a gateway's topic.

        Returns the name of the gateway if it is another one and its presence is new; otherwise None.
        """
        body = verify(self._context.key, topic, payload) if payload else None
        record = None if body is None else GatewayRecord.parse(body)
        if record is None or record.topic != topic:
            if payload:
                self._context.count("presence_dropped")
            self._correct_later(now, topic)
            return None
        if record.name == self._name:
            self._handle_own_name(now, record)
            return None
        change = self._context.gateways.update(record, payload)
        if change is GatewayRecordChange.OLD:
            self._handle_old(now, topic)
        elif change is GatewayRecordChange.TOO_MANY:
            self._context.count("gateways_refused")
        return record.name if change is GatewayRecordChange.NEW else None

    def handle_will(self, now: int, result: WillSet | WillRefused) -> None:
        """The owner of the will's topic has the will, or refuses it for now and is asked again. Then the
        presence is published."""
        if isinstance(result, WillRefused):
            self._context.count("presence_without_will")
        if self._own is not None:
            self._payload = self._signed(self._own)
            self._enqueue(now, self._own.topic, self._payload)

    def handle_timeout(self, now: int) -> None:
        """Does everything that is due at `now`."""
        if self._renew_at is not None and self._renew_at <= now:
            self._renew_at = None
            self._renew(now)
        for topic in self._to_correct.due(now):
            payload = self._correct_payload(topic)
            if payload:
                self._restored_at = now
                self._context.count("presence_restored")
                self._enqueue(now, topic, payload)

    # Out

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return earliest(self._renew_at, self._to_correct.next())

    def _renew(self, now: int) -> None:
        own, clock = self._own, self._context.clock
        assert own is not None, "it is planned only while there is one"
        stamp = clock.stamp(now)
        if stamp <= self._highest:
            stamp = Stamp(self._highest.time_us + 1, clock.run)
        self._own = replace(own, stamp=stamp)
        self._highest, self._payload, self._renewed_at = stamp, b"", now
        gone = replace(self._own, is_alive=False, listeners=())
        will = registered_will(self._message(gone.topic, self._signed(gone)))
        assert will is not None, "a name has 63 bytes at most"
        self._context.network_clients.control(SHARED).set_will(now, will, timeout=OWNER_TIMEOUT)
        self._context.network_clients.reschedule(SHARED)

    def _handle_own_name(self, now: int, record: GatewayRecord) -> None:
        """Handles a presence under this gateway's name: of an earlier run, of its will, or of this run.

        If another gateway began later under the same name, this one does nothing. Otherwise the two would
        correct each other without end.
        """
        own = self._own
        if not self._context.gateways.is_self(record.run):
            self._since_us = max(self._since_us, record.since_us)
        self._highest = max(self._highest, record.stamp)
        if own is None or record.rank == own.rank:
            return
        if record.rank < own.rank:
            self._handle_old(now, record.topic)
        elif not record.is_alive or record.since_us <= own.since_us:
            self.renew(now)

    def _handle_old(self, now: int, topic: str) -> None:
        self._context.count("presence_old")
        self._correct_later(now, topic)

    def _correct_later(self, now: int, topic: str) -> None:
        if topic not in self._to_correct and self._correct_payload(topic):
            self._to_correct.set(topic, max(now + _PAUSE, self._restored_at + _EVERY))

    def _correct_payload(self, topic: str) -> bytes | None:
        """The payload that should be under a topic, if this gateway must correct it; otherwise None.

        It is None for the own topic while another run has the name, or while the will is not registered: the
        presence is published after that.
        """
        name = last_level(topic)
        if name != self._name:
            return self._context.gateways.correct_payload(name)
        return self._payload if self._own is not None and self._highest == self._own.stamp else None

    def _signed(self, record: GatewayRecord) -> bytes:
        return sign(self._context.key, record.topic, record.body())

    def _message(self, topic: str, payload: bytes) -> WillMessage:
        return WillMessage(topic, payload, qos=1, retain=True)

    def _enqueue(self, now: int, topic: str, payload: bytes) -> None:
        self._context.outbox.enqueue(now, OutboxMessage(self._message(topic, payload), replaces=True))
