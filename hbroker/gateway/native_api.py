"""What the gateway's decisions ask of the native core, and what they are told.

`hbroker._native.Gateway` has these verbs, and so has the fake of the tests. Connections, sessions, members
and listeners are opaque numbers. Three rules make the two sides fit:

* Until `accept` a connection is *deciding*: nothing is read from it beyond a bound, nothing is sent to it.
* A session is in one place: here as a `SessionState` (a record, DESIGN §6), or there, between `open_session`
  and `export_session`.
* A listener is one MQTT subscription. Messages that come for it before its SUBACK wait in the session until
  `suback`, so that nothing overtakes it. Listener ids are unique over all members.

Verbs for one connection or session take effect in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, Unpack

from hbroker.config import GatewayLimits, ListenerSettings
from hbroker.properties import CoreProperties
from hbroker.protocol.core import ClientCore, Event
from hbroker.protocol.packets import Address

if TYPE_CHECKING:
    from hbroker._native import Attempts, Load, Message

__all__ = [
    "PACKET_ID_BLOCKS",
    "Accept",
    "AuthEvent",
    "ClosedEvent",
    "ConnectEvent",
    "ConnectionStatus",
    "InFlight",
    "Member",
    "MqttEvent",
    "NativeApi",
    "Rule",
    "SessionOverflowEvent",
    "SessionState",
    "Shell",
    "SubscribeEvent",
    "SubscribeOptions",
    "UnsubscribeEvent",
    "WillMessage",
    "next_block",
]


@dataclass(frozen=True, slots=True)
class WillMessage:
    """CONNECT's will (MQTT 5 §3.1.3). `delay_s`: 0 before version 5. The rest as PUBLISH has it."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    expiry_s: int | None = None
    content_type: str = ""
    payload_format: int | None = None
    response_topic: str = ""
    correlation_data: bytes = b""
    user_properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectEvent:
    """A CONNECT that is well formed. What it does not hold has the default that MQTT names.

    `listener`: the number that `open_listener` was given. `version`: the protocol level, 3 (MQTT 3.1), 4
    (3.1.1), 5, or another that this server does not speak. `is_bridge`: it is another broker's bridge, as
    mosquitto's says before version 5. `certificate`: the common name of the client's,
    empty where it has none. `clean_start`: the clean session flag before version 5. `session_expiry_s`: 0
    before version 5.
    """

    connection: int
    listener: int
    peer: Address
    version: int
    client_id: str
    clean_start: bool = True
    is_bridge: bool = False
    certificate: str = ""
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    keep_alive_s: int = 0
    will: WillMessage | None = None
    session_expiry_s: int = 0
    receive_maximum: int = 65_535
    maximum_packet_size: int | None = None
    topic_alias_maximum: int = 0
    wants_response_information: bool = False
    wants_problem_information: bool = True
    user_properties: tuple[tuple[str, str], ...] = ()
    auth_method: str | None = None
    auth_data: bytes = b""


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """MQTT 5 §3.8.3.1; before version 5 the QoS alone. `retain_handling`: 0 send, 1 send if new, 2 do not."""

    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class SubscribeEvent:
    """SUBSCRIBE of an open connection. `identifier`: 0 where it has none. Filters are text, not yet
    checked."""

    connection: int
    packet_id: int
    filters: tuple[tuple[str, SubscribeOptions], ...]
    identifier: int = 0


@dataclass(frozen=True, slots=True)
class UnsubscribeEvent:
    """UNSUBSCRIBE of an open connection."""

    connection: int
    packet_id: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuthEvent:
    """AUTH (MQTT 5 §3.15), of a connection that is deciding or open."""

    connection: int
    reason: int
    method: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ClosedEvent:
    """A connection is gone; whoever ended it. Its session has no connection any more.

    `cause`: "disconnect", "closed", "keep_alive", "too_large", "protocol_error", "server". `reason`:
    DISCONNECT's; None: none came. `session_expiry_s`: as DISCONNECT changed it; None: not. One that had 0 and
    asks for more is a protocol error, which the core answers with 0x82, and reports as such.
    """

    connection: int
    cause: str
    reason: int | None = None
    session_expiry_s: int | None = None


@dataclass(frozen=True, slots=True)
class SessionOverflowEvent:
    """What waits for a session is more than it may be, and by its policy it is to end."""

    session: int


MqttEvent: TypeAlias = (
    ConnectEvent | SubscribeEvent | UnsubscribeEvent | AuthEvent | ClosedEvent | SessionOverflowEvent
)


PACKET_ID_BLOCKS: Final = 8
"""The packet ids of a session are out of one of so many parts. What was in flight at a gateway that died
nobody knows but the client, who would take another message under such an id for the one that it had. So
whoever resumes the session goes on with the next."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A message of QoS 1 or 2 that the client has not finished with. `publisher`, `sequence`: its id (§7.4);
    0: the network does not bring it again. `is_received`: PUBREC came, and PUBREL is owed or its PUBCOMP
    awaited; with `packet_id` 0 that has come, and the message's owner has not heard of it."""

    packet_id: int
    publisher: int
    sequence: int
    qos: int
    is_received: bool = False


@dataclass(frozen=True, slots=True)
class SessionState:
    """What MQTT 5 §4.1 wants kept of a session beside its subscriptions.

    `in_flight`: in the order in which they were sent. `received`: packet ids of QoS 2 messages from the
    client that wait for its PUBREL. `block`: the part of the packet ids out of
    which new messages get theirs, from 0 to `PACKET_ID_BLOCKS` - 1.
    """

    in_flight: tuple[InFlight, ...] = ()
    received: tuple[int, ...] = ()
    block: int = 0


def next_block(block: int) -> int:
    """For one who goes on without knowing what is in flight: the block after `SessionState.block`."""
    return (block + 1) % PACKET_ID_BLOCKS


@dataclass(frozen=True, slots=True)
class Accept:
    """CONNACK, and how the connection is from then on. None: the property is left out.

    `session`: of `open_session`. `in_flight`: messages of QoS 1 and 2 that the client may have unanswered,
    whatever it asks for. `queue_messages`, `queue_bytes`: what waits for it here. `rate`: messages a second
    that are read from it; 0: as many as come. `acl`: of `install_acl`. `is_distributed`: PUBACK waits until
    a message is distributed, and not only queued at its owner (§7.3).
    """

    session: int
    client_id: str
    session_present: bool
    acl: int
    in_flight: int
    queue_messages: int
    queue_bytes: int
    rate: int = 0
    is_distributed: bool = False
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    session_expiry_s: int | None = None
    response_information: str | None = None
    auth_method: str | None = None
    auth_data: bytes = b""
    user_properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of an access list: the first whose filter matches the topic, and which speaks of what is to be
    done, decides. None does: no."""

    filter: str
    is_allowed: bool
    for_read: bool
    for_write: bool


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """How an open connection is. `queued`: messages that wait here for it."""

    connection: int
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    queued: int
    dropped: int


class Member(ClientCore, Protocol):
    """One network client inside the gateway: the verbs of a client's core."""

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        **properties: Unpack[CoreProperties],
    ) -> int | None: ...
    def handled(self, messages: Sequence[tuple[int, int]]) -> None: ...


class NativeApi(Protocol):
    """The native half of a gateway."""

    # Members
    def member(self, number: int) -> Member:
        """The verbs of a member; 0: the shared one, which is always there."""

    def open_pool_client(self, session: int, *, persistent: bool, incarnation: int) -> int:
        """A new member, with this network session. Its number is not used again."""

    def close_pool_client(self, number: int) -> None:
        """Ends a member at once: what it has not sent stays unsent, its links end without a word."""

    # Connections
    def accept(self, connection: int, accept: Accept) -> None:
        """CONNACK with success; from now on the connection is open and has the session."""

    def refuse(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        """CONNACK with this code of MQTT 5, or what the connection's version has for it; then closes."""

    def auth(self, connection: int, reason: int, method: str, data: bytes) -> None:
        """AUTH."""

    def disconnect(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        """DISCONNECT, where the version has it for servers, and closes. ClosedEvent follows, and the
        session is without a connection by then."""

    def suback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None: ...
    def unsuback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None: ...

    # Sessions
    def open_session(self, state: SessionState) -> int:
        """A session without a connection. What comes for it waits."""

    def export_session(self, session: int, *, is_over: bool = False) -> SessionState:
        """Ends one without a connection, and detaches its listeners. What came for it through the shared
        member counts as handled; what came through another member is not acknowledged any more, so that it
        comes again to whoever has that member's session next. `is_over`: nobody will; then what the client
        began to get at QoS 2 counts as handled, too (MQTT 5 §4.8.2)."""

    # Listeners
    def attach_listener(
        self,
        listener: int,
        session: int,
        filter: str,
        options: SubscribeOptions,
        identifier: int,
        *,
        packet_id: int | None,
    ) -> None:
        """Messages for this listener go to the session, once the SUBACK with `packet_id` has left; None: at
        once. `filter`: without `$share/group/`."""

    def detach_listener(self, listener: int) -> None:
        """No more messages for it; those that are in the session stay there."""

    def deliver(
        self, listener: int, topic: str, payload: bytes, *, qos: int = 0, retained: bool = False
    ) -> None:
        """A message of the gateway's own ($SYS/broker/...) for one listener, as if its owner had sent it."""

    # Policy
    def install_acl(self, acl: int, rules: Sequence[Rule]) -> None:
        """Makes or replaces an access list, at once for all connections that have it."""

    def assign_acl(self, connection: int, acl: int) -> None:
        """An open connection has another list from now on."""

    def forget_acl(self, acl: int) -> None: ...
    def refuse_guesses(self, attempts: Attempts | None) -> None:
        """A CONNECT with a name and a password, and without a certificate or a method, that these refuse is
        refused without a ConnectEvent. None: none is."""

    # Read
    def connections(self, most: int) -> list[ConnectionStatus]: ...
    def gateway_counters(self) -> Mapping[str, int]:
        """Since the start, of all connections. `connections`, `bytes_in`, `bytes_out`, `messages_in`,
        `messages_out` (PUBLISH packets), `packets_in`, `packets_out`, `dropped`."""


class Shell(NativeApi, Protocol):
    """What the process of a gateway asks besides: sockets, and what has come."""

    @property
    def address(self) -> Address:
        """Of the UDP socket towards the network."""

    @property
    def fault(self) -> str | None:
        """Why it can go on no more; None: it can."""

    def open_listener(self, number: int, listener: ListenerSettings) -> int:
        """Begins to take connections; returns the port. `number`: stands in each ConnectEvent. Raises
        OSError, and ConfigError for a file of its TLS that is wrong."""

    def set_listeners(self, listeners: Sequence[ListenerSettings], limits: GatewayLimits) -> None:
        """Sets those that are open anew, in the order of their numbers, for connections from now on: files
        of TLS are read again. Raises ConfigError for one that is wrong, and then all are as before."""

    def fileno(self) -> int:
        """Readable while something waits."""

    def poll_pool_events(self, limit: int = 1024) -> Sequence[tuple[int, Event]]: ...
    def poll_pool_messages(self, limit: int = 1024) -> Sequence[tuple[int, Message]]:
        """Messages that matched no listener of a session, each with its member."""

    def poll_mqtt(self, limit: int = 1024) -> Sequence[MqttEvent]: ...
    def take_load(self) -> Load | None:
        """What passed since this was last asked; None: nobody counts."""

    def gather(self, gathers: bool) -> None:
        """Whether what follows from the verbs of members may wait for more of them."""

    def drain(self, timeout_s: float) -> bool:
        """Blocks until all that was queued towards the network has left and is acknowledged."""

    def shutdown(self) -> None:
        """Closes everything. Idempotent."""
