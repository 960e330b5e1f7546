"""The native half of a gateway as its decisions use it, and the objects that cross between the two.

`hbroker/_native.pyi` describes the verbs of `NativeApi`. The decisions match on the event classes of this
module, which tests can make, too; `hbroker.runtime.gateway.native_gateway` makes them of the core's own. The
core reads its arguments by attribute, whatever their class. Connections, sessions, pool clients and listeners
are opaque numbers. Three rules hold between the two sides:

* Until `accept`, nothing is sent to a connection, and the core reads from it only up to a bound.
* A session is in one place: here as a `SessionState` (in a record), or in the core, between `open_session`
  and `export_session`.
* A listener is one MQTT subscription. A message for it that arrives before its SUBACK waits in the session
  until `suback`, so that no message overtakes the SUBACK. Listener ids are unique over all pool clients.

Verbs for one connection or one session take effect in the order of the calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hbroker import _native
from hbroker.protocol.packets import Address

__all__ = [
    "PACKET_ID_BLOCKS",
    "Accept",
    "AuthEvent",
    "ClosedEvent",
    "ConnectEvent",
    "InFlight",
    "MqttEvent",
    "NativeApi",
    "PoolClientCore",
    "Rule",
    "SessionState",
    "SubscribeEvent",
    "SubscribeOptions",
    "UnsubscribeEvent",
    "WillMessage",
    "next_block",
]


NativeApi: TypeAlias = _native.Gateway
PoolClientCore: TypeAlias = _native.PoolClient


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
    protocol level by which a bridge declares itself. `certificate_name`: the common name of the client's
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
    certificate_name: str = ""
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    keep_alive_s: int = 0
    will: WillMessage | None = None
    session_expiry_s: int = 0
    wants_problem_information: bool = True
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


MqttEvent: TypeAlias = ConnectEvent | SubscribeEvent | UnsubscribeEvent | AuthEvent | ClosedEvent


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
    client that wait for its PUBREL. `block`: the block from which new messages get their packet ids, modulo
    `PACKET_ID_BLOCKS`, from 0 to twice that number less 1. From that number on the block was used before.
    """

    in_flight: tuple[InFlight, ...] = ()
    received: tuple[int, ...] = ()
    block: int = 0


def next_block(block: int) -> int:
    """The block after `block`, for a gateway that does not know what is in flight."""
    return block + 1 if block + 1 < 2 * PACKET_ID_BLOCKS else PACKET_ID_BLOCKS


@dataclass(frozen=True, slots=True)
class Accept:
    """The CONNACK, and the settings of the open connection. None: the property is left out.

    `session`: of `open_session`. `in_flight`: the most messages of QoS 1 and 2 that the client may have
    unacknowledged, whatever its Receive Maximum. `queue_messages`, `queue_bytes`: bounds of its queue here.
    `rate`: messages a second that the gateway reads from it; 0: no bound. `workspace`: the name of its
    workspace; empty: the default one. From then on its topics have their names in the network here; the core
    strips the prefix of those that it sends to the client, and checks the list with the client's names.
    `acl`: of `install_acl`. `is_distributed`: PUBACK waits until a message is distributed, and not only
    queued at its owner (docs/protocol.md §7.3).
    """

    session: int
    client_id: str
    session_present: bool
    acl: int
    in_flight: int
    queue_messages: int
    queue_bytes: int
    rate: int = 0
    workspace: str = ""
    is_distributed: bool = False
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    session_expiry_s: int | None = None
    auth_method: str | None = None
    auth_data: bytes = b""


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
