"""The verbs that a gateway's decisions call on the native core, and the events that the core reports.

`hbroker._native.Gateway` has these verbs, and so has the fake of the tests. Connections, sessions, pool
clients and listeners are opaque numbers. Three rules hold between the two sides:

* Until `accept`, nothing is sent to a connection, and the core reads from it only up to a bound.
* A session is in one place: here as a `SessionState` (in a record), or in the core, between `open_session`
  and `export_session`.
* A listener is one MQTT subscription. A message for it that arrives before its SUBACK waits in the session
  until `suback`, so that no message overtakes the SUBACK. Listener ids are unique over all pool clients.

Verbs for one connection or one session take effect in the order of the calls.
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
    """The will of a CONNECT (MQTT 5 §3.1.3.2). `delay_s`: 0 before version 5. The other fields are
    PUBLISH's."""

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
    """A well-formed CONNECT (MQTT 5 §3.1). A field that it lacks has the default of the standard.

    `listener`: the number that `open_listener` was given. `version`: the protocol level: 3 (MQTT 3.1), 4
    (3.1.1), 5, or one that this gateway does not speak. `is_bridge`: before version 5, the bit of mosquitto's
    protocol level by which a bridge declares itself. `certificate`: the common name of the client's
    certificate, empty if there is none. `clean_start`: before version 5 the clean session flag.
    `session_expiry_s`: 0 before version 5.
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
    """Subscription options (MQTT 5 §3.8.3.1); before version 5 the QoS alone.

    `retain_handling`: 0 sends retained messages, 1 sends them if the subscription is new, 2 does not.
    """

    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class SubscribeEvent:
    """SUBSCRIBE of an open connection. `identifier`: 0 if it has none. The filters are not checked yet."""

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
    """AUTH (MQTT 5 §3.15) of a connection that is authenticating or open."""

    connection: int
    reason: int
    method: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ClosedEvent:
    """A connection has closed, whichever side closed it. Its session has no connection any more.

    `cause`: "disconnect", "closed", "keep_alive", "too_large", "protocol_error", "server". `reason`:
    DISCONNECT's reason code; None: there was no DISCONNECT. `session_expiry_s`: DISCONNECT's; None:
    unchanged. If the expiry was 0 and DISCONNECT asks for more, that is a protocol error: the core answers
    0x82 and reports it as such.
    """

    connection: int
    cause: str
    reason: int | None = None
    session_expiry_s: int | None = None


@dataclass(frozen=True, slots=True)
class SessionOverflowEvent:
    """The queue of a session is full, and its policy is to end the session then."""

    session: int


MqttEvent: TypeAlias = (
    ConnectEvent | SubscribeEvent | UnsubscribeEvent | AuthEvent | ClosedEvent | SessionOverflowEvent
)


PACKET_ID_BLOCKS: Final = 8
"""The packet ids of a session are divided into this number of blocks.

If a gateway dies, only the client knows which packet ids were in flight. It would take another message under
such an id for the message that it had. So a gateway that resumes the session goes on with the next block.
"""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A message of QoS 1 or 2 to a client, whose acknowledgement is not complete.

    `publisher`, `sequence`: the message's id (docs/protocol.md §7.4); 0: the network does not send it again.
    `is_received`: PUBREC has come, and PUBREL is to be sent or PUBCOMP is awaited. If then `packet_id` is 0,
    PUBCOMP has come, and the owner does not know it yet.
    """

    packet_id: int
    publisher: int
    sequence: int
    qos: int
    is_received: bool = False


@dataclass(frozen=True, slots=True)
class SessionState:
    """The session state of MQTT 5 §4.1 without the subscriptions.

    `in_flight`: in the order in which the messages were sent. `received`: packet ids of QoS 2 messages of the
    client that wait for its PUBREL. `block`: the block from which new messages get their packet ids, from 0
    to `PACKET_ID_BLOCKS` - 1.
    """

    in_flight: tuple[InFlight, ...] = ()
    received: tuple[int, ...] = ()
    block: int = 0


def next_block(block: int) -> int:
    """The block after `block`, for a gateway that does not know what is in flight."""
    return (block + 1) % PACKET_ID_BLOCKS


@dataclass(frozen=True, slots=True)
class Accept:
    """The CONNACK, and the settings of the open connection. None: the property is left out.

    `session`: of `open_session`. `in_flight`: the most messages of QoS 1 and 2 that the client may have
    unacknowledged, whatever its Receive Maximum. `queue_messages`, `queue_bytes`: bounds of its queue here.
    `rate`: messages a second that the gateway reads from it; 0: no bound. `acl`: of `install_acl`.
    `is_distributed`: PUBACK waits until a message is distributed, and not only queued at its owner
    (docs/protocol.md §7.3).
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
    """One rule of an access list.

    The first rule whose filter matches the topic, and which applies to the access (read or write), decides.
    If there is no such rule, the access is denied.
    """

    filter: str
    is_allowed: bool
    for_read: bool
    for_write: bool


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """Counters of an open connection. `queued`: messages that wait for it in this gateway."""

    connection: int
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    queued: int
    dropped: int


class Member(ClientCore, Protocol):
    """The core of one pool client: the verbs of a client's core, and these."""

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
    """The native half of a gateway: the verbs that decisions call."""

    # Pool clients
    def member(self, number: int) -> Member:
        """The core of a pool client. 0: the shared pool client, which always exists."""

    def open_pool_client(self, session: int, *, persistent: bool, incarnation: int) -> int:
        """Opens a pool client with this network session. Returns its number, which is not used again."""

    def close_pool_client(self, number: int) -> None:
        """Closes a pool client at once. What it has not sent is discarded, and its links end without a
        packet."""

    # Connections
    def accept(self, connection: int, accept: Accept) -> None:
        """Sends CONNACK with success. From then on the connection is open and has the session."""

    def refuse(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        """Sends CONNACK with this code of MQTT 5, or its counterpart in the connection's version, and
        closes."""

    def auth(self, connection: int, reason: int, method: str, data: bytes) -> None:
        """Sends AUTH."""

    def disconnect(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        """Sends DISCONNECT, if the version has it for servers, and closes.

        `ClosedEvent` follows. Then the session has no connection.
        """

    def suback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None: ...
    def unsuback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None: ...

    # Sessions
    def open_session(self, state: SessionState) -> int:
        """Opens a session without a connection. Messages for it wait."""

    def export_session(self, session: int, *, is_over: bool = False) -> SessionState:
        """Ends a session that has no connection, detaches its listeners, and returns its state.

        A message that came through the shared pool client counts as handled. A message that came through
        another pool client is not acknowledged any more, so that the owner sends it again to the next holder
        of that client's session. `is_over`: there will be no next holder; then also the messages of QoS 2
        that the client began to receive count as handled (MQTT 5 §4.8.2). Raises NativeError if the core lost
        the session with a thread.
        """

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
        """Gives messages for this listener to the session, once the SUBACK with `packet_id` has left; None:
        at once. `filter`: without `$share/group/`."""

    def detach_listener(self, listener: int) -> None:
        """Ends the listener. Messages that are in the session already stay there."""

    def deliver(
        self, listener: int, topic: str, payload: bytes, *, qos: int = 0, retained: bool = False
    ) -> None:
        """Gives a message of the gateway itself ($SYS/broker/...) to one listener, as if an owner had sent
        it."""

    # Policy
    def install_acl(self, acl: int, rules: Sequence[Rule]) -> None:
        """Installs or replaces an access list, at once for all connections that have it."""

    def assign_acl(self, connection: int, acl: int) -> None:
        """Gives an open connection another access list."""

    def forget_acl(self, acl: int) -> None: ...
    def refuse_guesses(self, attempts: Attempts | None) -> None:
        """Has the core refuse guessed passwords by itself. None: it refuses none.

        It refuses a CONNECT with a name and a password, and without a certificate or an authentication
        method, if `attempts` refuses it. There is no ConnectEvent then.
        """

    # Read
    def connections(self, most: int) -> list[ConnectionStatus]: ...
    def gateway_counters(self) -> Mapping[str, int]:
        """Counters of all connections since the start: `connections`, `bytes_in`, `bytes_out`, `messages_in`,
        `messages_out` (PUBLISH packets), `packets_in`, `packets_out`, `dropped`."""


class Shell(NativeApi, Protocol):
    """The native half of a gateway as its process uses it: with sockets, and with the queues of events."""

    @property
    def address(self) -> Address:
        """The address of the UDP socket towards the network."""

    @property
    def fault(self) -> str | None:
        """Why the native core has failed; None: it works."""

    def open_listener(self, number: int, listener: ListenerSettings) -> int:
        """Begins to accept connections; returns the port. `number`: `ConnectEvent.listener` of these
        connections.

        Raises OSError, and ConfigError if a file of its TLS is unusable.
        """

    def set_listeners(self, listeners: Sequence[ListenerSettings], limits: GatewayLimits) -> None:
        """Changes the settings of the open listeners, in the order of their numbers, for later connections.

        Reads the files of TLS again. Raises ConfigError if one is unusable; then no listener has changed.
        """

    def fileno(self) -> int:
        """The descriptor that is readable while an event or a message waits."""

    def poll_pool_events(self, limit: int = 1024) -> Sequence[tuple[int, Event]]: ...
    def poll_pool_messages(self, limit: int = 1024) -> Sequence[tuple[int, Message]]:
        """Messages that matched no listener of a session, each with the number of its pool client."""

    def poll_mqtt(self, limit: int = 1024) -> Sequence[MqttEvent]: ...
    def take_load(self) -> Load | None:
        """Sets whether the effect of a pool client's verb may wait for more verbs, so that one wake-up serves
        all."""

    def gather(self, gathers: bool) -> None:
        """Sets whether datagrams that verbs of pool clients cause may wait for further verbs."""

    def drain(self, timeout_s: float) -> bool:
        """Blocks until everything that was queued towards the network is sent and acknowledged.

        Returns whether that was so within `timeout_s`.
        """

    def shutdown(self) -> None:
        """Closes all sockets and threads. Idempotent."""
