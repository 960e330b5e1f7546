"""What a session is while no gateway speaks for it, and while one does, in case that dies.

A record is a retained message under `$gateway/sessions/<hash of the client id>`. Every gateway keeps all of
them, as the bytes that came, so that a client that comes back is answered without a question to the
network. A session that has been away for its expiry ends: the gateway that wrote its record ends it, or, if
that one is gone, the first by rendezvous of those that are there.

Anyone may write to the topic, and say again what stood there before. So each record has a stamp, higher than
those before it, under the network's key; that a session has ended is said in the same way, and only then is
the topic cleared. Nothing that is older than what is known here, or that no gateway wrote, changes anything:
the gateway that sees to the session writes again what is true.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from hbroker.gateway.connect.wills import PendingWill
from hbroker.gateway.native_api import PACKET_ID_BLOCKS, InFlight, SessionState, SubscribeOptions
from hbroker.gateway.sessions.claims import NEVER, Stamp
from hbroker.gateway.sessions.gateways import Gateways
from hbroker.gateway.sessions.record_authentication import SESSIONS, client_hash, last_level, verify, within
from hbroker.protocol.sessions.options import LONGEST_EXPIRY_S
from hbroker.protocol.timer_queue import TimerQueue
from hbroker.protocol.timers import SECOND

__all__ = ["MOST_ENDINGS", "MOST_RECORDS", "Ending", "Record", "Records", "SessionSubscription"]

MOST_RECORDS: Final = 2_000_000
MOST_ENDINGS: Final = 100_000
"""Sessions of which it is remembered that they have ended; of more the first are forgotten."""
_PACKET_IDS: Final = 1 << 16
_WORDS: Final = 1 << 64
_QOS: Final = 3
_IDENTIFIERS: Final = 1 << 28
_AGAIN: Final = 60 * SECOND
"""How often a session that another gateway is to end is looked at: that one may be gone by then."""


@dataclass(frozen=True, slots=True)
class SessionSubscription:
    """One subscription of a session. `filter`: as the client wrote it, `$share/group/` included."""

    filter: str
    options: SubscribeOptions
    identifier: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One session, as all gateways know it.

    `run`: of the gateway that wrote it. `away_since_us`: since the Unix epoch; None: that gateway has its
    client. `has_member`: owners hold its subscriptions and messages under a session of its own. `leftover`:
    of a session before, which its client was told is gone. `will`: what is to be published yet.
    `stamp`: of the client's records the highest counts.
    """

    client: str
    gateway: str
    run: int
    expiry_s: int
    away_since_us: int | None = None
    has_member: bool = False
    subscriptions: tuple[SessionSubscription, ...] = ()
    state: SessionState = field(default_factory=SessionState)
    will: PendingWill | None = None
    leftover: tuple[SessionSubscription, ...] = ()
    stamp: Stamp = NEVER

    @property
    def topic(self) -> str:
        """Where it is kept."""
        return SESSIONS + client_hash(self.client)

    @property
    def is_forgotten(self) -> bool:
        """Whether its client was told that it has no session, and may not have heard it."""
        return bool(self.leftover) and not self.subscriptions

    def ends_at_us(self, since_us: int) -> int | None:
        """When it ends, if its client went away at `since_us`; None: never."""
        return None if self.expiry_s >= LONGEST_EXPIRY_S else since_us + self.expiry_s * SECOND

    def body(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "client": self.client,
            "gateway": self.gateway,
            "run": self.run,
            "expiry_s": self.expiry_s,
            "away_since_us": self.away_since_us,
            "member": self.has_member,
            "subscriptions": [_entry(subscription) for subscription in self.subscriptions],
            "leftover": [_entry(subscription) for subscription in self.leftover],
            "in_flight": [
                [m.packet_id, m.publisher, m.sequence, m.qos, m.is_received] for m in self.state.in_flight
            ],
            "received": list(self.state.received),
            "block": self.state.block,
            "will": None if self.will is None else self.will.body(),
            "stamp": list(self.stamp),
        }

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Record | None:
        """What `body` made; None: it is something else."""
        try:
            will = None if body["will"] is None else PendingWill.parse(body["will"])
            away = body["away_since_us"]
            return cls(
                client=str(body["client"]),
                gateway=str(body["gateway"]),
                run=int(body["run"]),
                expiry_s=within(body["expiry_s"], LONGEST_EXPIRY_S + 1),
                away_since_us=None if away is None else int(away),
                has_member=bool(body["member"]),
                subscriptions=tuple(_subscription(entry) for entry in body["subscriptions"]),
                leftover=tuple(_subscription(entry) for entry in body.get("leftover", ())),
                state=SessionState(
                    tuple(_in_flight(entry) for entry in body["in_flight"]),
                    tuple(within(id, _PACKET_IDS) for id in body["received"]),
                    within(body["block"], PACKET_ID_BLOCKS),
                ),
                will=will,
                stamp=Stamp.parse(body["stamp"]),
            )
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Ending:
    """A session has ended: no record with a lower stamp counts."""

    client: str
    stamp: Stamp

    @property
    def topic(self) -> str:
        """Where it is said."""
        return SESSIONS + client_hash(self.client)

    def body(self) -> dict[str, Any]:
        """As it travels."""
        return {"client": self.client, "ended": True, "stamp": list(self.stamp)}

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Ending | None:
        """What `body` made; None: it is something else."""
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
    """A record as it came, and what of it is asked often.

    `is_here`: this gateway has the client. `lost_since_us`: when it was learned that the gateway which had
    the client is gone, since the Unix epoch; None: it is there, or the client had gone before.
    """

    payload: bytes
    stamp: Stamp
    gateway: str
    run: int
    expiry_s: int
    is_away: bool
    is_here: bool
    lost_since_us: int | None = None


class Records:
    """All sessions that outlive their connections, by the hash of their client ids.

    `key`: the network's. `unix_offset_us`: what the wall clock has more than `now`.
    """

    def __init__(self, key: bytes, gateways: Gateways, unix_offset_us: int) -> None:
        self._key = key
        self._gateways = gateways
        self._unix_offset_us = unix_offset_us
        self._kept: dict[str, _StoredRecord] = {}
        self._ended: OrderedDict[str, tuple[Stamp, bytes]] = OrderedDict()
        """Those that are known to have ended: when, and how that was said."""
        self._due: TimerQueue[str] = TimerQueue()
        self.refused = 0
        """Records for which there was no room."""

    # Change

    def take(self, now: int, topic: str, payload: bytes) -> bool:
        """What stands under a topic now. False: not what is true, as far as is known here."""
        hash = last_level(topic)
        if not payload:
            return hash not in self._kept
        found, known = self._read(topic, payload), self.stamp_of(topic)
        if found is None or found.stamp < known:
            return known == NEVER
        if found.stamp == known:
            return True
        if isinstance(found, Ending):
            self.bury(found, payload)
        else:
            self.keep(now, found, topic, payload)
        return True

    def bury(self, ending: Ending, payload: bytes) -> None:
        """A session has ended, and how that is said."""
        hash = last_level(ending.topic)
        self._forget(hash)
        self._ended[hash] = ending.stamp, payload
        self._ended.move_to_end(hash)
        if len(self._ended) > MOST_ENDINGS:
            self._ended.popitem(last=False)

    def keep(self, now: int, record: Record, topic: str, payload: bytes, *, is_here: bool = False) -> None:
        """A record, and how it is written."""
        hash = last_level(topic)
        if hash not in self._kept and len(self._kept) >= MOST_RECORDS:
            self.refused += 1
            return
        is_away = record.away_since_us is not None
        self._ended.pop(hash, None)
        kept = self._kept[hash] = _StoredRecord(
            payload, record.stamp, record.gateway, record.run, record.expiry_s, is_away, is_here
        )
        self._due.cancel(hash)
        if is_away:
            self._plan(now, hash, record)
        elif not is_here:
            self._look_for_gateway(now, hash, kept)

    def claimed(self, now: int, client: str) -> None:
        """Somebody connects the client: nothing of its session is due while that may come to a later record,
        and nothing earlier than without that."""
        hash = client_hash(client)
        due = self._due.at(hash)
        if due is not None:
            self._due.set(hash, max(due, now + _AGAIN))

    def gateway_changed(self, now: int, gateway: str) -> None:
        """A run of a gateway has come, or is gone: the clients that one had which is gone are away from now
        on."""
        for hash, kept in self._kept.items():
            if kept.gateway == gateway and not kept.is_here and not kept.is_away:
                self._look_for_gateway(now, hash, kept)

    def due(self, now: int) -> Iterator[Record]:
        """One after the other of the sessions that have ended, or whose wills are to be published, as far
        as this gateway is the one to see to it. `keep`, or `bury`, is to follow for each."""
        for hash in self._due.due(now):
            record = self._parse(SESSIONS + hash, self._kept[hash].payload)
            if record is None:
                continue
            if self.is_mine(record):
                yield record
            else:
                self._due.set(hash, now + _AGAIN)

    # Read

    def of(self, client: str) -> Record | None:
        """The session of this client; None: it has none."""
        topic = SESSIONS + client_hash(client)
        kept = self._kept.get(last_level(topic))
        return None if kept is None else self._parse(topic, kept.payload)

    def stamp_after(self, client: str, stamp: Stamp) -> Stamp:
        """`stamp`, or a higher one where more is known of the client's session already."""
        known = self.stamp_of(SESSIONS + client_hash(client))
        return stamp if known < stamp else Stamp(known.time_us + 1, stamp.run)

    def truth(self, topic: str) -> tuple[bytes, bool] | None:
        """What is to stand under a topic, and whether it is that the session has ended, if this gateway is
        the one to see to that."""
        hash = last_level(topic)
        ended = self._ended.get(hash)
        if ended is not None:
            return (ended[1], True) if self._gateways.is_first_for(hash) else None
        kept = self._kept.get(hash)
        record = None if kept is None else self._parse(topic, kept.payload)
        if kept is None or record is None or not (kept.is_here or self.is_mine(record)):
            return None
        return kept.payload, False

    def stamp_of(self, topic: str) -> Stamp:
        """Of the newest that is known under a topic."""
        hash = last_level(topic)
        kept, ended = self._kept.get(hash), self._ended.get(hash)
        return ended[0] if ended is not None else kept.stamp if kept is not None else NEVER

    def is_over(self, topic: str) -> bool:
        """Whether it is known that the session has ended."""
        return last_level(topic) in self._ended

    def is_ending(self, topic: str, payload: bytes) -> bool:
        """Whether that is still what is known of a session: it has ended, as this says."""
        ended = self._ended.get(last_level(topic))
        return ended is not None and ended[1] == payload

    def client_here(self, topic: str) -> str | None:
        """The client id of a record, if its client is connected to this gateway."""
        kept = self._kept.get(last_level(topic))
        record = self._parse(topic, kept.payload) if kept is not None and kept.is_here else None
        return None if record is None else record.client

    def is_mine(self, record: Record) -> bool:
        """Whether this gateway sees to a session whose client is away: it wrote the record, or whoever did is
        gone, and this is the first of those that are there."""
        if self._gateways.is_self(record.run):
            return True
        if self._gateways.is_alive(record.gateway, record.run):
            return False
        return self._gateways.is_first_for(client_hash(record.client))

    def has_ended(self, now: int, record: Record) -> bool:
        """Whether a session has been away for its expiry."""
        ends_at_us = self._ends_at_us(client_hash(record.client), record)
        return ends_at_us is not None and ends_at_us <= now + self._unix_offset_us

    def is_will_due(self, now: int, record: Record) -> bool:
        """Whether the delay of its will is over."""
        return record.will is not None and record.will.due_us <= now + self._unix_offset_us

    def mine(self) -> Iterator[tuple[str, bytes]]:
        """Topic and payload of all records that this gateway sees to."""
        for hash in list(self._kept):
            kept = self._kept.get(hash)
            if kept is None:
                continue
            record = None if kept.is_here else self._parse(SESSIONS + hash, kept.payload)
            if kept.is_here or (record is not None and self.is_mine(record)):
                yield SESSIONS + hash, kept.payload

    def away(self) -> Iterator[Record]:
        """The sessions without a client that this gateway sees to."""
        for hash, kept in list(self._kept.items()):
            record = self._parse(SESSIONS + hash, kept.payload) if kept.is_away else None
            if record is not None and self.is_mine(record):
                yield record

    def poll_timeout(self) -> int | None:
        """When something may be due."""
        return self._due.next()

    @property
    def away_count(self) -> int:
        """How many sessions have no client now."""
        return sum(kept.is_away for kept in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def _look_for_gateway(self, now: int, hash: str, kept: _StoredRecord) -> None:
        """A client that is at another gateway is away from the time on when it was learned that this is
        gone."""
        if self._gateways.is_alive(kept.gateway, kept.run):
            kept.lost_since_us = None
            self._due.cancel(hash)
        elif kept.lost_since_us is None:
            kept.lost_since_us = now + self._unix_offset_us
            record = self._parse(SESSIONS + hash, kept.payload)
            if record is not None:
                self._plan(now, hash, record)

    def _plan(self, now: int, hash: str, record: Record) -> None:
        """Looks at a session without a client again when its will is due, or its expiry over."""
        due_us = [self._ends_at_us(hash, record), record.will.due_us if record.will else None]
        first_us = min((at for at in due_us if at is not None), default=None)
        if first_us is not None:
            self._due.set(hash, max(now, first_us - self._unix_offset_us))

    def _ends_at_us(self, hash: str, record: Record) -> int | None:
        """When a session ends; None: never, or while its client is at its gateway."""
        kept = self._kept.get(hash)
        since_us = record.away_since_us
        if since_us is None and kept is not None and kept.stamp == record.stamp:
            since_us = kept.lost_since_us
        return None if since_us is None else record.ends_at_us(since_us)

    def _read(self, topic: str, payload: bytes) -> Record | Ending | None:
        body = verify(self._key, topic, payload)
        found = None if body is None else Ending.parse(body) or Record.parse(body)
        return found if found is not None and found.topic == topic else None

    def _parse(self, topic: str, payload: bytes) -> Record | None:
        found = self._read(topic, payload)
        return found if isinstance(found, Record) else None

    def _forget(self, hash: str) -> None:
        self._kept.pop(hash, None)
        self._due.cancel(hash)
