"""One MQTT client, from its CONNECT to the end of its connection, and the table of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import auto
from typing import Final

from hbroker._native import AttemptSource
from hbroker.gateway.connections.connect_packet import ConnectRequest
from hbroker.gateway.native_api import ConnectEvent, SubscribeOptions, WillMessage
from hbroker.gateway.outbox import Done
from hbroker.gateway.records.client_id_claims import Stamp
from hbroker.gateway.records.session_records import SessionSubscription
from hbroker.protocol.sessions.subscription_store import filter_cost
from hbroker.protocol.sessions.wildcard_shapes import WildcardShapes, shape_of
from hbroker.protocol.state_machine import StateMachine, Symbol
from hbroker.workspace import DEFAULT, Workspace

__all__ = ["TRANSITIONS", "Connection", "ConnectionTable", "Event", "MqttSubscription", "State"]


class State(Symbol):
    """The states of a connection, by what it waits for."""

    AUTHENTICATING = auto()
    """The policy's decision."""
    QUEUED = auto()
    """The earlier connection of its client must be accepted, or end."""
    CLAIMING = auto()
    """The claim must be distributed: then no other gateway has the client."""
    RESUMING = auto()
    """The session must be complete: subscriptions and will at their owners."""
    OPEN = auto()
    """Nothing."""
    CLOSING = auto()
    """The native core must report that it is closed, as this side asked."""
    ENDED = auto()


class Event(Symbol):
    """The events of a connection."""

    ADMIT = auto()
    """The policy admits it, and no connection of its client is pending."""
    QUEUE = auto()
    """The policy admits it, and a connection of its client is pending."""
    OWN = auto()
    """No other gateway has its client, as far as known."""
    READY = auto()
    """Its session is complete, or the wait for it has timed out."""
    DISCONNECT = auto()
    """This side ends it."""
    END = auto()
    """It is refused, or closed."""


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.AUTHENTICATING, Event.ADMIT): State.CLAIMING,
    (State.AUTHENTICATING, Event.QUEUE): State.QUEUED,
    (State.AUTHENTICATING, Event.END): State.ENDED,
    (State.QUEUED, Event.ADMIT): State.CLAIMING,
    (State.QUEUED, Event.END): State.ENDED,
    (State.CLAIMING, Event.OWN): State.RESUMING,
    (State.CLAIMING, Event.END): State.ENDED,
    (State.RESUMING, Event.READY): State.OPEN,
    (State.RESUMING, Event.END): State.ENDED,
    (State.OPEN, Event.DISCONNECT): State.CLOSING,
    (State.OPEN, Event.END): State.ENDED,
    (State.CLOSING, Event.END): State.ENDED,
}


@dataclass(slots=True, eq=False)
class MqttSubscription:
    """One subscription of a session. `filter`: as the client wrote it; `plain`: without `$share/group/`, as
    the network names it."""

    listener: int
    pool_client: int | None
    """None: nothing of it is in the network ($SYS/broker)."""
    filter: str
    group: str
    plain: str
    options: SubscribeOptions
    identifier: int = 0

    def to_record(self) -> SessionSubscription:
        """This subscription as a record has it."""
        return SessionSubscription(self.filter, self.options, self.identifier)


_NONE: Final = Stamp(0, 0)
MOST_SHAPES: Final = 8
"""Most wildcard shapes of one client (`protocol.sessions.wildcard_shapes`). At an owner, a session
of the gateway may stand for many clients, and has 64."""
_NO_SHAPES: Final = WildcardShapes(MOST_SHAPES)


@dataclass(slots=True, eq=False)
class Connection:
    """The connection and the session of one MQTT client.

    `expiry_s`: of the session. `is_persistent`: owners keep its messages while it is offline. `stamp`: of its
    claim. `session`: the native core's number. `pool_client`: its own pool client; None: it has none.
    `has_record`: other gateways know the session. `awaited`: what must come before the session is complete.
    """

    event: ConnectEvent
    connect_request: ConnectRequest
    state_machine: StateMachine[State, Event] = field(
        default_factory=lambda: StateMachine(TRANSITIONS, State.AUTHENTICATING)
    )
    username: str | None = None
    workspace: Workspace = DEFAULT
    """Of which the client is, once it is admitted."""
    proof: str = ""
    until_s: int | None = None
    """As in `Admitted`."""
    attempt: AttemptSource | None = None
    """The source of the AUTH exchange that has begun, which counts as an attempt."""
    step: int = 0
    """The next step of that exchange."""
    exchange: object = None
    """What the policy needs for it."""
    auth_data: bytes = b""
    """The last data of the exchange, for CONNACK."""
    expiry_s: int = 0
    is_persistent: bool = False
    connected_at_us: int = 0
    stamp: Stamp = _NONE
    claimed_at: int = 0
    will: WillMessage | None = None
    session: int | None = None
    block: int = 0
    """The block of its packet ids, as in `SessionState`."""
    pool_client: int | None = None
    acl: int | None = None
    was_present: bool = False
    has_record: bool = False
    ends_session: bool = False
    """The session ends with the connection, whatever its expiry."""
    is_taken_over: bool = False
    """Another gateway has the session already, and publishes its records and its will."""
    is_claimed: bool = False
    """No other gateway has the client any more."""
    awaits_former: bool = False
    """The client's former connection here has not ended yet."""
    on_end: list[Done] = field(default_factory=list)
    """Called when every gateway knows the end of the connection."""
    subscriptions: dict[str, MqttSubscription] = field(default_factory=dict)
    total_filter_cost: int = 0
    """The weight of its subscriptions: a long one counts more than once
    (`protocol.sessions.subscription_store.filter_cost`)."""
    shapes: WildcardShapes | None = None
    """The wildcard shapes of its filters; None: all filters are ordinary."""
    awaited: set[int | str] = field(default_factory=set)
    unconfirmed: set[int] = field(default_factory=set)
    """Listeners of a resumed session for which not every owner has answered that it still has them."""
    stale_subscriptions: tuple[SessionSubscription, ...] = ()
    """Subscriptions that owners may hold of the session before this one (`sessions.stale_sessions`)."""
    starts_clean: bool = True
    """What owners hold of an earlier session ends."""

    @property
    def id(self) -> int:
        """The native core's number."""
        return self.event.connection

    @property
    def client_id(self) -> str:
        """The client's own id, or the one that the gateway assigned."""
        return self.connect_request.client_id

    @property
    def client_name(self) -> str:
        """The name of the client in the network, of which there is one over all workspaces."""
        return self.workspace.client_name(self.client_id)

    @property
    def state(self) -> State:
        """The present state."""
        return self.state_machine.state

    def subscribe(self, subscription: MqttSubscription) -> None:
        """Adds a subscription, or replaces the one with the same filter."""
        self.unsubscribe(subscription.filter)
        self.subscriptions[subscription.filter] = subscription
        self.total_filter_cost += filter_cost((subscription.group, subscription.plain))
        if shape_of(subscription.plain) is not None:
            self.shapes = self.shapes or WildcardShapes(MOST_SHAPES)
            self.shapes.add(self.id, subscription.plain)

    def unsubscribe(self, filter: str) -> MqttSubscription | None:
        """Removes a subscription, and returns it."""
        subscription = self.subscriptions.pop(filter, None)
        if subscription is not None:
            self.total_filter_cost -= filter_cost((subscription.group, subscription.plain))
            if self.shapes is not None:
                self.shapes.remove(self.id, subscription.plain)
        return subscription

    def forget_subscriptions(self) -> None:
        """Removes all subscriptions: the session is a new one."""
        self.subscriptions.clear()
        self.unconfirmed.clear()
        self.total_filter_cost = 0
        self.shapes = None

    def has_room(self, most: int, group: str, plain: str) -> bool:
        """Whether another subscription stays within the bounds. `most`: the bound on the weight of all."""
        shapes = self.shapes or _NO_SHAPES
        return self.total_filter_cost + filter_cost((group, plain)) <= most and shapes.has_room(
            self.id, plain
        )

    def has_own_subscription(self, filter: str) -> bool:
        """Whether the session's own pool client has this subscription."""
        subscription = self.subscriptions.get(filter)
        return (
            subscription is not None
            and subscription.pool_client is not None
            and subscription.pool_client == self.pool_client
        )

    @property
    def is_forgotten(self) -> bool:
        """Whether some owner does not have the session any more, or has not confirmed it in time."""
        return not self.unconfirmed <= self.awaited

    @property
    def has_own_subscriptions(self) -> bool:
        """Whether the session's own pool client has a subscription."""
        return any(map(self.has_own_subscription, self.subscriptions))

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return self.state_machine.state is State.ENDED


class ConnectionTable:
    """All connections that have not ended."""

    def __init__(self) -> None:
        self._by_id: dict[int, Connection] = {}
        self._by_client: dict[str, Connection] = {}
        self._of_workspace: Counter[str] = Counter()
        """The number of clients in `_by_client` of each workspace."""
        self.most = 0
        """The highest number of connections at one time."""
        self.disconnecting = 0
        """The number of broken connections whose end is still queued (`disconnect_queue`)."""

    def add(self, connection: Connection) -> None:
        """Adds a connection when its CONNECT has arrived."""
        self._by_id[connection.id] = connection
        self.most = max(self.most, len(self._by_id))

    def assign(self, connection: Connection) -> None:
        """Gives the client's name to this connection. The former one was ended."""
        if connection.client_name not in self._by_client:
            self._of_workspace[connection.workspace.name] += 1
        self._by_client[connection.client_name] = connection

    def remove(self, connection: Connection) -> None:
        """Removes a connection that has ended."""
        self._by_id.pop(connection.id, None)
        if self._by_client.get(connection.client_name) is connection:
            del self._by_client[connection.client_name]
            self._of_workspace[connection.workspace.name] -= 1

    def get(self, id: int) -> Connection | None:
        """The connection with this number; None: there is none."""
        return self._by_id.get(id)

    def of_client(self, client: str) -> Connection | None:
        """The connection of the client of this name (`Connection.client_name`), or the one that claims it;
        None: there is none."""
        return self._by_client.get(client)

    def clients_of(self, workspace: str) -> int:
        """The number of clients of this workspace that have a connection, or claim one."""
        return self._of_workspace[workspace]

    @property
    def unbroken(self) -> int:
        """The number of connections that have not broken."""
        return len(self) - self.disconnecting

    def open(self) -> Iterator[Connection]:
        """The connections that were accepted and are open."""
        return (connection for connection in list(self._by_id.values()) if connection.state is State.OPEN)

    def all(self) -> list[Connection]:
        """All connections, open or not."""
        return list(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)
