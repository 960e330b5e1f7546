"""Makes, empties and ends sessions of MQTT clients that are not connected.

A gateway does the same when such a client connects and disconnects (`hbroker.gateway`), and in this order:

    claim       all gateways let go of the client: none of them begins or ends its session in the meantime
    owners      a client of the network takes the session over there, as a gateway would, and subscribes
    record      all gateways learn what the session has now, and that its client is offline

So the next gateway to which the client connects resumes the session. It needs the join key.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

from hbroker.errors import HBrokerError
from hbroker.gateway.admin_requests import CLIENTS
from hbroker.gateway.records.client_id_claims import NEVER, ClientIdClaim, Stamp, body_of
from hbroker.gateway.records.record_authentication import CLAIMS, SESSIONS, client_hash, sign, verify
from hbroker.gateway.records.session_records import SessionEnd, SessionRecord, SessionSubscription
from hbroker.operations.gateway_requests import QUIET_S, ask_gateways
from hbroker.protocol.subscriptions import shared
from hbroker.workspace import Workspace, name_of

if TYPE_CHECKING:
    from hbroker.runtime.client.identity import Profile
    from hbroker.sync import Client, Subscription

__all__ = ["ClientConnected", "MqttSessions", "NoSession", "SessionState"]

_ONLY_NEW: Final = 2


class ClientConnected(HBrokerError):
    """The client is connected, so its session is its gateway's."""


class NoSession(HBrokerError):
    """The client has no session."""


class Connect(Protocol):
    """Connects to the network, with rights for `$gateway` and for what sessions subscribe to."""

    def __call__(self, **profile: Unpack[Profile]) -> Client:
        """As `hbroker.sync.connect`."""
        ...


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session that waits for its client. `owners`: the nodes that queue messages for it. `existed`: all of
    its subscriptions were at their owners before."""

    record: SessionRecord
    owners: frozenset[str]
    existed: bool


@dataclass(frozen=True, slots=True)
class MqttSessions:
    """The sessions of the MQTT clients of a network. `key`: the join key; empty: there is none. `timeout`:
    seconds for each answer. `client`, in each method: the client's name in the network (`Workspace`).

    Each method raises ClientConnected, JoinKeyError, Unreachable and Refused.
    """

    connect: Connect
    key: bytes
    timeout: float

    def add_subscriptions(
        self,
        client: str,
        expiry_s: int,
        subscriptions: Sequence[SessionSubscription],
    ) -> SessionState:
        """Adds subscriptions to the session of a client, or makes it. From now on its messages of QoS 1 and 2
        wait for the client, for `expiry_s` seconds."""
        with self._claimed(client) as (network, known):
            before = known.record or SessionRecord(client, "", 0, expiry_s)
            merged = {each.filter: each for each in (*before.subscriptions, *subscriptions)}
            record = replace(before, subscriptions=tuple(merged.values()), expiry_s=expiry_s)
            owners, existed = self._subscribe(record, subscriptions, clean_start=False)
            existed &= known.record is not None
            return SessionState(self._write(network, known, record), owners, existed)

    def purge(self, client: str) -> SessionState:
        """Discards all messages that wait for a client. Its subscriptions stay. Raises NoSession."""
        with self._claimed(client) as (network, known):
            if known.record is None:
                raise NoSession(f"the client {client} has no session")
            emptied = replace(known.record.state, in_flight=(), received=())
            record = replace(known.record, state=emptied, stale_subscriptions=())
            owners, _ = self._subscribe(record, known.subscriptions, clean_start=True)
            return SessionState(self._write(network, known, record), owners, True)

    def end(self, client: str) -> None:
        """Ends the session of a client: its subscriptions, what waits for it, and its will, which is not
        published. Raises NoSession."""
        with self._claimed(client) as (network, known):
            if known.record is None:
                raise NoSession(f"the client {client} has no session")
            ended = replace(known.record, expiry_s=0)
            self._subscribe(ended, known.subscriptions, clean_start=True)
            end = SessionEnd(client, known.next_stamp())
            network.publish(end.topic, sign(self.key, end.topic, end.body()), qos=1, retain=True)
            network.publish(end.topic, b"", qos=1, retain=True)

    @contextmanager
    def _claimed(self, client: str) -> Iterator[tuple[Client, _Known]]:
        """What is known of the session of a client that no gateway has. Raises ClientConnected if one has
        it."""
        with self.connect() as network, network.subscribe(f"{SESSIONS}{client_hash(client)}", qos=1) as found:
            known = _Known(self.key, found)
            known.read(QUIET_S)
            replies = ask_gateways(network, self.key, CLIENTS, client, timeout=self.timeout)
            for gateway, entries in replies.entries.items():
                if any(_is_of(entry, client) and entry["state"] == "connected" for entry in entries):
                    raise ClientConnected(f"the client {client} is connected to {gateway}")
            claim = ClientIdClaim(client, known.next_stamp(), ends_session=False)
            topic = f"{CLAIMS}{secrets.token_hex(8)}"
            network.publish(topic, sign(self.key, topic, body_of("", [claim])), qos=1)
            known.read(0.0)
            yield network, known

    def _subscribe(
        self, record: SessionRecord, subscriptions: Sequence[SessionSubscription], *, clean_start: bool
    ) -> tuple[frozenset[str], bool]:
        """Makes subscriptions of the session at their owners. Returns their names, and whether they had all
        of them before. Those of QoS 0 are made by the gateway when the client connects."""
        kept = [each for each in subscriptions if _is_kept(each)]
        if not kept:
            return frozenset(), True
        workspace, owners, existed = Workspace(name_of(record.client)), set[str](), True
        with self.connect(
            client_id=f"mqtt/{record.client}",
            session_key=self.key,
            session_expiry=record.expiry_s,
            clean_start=clean_start,
            acknowledge="handled",  # What waits in the session goes on waiting.
        ) as session:
            for each in kept:
                group, plain = shared.split(each.filter) or ("", each.filter)
                made = session.subscribe(
                    shared.joined(group, f"{workspace.prefix}{plain}"),
                    qos=each.options.qos,
                    no_local=each.options.no_local,
                    retain_as_published=each.options.retain_as_published,
                    retain_handling=_ONLY_NEW if group else each.options.retain_handling,
                )
                owners.update(made.owners)
                existed &= made.resumed
        return frozenset(owners), existed

    def _write(self, network: Client, known: _Known, record: SessionRecord) -> SessionRecord:
        """Tells all gateways what the session has now."""
        has_own = record.has_pool_client or any(map(_is_kept, record.subscriptions))
        now_us = time.time_ns() // 1000
        offline = replace(record, gateway="", run=0, offline_since_us=now_us, has_pool_client=has_own)
        written = replace(offline, stamp=known.next_stamp())
        network.publish(written.topic, sign(self.key, written.topic, written.body()), qos=1, retain=True)
        return written


@dataclass(slots=True)
class _Known:
    """The newest record of a session, from its topic. `stamp`: of that record, or of the end of the
    session."""

    key: bytes
    messages: Subscription
    record: SessionRecord | None = None
    stamp: Stamp = NEVER
    run: int = field(default_factory=lambda: secrets.randbits(63))

    @property
    def subscriptions(self) -> tuple[SessionSubscription, ...]:
        """All that owners may have of it."""
        assert self.record is not None, "there is a session"
        return (*self.record.subscriptions, *self.record.stale_subscriptions)

    def read(self, timeout: float) -> None:
        """Reads what has arrived; the first message for up to `timeout` seconds."""
        while (message := self.messages.next(timeout=timeout)) is not None:
            timeout = 0.0
            body = verify(self.key, message.topic, message.payload)
            found = None if body is None else SessionEnd.parse(body) or SessionRecord.parse(body)
            if found is not None and found.stamp > self.stamp:
                self.stamp = found.stamp
                self.record = found if isinstance(found, SessionRecord) else None

    def next_stamp(self) -> Stamp:
        """A stamp that is higher than all before."""
        self.stamp = Stamp(max(time.time_ns() // 1000, self.stamp.time_us + 1), self.run)
        return self.stamp


def _is_kept(subscription: SessionSubscription) -> bool:
    """Whether owners keep the subscription while its client is offline."""
    return subscription.options.qos > 0 or subscription.filter.startswith(shared.PREFIX)


def _is_of(entry: dict[str, Any], client: str) -> bool:
    """Whether an entry of a gateway's list is about this client."""
    return Workspace(entry.get("workspace") or "").prefix + str(entry["client"]) == client
