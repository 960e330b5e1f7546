"""One MQTT client, from its CONNECT to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import auto
from typing import Final

from hbroker._native import AttemptSource
from hbroker.gateway.connect.connect_packet import ConnectRequest
from hbroker.gateway.native_api import ConnectEvent, SubscribeOptions, WillMessage
from hbroker.gateway.outbox import Done
from hbroker.gateway.sessions.claims import Stamp
from hbroker.gateway.sessions.records import SessionSubscription
from hbroker.protocol.state_machine import Machine, Symbol
from hbroker.protocol.subscriptions.owner.store import weight
from hbroker.protocol.subscriptions.owner.wildcard_shapes import Shapes, shape_of

__all__ = ["TRANSITIONS", "Connection", "Event", "Listening", "State"]


class State(Symbol):
    """What a connection waits for."""

    AUTHENTICATING = auto()
    """The policy's verdict."""
    QUEUED = auto()
    """That the connection of its client that came before is accepted, or ends."""
    CLAIMING = auto()
    """The word that no other gateway has its client."""
    RESUMING = auto()
    """Its session: its subscriptions at their owners, its will at its."""
    OPEN = auto()
    """Nothing."""
    CLOSING = auto()
    """The border's word that it is closed, as this side asked for."""
    ENDED = auto()


class Event(Symbol):
    """What happens to a connection."""

    ADMIT = auto()
    """The policy takes it, and nobody has its client who is not accepted yet."""
    QUEUE = auto()
    """The policy takes it, and somebody has."""
    OWN = auto()
    """Nobody else has its client, as far as can be known."""
    READY = auto()
    """Its session is there, or has been waited for long enough."""
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
class Listening:
    """One subscription. `filter`: as the client wrote it; `plain`: without `$share/group/`."""

    listener: int
    member: int | None
    """None: nothing of it is in the network ($SYS/broker)."""
    filter: str
    group: str
    plain: str
    options: SubscribeOptions
    identifier: int = 0

    def kept(self) -> SessionSubscription:
        """As a record has it."""
        return SessionSubscription(self.filter, self.options, self.identifier)


_NONE: Final = Stamp(0, 0)
MOST_SHAPES: Final = 8
"""Of one client (`protocol.shapes`). At an owner a session of the gateway may speak for many, and has 64."""
_NO_SHAPES: Final = Shapes(MOST_SHAPES)


@dataclass(slots=True, eq=False)
class Connection:
    """A client's connection and session.

    `expiry_s`: of the session. `is_held`: owners are to hold its messages. `stamp`: of its claim.
    `session`: the border's. `member`: its own; None: it has none. `has_record`: other gateways know of the
    session. `awaited`: what keeps it from being ready.
    """

    event: ConnectEvent
    connect_request: ConnectRequest
    machine: Machine[State, Event] = field(default_factory=lambda: Machine(TRANSITIONS, State.AUTHENTICATING))
    username: str | None = None
    proof: str = ""
    attempt: AttemptSource | None = None
    """The exchange of AUTH that has begun, as one that may be a guess."""
    step: int = 0
    """Of it."""
    expiry_s: int = 0
    is_held: bool = False
    connected_at_us: int = 0
    stamp: Stamp = _NONE
    claimed_at: int = 0
    will: WillMessage | None = None
    session: int | None = None
    block: int = 0
    """Of its packet ids, as `SessionState` has it."""
    member: int | None = None
    acl: int | None = None
    was_present: bool = False
    has_record: bool = False
    ends_session: bool = False
    """The session ends with it, whatever its expiry."""
    is_lost: bool = False
    """Another gateway has the session already, and what is to be said of it."""
    is_claimed: bool = False
    """No other gateway has the client any more."""
    awaits_former: bool = False
    """The client's former connection here has not ended yet."""
    on_end: list[Done] = field(default_factory=list)
    """Told when every gateway knows what became of it."""
    subscriptions: dict[str, Listening] = field(default_factory=dict)
    filters: int = 0
    """Its subscriptions, long ones counted more than once (`subscribers.weight`)."""
    shapes: Shapes | None = None
    """Of its filters; None: all are ordinary."""
    awaited: set[int | str] = field(default_factory=set)
    unproven: set[int] = field(default_factory=set)
    """Listeners of a session that is resumed, of which not every owner has said that it still has them."""
    leftover: tuple[SessionSubscription, ...] = ()
    """What owners may hold of the session before this one (`leftovers`)."""
    starts_clean: bool = True
    """Whatever owners hold of a session before this one ends."""

    @property
    def id(self) -> int:
        """The border's number."""
        return self.event.connection

    @property
    def client_id(self) -> str:
        """Its own, or the one that it was assigned."""
        return self.connect_request.client_id

    @property
    def state(self) -> State:
        """What it waits for."""
        return self.machine.state

    def subscribe(self, listening: Listening) -> None:
        """Takes note of a subscription, in the place of one with the same filter."""
        self.unsubscribe(listening.filter)
        self.subscriptions[listening.filter] = listening
        self.filters += weight((listening.group, listening.plain))
        if shape_of(listening.plain) is not None:
            self.shapes = self.shapes or Shapes(MOST_SHAPES)
            self.shapes.add(self.id, listening.plain)

    def unsubscribe(self, filter: str) -> Listening | None:
        """Forgets a subscription, and returns it."""
        listening = self.subscriptions.pop(filter, None)
        if listening is not None:
            self.filters -= weight((listening.group, listening.plain))
            if self.shapes is not None:
                self.shapes.remove(self.id, listening.plain)
        return listening

    def forget_subscriptions(self) -> None:
        """The session is a new one: it has none."""
        self.subscriptions.clear()
        self.unproven.clear()
        self.filters = 0
        self.shapes = None

    def has_room(self, most: int, group: str, plain: str) -> bool:
        """Whether another subscription stays within the bounds. `most`: what all of them may count for."""
        shapes = self.shapes or _NO_SHAPES
        return self.filters + weight((group, plain)) <= most and shapes.has_room(self.id, plain)

    def holds(self, filter: str) -> bool:
        """Whether its own member has this one."""
        listening = self.subscriptions.get(filter)
        return listening is not None and listening.member is not None and listening.member == self.member

    @property
    def is_forgotten(self) -> bool:
        """Whether some owner has the session no more, or has not said in time that it has."""
        return not self.unproven <= self.awaited

    @property
    def has_own_subscriptions(self) -> bool:
        """Whether its own member has some, and not the shared one alone."""
        return any(s.member is not None and s.member == self.member for s in self.subscriptions.values())

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.machine.state is State.ENDED
