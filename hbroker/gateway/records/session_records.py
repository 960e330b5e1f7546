"""The records of all sessions: so a session outlives its connection, and the gateway that serves it.

A record is a retained message under `$gateway/sessions/<hash of the client id>`. Every gateway keeps the
payloads of all records, so that it can resume a session without asking the network. A session ends when it
has been offline for its expiry. The gateway that wrote its record ends it; if that gateway is gone, the first
one by rendezvous among the present gateways does so.

Any client of the network may write to the topic, also an earlier payload. So each record has a stamp, higher
than the earlier ones, under the network's key. The end of a session is also published with a stamp, and the
topic is cleared after that. A payload that is older than the known one, or that no gateway wrote, changes
nothing: the gateway that is responsible for the session writes the true one again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from hbroker.gateway.native_api import PACKET_ID_BLOCKS, InFlight, SessionState, SubscribeOptions
from hbroker.gateway.records.client_id_claims import NEVER, Stamp
from hbroker.gateway.records.gateways import GatewayRecords
from hbroker.gateway.records.record_authentication import SESSIONS, client_hash, last_level, verify, within
from hbroker.gateway.records.wills import PendingWill
from hbroker.protocol.sessions.options import LONGEST_EXPIRY_S
from hbroker.protocol.timers import SECOND, TimerQueue

__all__ = [
    "MOST_RECORDS",
    "MOST_SESSION_ENDS",
    "SessionEnd",
    "SessionRecord",
    "SessionRecords",
    "SessionSubscription",
]

MOST_RECORDS: Final = 2_000_000
MOST_SESSION_ENDS: Final = 100_000
"""Ended sessions that are remembered. Of more the first are forgotten."""
_PACKET_IDS: Final = 1 << 16
_WORDS: Final = 1 << 64
_QOS: Final = 3
_IDENTIFIERS: Final = 1 << 28
_AGAIN: Final = 60 * SECOND
"""How often a gateway checks a session that another gateway is to end, in case that one is gone."""


@dataclass(frozen=True, slots=True)
class SessionSubscription:
    """One subscription of a session. `filter`: as the client wrote it, with `$share/group/`."""

    filter: str
    options: SubscribeOptions
    identifier: int = 0


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The record of one session.

    `run`: of the gateway that wrote it. `offline_since_us`: since the Unix epoch; None: the client is
    connected to that gateway. `has_pool_client`: owners hold its subscriptions and messages under a network
    session of its own. `stale_subscriptions`: subscriptions of an earlier session, which CONNACK reported to
    the client as gone. `will`: still to be published. `stamp`: of the client's records the one with the
    highest stamp counts.
    """

    client: str
    gateway: str
    run: int
    expiry_s: int
    offline_since_us: int | None = None
    has_pool_client: bool = False
    subscriptions: tuple[SessionSubscription, ...] = ()
    state: SessionState = field(default_factory=SessionState)
    will: PendingWill | None = None
    stale_subscriptions: tuple[SessionSubscription, ...] = ()
    stamp: Stamp = NEVER

    @property
    def topic(self) -> str:
        """The topic of the record."""
        return SESSIONS + client_hash(self.client)

    @property
    def is_forgotten(self) -> bool:
        """Whether CONNACK reported that there is no session, and the client may not have received it."""
        return bool(self.stale_subscriptions) and not self.subscriptions

    def ends_at_us(self, since_us: int) -> int | None:
        """When the session ends if it has been offline since `since_us`; None: never."""
        return None if self.expiry_s >= LONGEST_EXPIRY_S else since_us + self.expiry_s * SECOND

    def body(self) -> dict[str, Any]:
        """The record as JSON."""
        return {
            "client": self.client,
            "gateway": self.gateway,
            "run": self.run,
            "expiry_s": self.expiry_s,
            "offline_since_us": self.offline_since_us,
            "member": self.has_pool_client,
            "subscriptions": [_entry(subscription) for subscription in self.subscriptions],
            "leftover": [_entry(subscription) for subscription in self.stale_subscriptions],
            "in_flight": [
                [m.packet_id, m.publisher, m.sequence, m.qos, m.is_received] for m in self.state.in_flight
            ],
            "received": list(self.state.received),
            "block": self.state.block,
            "will": None if self.will is None else self.will.body(),
            "stamp": list(self.stamp),
        }

    @classmethod
    def parse(cls, body: dict[str, Any]) -> SessionRecord | None:
        """The inverse of `body`; None: it is something else."""
        try:
            will = None if body["will"] is None else PendingWill.parse(body["will"])
            offline = body["offline_since_us"]
            return cls(
                client=str(body["client"]),
                gateway=str(body["gateway"]),
                run=int(body["run"]),
                expiry_s=within(body["expiry_s"], LONGEST_EXPIRY_S + 1),
                offline_since_us=None if offline is None else int(offline),
                has_pool_client=bool(body["member"]),
                subscriptions=tuple(_subscription(entry) for entry in body["subscriptions"]),
                stale_subscriptions=tuple(_subscription(entry) for entry in body.get("leftover", ())),
                state=SessionState(
                    tuple(_in_flight(entry) for entry in body["in_flight"]),
                    tuple(within(id, _PACKET_IDS) for id in body["received"]),
                    within(body["block"], 2 * PACKET_ID_BLOCKS),
                ),
                will=will,
                stamp=Stamp.parse(body["stamp"]),
            )
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The end of a session: records with a lower stamp do not count."""

    client: str
    stamp: Stamp

    @property
    def topic(self) -> str:
        """The topic of the record that it replaces."""
        return SESSIONS + client_hash(self.client)

    def body(self) -> dict[str, Any]:
        """The end as JSON."""
        return {"client": self.client, "ended": True, "stamp": list(self.stamp)}

    @classmethod
    def parse(cls, body: dict[str, Any]) -> SessionEnd | None:
        """The inverse of `body`; None: it is something else."""
        try:
            return cls(str(body["client"]), Stamp.parse(body["stamp"])) if body["ended"] is True else None
        except (KeyError, TypeError, ValueError):
            return None


def _entry(kept: SessionSubscription) -> list[Any]:
    options = kept.options
    return [kept.filter, options.qos, options.no_local, options.retain_as_published, kept.identifier]


def _subscription(entry: list[Any]) -> SessionSubscription:
    filter, qos, no_local, as_published, identifier = entry
    options = SubscribeOptions(within(qos, _QOS), bool(no_local), bool(as_published), 2)
    return SessionSubscription(str(filter), options, within(identifier, _IDENTIFIERS))


def _in_flight(entry: list[Any]) -> InFlight:
    packet_id, publisher, sequence, qos, is_received = entry
    return InFlight(
        within(packet_id, _PACKET_IDS),
        within(publisher, _WORDS),
        within(sequence, _WORDS),
        within(qos, _QOS),
        bool(is_received),
    )


@dataclass(slots=True)
class _StoredRecord:
    """The payload of a record, with those of its fields that are read often.

    `is_connected_here`: the client is connected to this gateway. `lost_since_us`: when this gateway learned
    that the client's gateway is gone, since the Unix epoch; None: that one is present, or the client was
    offline before.
    """

    payload: bytes
    stamp: Stamp
    gateway: str
    run: int
    expiry_s: int
    is_offline: bool
    is_connected_here: bool
    lost_since_us: int | None = None


class SessionRecords:
    """All persistent sessions, by the hash of their client ids.

    `key`: the join key. `unix_offset_us`: the wall clock less the clock of `now`.
    """

    def __init__(self, key: bytes, gateways: GatewayRecords, unix_offset_us: int) -> None:
        self._key = key
        self._gateways = gateways
        self._unix_offset_us = unix_offset_us
        self._stored: dict[str, _StoredRecord] = {}
        self._ended: OrderedDict[str, tuple[Stamp, bytes]] = OrderedDict()
        """Sessions that have ended: the stamp and the payload of the end."""
        self._due: TimerQueue[str] = TimerQueue()
        self.refused = 0
        """Records for which there was no room."""

    # Change

    def handle_payload(self, now: int, topic: str, payload: bytes) -> bool:
        """Takes the payload that is under a topic now. Returns False if it is not the true one, as far as
        known."""
        hash = last_level(topic)
        if not payload:
            return hash not in self._stored
        found, known = self._read(topic, payload), self.stamp_of(topic)
        if found is None or found.stamp < known:
            return known == NEVER
        if found.stamp == known:
            return True
        if isinstance(found, SessionEnd):
            self.put_end(found, payload)
        else:
            self.put(now, found, topic, payload)
        return True

    def put_end(self, session_end: SessionEnd, payload: bytes) -> None:
        """Takes the end of a session, and its payload."""
        hash = last_level(session_end.topic)
        self._forget(hash)
        self._ended[hash] = session_end.stamp, payload
        self._ended.move_to_end(hash)
        if len(self._ended) > MOST_SESSION_ENDS:
            self._ended.popitem(last=False)

    def put(
        self, now: int, record: SessionRecord, topic: str, payload: bytes, *, is_connected_here: bool = False
    ) -> None:
        """Takes a record, and its payload."""
        hash = last_level(topic)
        if hash not in self._stored and len(self._stored) >= MOST_RECORDS:
            self.refused += 1
            return
        is_offline = record.offline_since_us is not None
        self._ended.pop(hash, None)
        kept = self._stored[hash] = _StoredRecord(
            payload, record.stamp, record.gateway, record.run, record.expiry_s, is_offline, is_connected_here
        )
        self._due.cancel(hash)
        if is_offline:
            self._plan(now, hash, record)
        elif not is_connected_here:
            self._look_for_gateway(now, hash, kept)

    def claimed(self, now: int, client: str) -> None:
        """The client is being connected: nothing is due for its session for a while.

        A later record may follow. Without one, nothing is due earlier than it was.
        """
        hash = client_hash(client)
        due = self._due.at(hash)
        if due is not None:
            self._due.set(hash, max(due, now + _AGAIN))

    def gateway_changed(self, now: int, gateway: str) -> None:
        """A run of a gateway has come or gone. Clients of a run that is gone are offline from now on."""
        for hash, kept in self._stored.items():
            if kept.gateway == gateway and not kept.is_connected_here and not kept.is_offline:
                self._look_for_gateway(now, hash, kept)

    def due(self, now: int) -> Iterator[SessionRecord]:
        """The sessions that have ended or whose will is due, if this gateway is responsible for them.

        Call `put` or `put_end` for each one.
        """
        for hash in self._due.due(now):
            record = self._parse(SESSIONS + hash, self._stored[hash].payload)
            if record is None:
                continue
            if self.is_responsible_for(record):
                yield record
            else:
                self._due.set(hash, now + _AGAIN)

    # Read

    def of(self, client: str) -> SessionRecord | None:
        """The session of this client; None: it has none."""
        topic = SESSIONS + client_hash(client)
        kept = self._stored.get(last_level(topic))
        return None if kept is None else self._parse(topic, kept.payload)

    def stamp_after(self, client: str, stamp: Stamp) -> Stamp:
        """`stamp`, or a higher one if a record with this or a higher stamp is known."""
        known = self.stamp_of(SESSIONS + client_hash(client))
        return stamp if known < stamp else Stamp(known.time_us + 1, stamp.run)

    def correct_payload(self, topic: str) -> tuple[bytes, bool] | None:
        """The payload that should be under a topic, and whether it is the end of the session.

        None: this gateway is not responsible for the session.
        """
        hash = last_level(topic)
        ended = self._ended.get(hash)
        if ended is not None:
            return (ended[1], True) if self._gateways.is_first_for(hash) else None
        kept = self._stored.get(hash)
        record = None if kept is None else self._parse(topic, kept.payload)
        if kept is None or record is None or not (kept.is_connected_here or self.is_responsible_for(record)):
            return None
        return kept.payload, False

    def stamp_of(self, topic: str) -> Stamp:
        """The stamp of the newest known payload of a topic."""
        hash = last_level(topic)
        kept, ended = self._stored.get(hash), self._ended.get(hash)
        return ended[0] if ended is not None else kept.stamp if kept is not None else NEVER

    def is_over(self, topic: str) -> bool:
        """Whether the session is known to have ended."""
        return last_level(topic) in self._ended

    def is_ending(self, topic: str, payload: bytes) -> bool:
        """Whether this payload is still the known end of the session."""
        ended = self._ended.get(last_level(topic))
        return ended is not None and ended[1] == payload

    def client_connected_here(self, topic: str) -> str | None:
        """The client id of a record, if the client is connected to this gateway; otherwise None."""
        kept = self._stored.get(last_level(topic))
        record = self._parse(topic, kept.payload) if kept is not None and kept.is_connected_here else None
        return None if record is None else record.client

    def is_responsible_for(self, record: SessionRecord) -> bool:
        """Whether this gateway is responsible for a session that is offline.

        That is so if it wrote the record, or if the gateway that wrote it is gone and this one is the first
        by rendezvous.
        """
        if self._gateways.is_self(record.run):
            return True
        if self._gateways.is_alive(record.gateway, record.run):
            return False
        return self._gateways.is_first_for(client_hash(record.client))

    def has_ended(self, now: int, record: SessionRecord) -> bool:
        """Whether a session has been offline for its expiry."""
        ends_at_us = self._ends_at_us(client_hash(record.client), record)
        return ends_at_us is not None and ends_at_us <= now + self._unix_offset_us

    def is_will_due(self, now: int, record: SessionRecord) -> bool:
        """Whether the delay of its will is over."""
        return record.will is not None and record.will.due_us <= now + self._unix_offset_us

    def own_records(self) -> Iterator[tuple[str, bytes]]:
        """Topic and payload of all records for which this gateway is responsible."""
        for hash in list(self._stored):
            kept = self._stored.get(hash)
            if kept is None:
                continue
            record = None if kept.is_connected_here else self._parse(SESSIONS + hash, kept.payload)
            if kept.is_connected_here or (record is not None and self.is_responsible_for(record)):
                yield SESSIONS + hash, kept.payload

    def offline(self) -> Iterator[SessionRecord]:
        """The offline sessions for which this gateway is responsible."""
        for hash, kept in list(self._stored.items()):
            record = self._parse(SESSIONS + hash, kept.payload) if kept.is_offline else None
            if record is not None and self.is_responsible_for(record):
                yield record

    def poll_timeout(self) -> int | None:
        """The time of the next session to check; None: there is none."""
        return self._due.next()

    @property
    def offline_count(self) -> int:
        """The number of offline sessions, of all gateways."""
        return sum(kept.is_offline for kept in self._stored.values())

    def __len__(self) -> int:
        return len(self._stored)

    def _look_for_gateway(self, now: int, hash: str, kept: _StoredRecord) -> None:
        """Notes whether the gateway of a connected client is present.

        If it is gone, the client is offline from the time at which this gateway learned that.
        """
        if self._gateways.is_alive(kept.gateway, kept.run):
            kept.lost_since_us = None
            self._due.cancel(hash)
        elif kept.lost_since_us is None:
            kept.lost_since_us = now + self._unix_offset_us
            record = self._parse(SESSIONS + hash, kept.payload)
            if record is not None:
                self._plan(now, hash, record)

    def _plan(self, now: int, hash: str, record: SessionRecord) -> None:
        """Plans the next check of an offline session: when its will is due, or its expiry is over."""
        due_us = [self._ends_at_us(hash, record), record.will.due_us if record.will else None]
        first_us = min((at for at in due_us if at is not None), default=None)
        if first_us is not None:
            self._due.set(hash, max(now, first_us - self._unix_offset_us))

    def _ends_at_us(self, hash: str, record: SessionRecord) -> int | None:
        """When a session ends; None: never, or its client is connected."""
        kept = self._stored.get(hash)
        since_us = record.offline_since_us
        if since_us is None and kept is not None and kept.stamp == record.stamp:
            since_us = kept.lost_since_us
        return None if since_us is None else record.ends_at_us(since_us)

    def _read(self, topic: str, payload: bytes) -> SessionRecord | SessionEnd | None:
        body = verify(self._key, topic, payload)
        found = None if body is None else SessionEnd.parse(body) or SessionRecord.parse(body)
        return found if found is not None and found.topic == topic else None

    def _parse(self, topic: str, payload: bytes) -> SessionRecord | None:
        found = self._read(topic, payload)
        return found if isinstance(found, SessionRecord) else None

    def _forget(self, hash: str) -> None:
        self._stored.pop(hash, None)
        self._due.cancel(hash)
