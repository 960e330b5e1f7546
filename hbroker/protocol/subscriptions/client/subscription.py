"""One filter's subscription at all its owners, and when it is complete (§6).

The subscription is complete when *every node in any `passed_to` has given an answer that stands for all
delegations by which it was named, and every responsible node has said `active`* (§6.2). So it has one
`SubscriptionOwner` for each node that was named, and one for its entry, the root, whose answer names the
first nodes. The rule is evaluated after each change of an owner, so there is no count to get wrong.

The application may subscribe to one filter several times. For the network that is one subscription, with the
options of its most demanding listeners.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import auto
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Address
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.protocol.state_machine import Machine, Symbol
from hbroker.protocol.subscriptions import shared
from hbroker.protocol.subscriptions.client import owner
from hbroker.protocol.subscriptions.client.options import Key, Listeners, Options
from hbroker.protocol.subscriptions.client.owner import SubscriptionOwner

__all__ = ["TRANSITIONS", "Event", "State", "Subscription"]


class State(Symbol):
    """What a subscription waits for."""

    DISCOVERING = auto()
    """For the answers of all nodes that were named."""
    SUBSCRIBING = auto()
    """For the confirmations of all responsible nodes."""
    COMPLETE = auto()
    """For nothing."""
    ENDED = auto()


class Event(Symbol):
    """What happens to a subscription."""

    DISCOVER = auto()
    """The client discovers, for the first time or anew."""
    MISS = auto()
    """A node was named and has not answered."""
    ANSWERED = auto()
    """Every node that was named has answered."""
    LOSE = auto()
    """A responsible node does not have the subscription, or has it with other options."""
    CONFIRMED = auto()
    """Every responsible node has the subscription."""
    END = auto()
    """The application has ended it, or it failed."""


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.DISCOVERING, Event.DISCOVER): State.DISCOVERING,
    (State.DISCOVERING, Event.ANSWERED): State.SUBSCRIBING,
    (State.DISCOVERING, Event.END): State.ENDED,
    (State.SUBSCRIBING, Event.DISCOVER): State.DISCOVERING,
    (State.SUBSCRIBING, Event.MISS): State.DISCOVERING,
    (State.SUBSCRIBING, Event.CONFIRMED): State.COMPLETE,
    (State.SUBSCRIBING, Event.END): State.ENDED,
    (State.COMPLETE, Event.DISCOVER): State.DISCOVERING,
    (State.COMPLETE, Event.MISS): State.DISCOVERING,
    (State.COMPLETE, Event.LOSE): State.SUBSCRIBING,
    (State.COMPLETE, Event.END): State.ENDED,
}


@dataclass(slots=True, eq=False)
class Subscription:
    """A filter with its listeners and owners.

    - `listeners`: the listeners' options by id.
    - `waiting`: the listeners that were not told yet that it is complete.
    - `restarts`: discoveries since it was last complete.
    - `reason`: that of the last refusal.
    - `links`: the sessions in which a node may have it, also a node from which nothing is awaited any more.
    - `was_missing`: a node did not have it before, or may not have had it. Every SUBACK counts, because a
      later answer reports what an earlier SUBSCRIBE has made (§6.4).
    - `was_complete`: all nodes had answered once.
    """

    filter: str
    group: str = ""
    listeners: Listeners = field(default_factory=Listeners)
    waiting: set[int] = field(default_factory=set)
    machine: Machine[State, Event] = field(default_factory=lambda: Machine(TRANSITIONS, State.DISCOVERING))
    entry: SubscriptionOwner | None = None
    by_node: dict[str, SubscriptionOwner] = field(default_factory=dict)
    restarts: int = 0
    reason: int = 0
    links: set[int] = field(default_factory=set)
    was_missing: bool = False
    was_complete: bool = False

    def restart(self) -> list[SubscriptionOwner]:
        """Begins a new discovery. Returns the owners that are forgotten: all that do not have the
        subscription."""
        self.machine.handle(Event.DISCOVER)
        dropped = [at for at in self.everyone if at.state is not owner.State.ACTIVE]
        self.by_node = {node: at for node, at in self.by_node.items() if at.state is owner.State.ACTIVE}
        for at in self.by_node.values():
            at.begin_anew()
        return dropped

    def settle(self) -> None:
        """Notes that every listener was told that it is complete."""
        self.was_complete = True
        self.waiting.clear()
        for at in self.by_node.values():
            at.served = owner.NONE

    def lose(self, link: int) -> None:
        """A session's link ended. If a SUBSCRIBE there was not answered, the node may have made the
        subscription, and its next answer would report that as resumed."""
        has_answered = any(at.link == link and at.served for at in self.by_node.values())
        if link in self.links and not has_answered and not self.was_complete:
            self.was_missing = True
        self.links.discard(link)

    def name(self, node: str, address: Address) -> SubscriptionOwner:
        """Adds a node that was named for the first time, and is expected to answer."""
        named = SubscriptionOwner(self, node, address, Machine(owner.TRANSITIONS, owner.State.EXPECTED))
        self.by_node[node] = named
        return named

    def review(self) -> None:
        """Updates the state from the states of the owners."""
        # Nodes that were named last answer last, so the reverse order finds a missing answer soon.
        everyone = self.everyone[::-1]
        has_answered = all(at.has_answered for at in everyone)
        is_settled = all(at.is_settled for at in everyone)
        for event, holds in (
            (Event.MISS, not has_answered),
            (Event.ANSWERED, has_answered),
            (Event.LOSE, has_answered and not is_settled),
            (Event.CONFIRMED, is_settled),
        ):
            if holds and self.machine.accepts(event):
                self.machine.handle(event)

    @property
    def everyone(self) -> list[SubscriptionOwner]:
        """The entry, and all nodes that were named."""
        return [*self.by_node.values()] if self.entry is None else [self.entry, *self.by_node.values()]

    @property
    def is_discovering(self) -> bool:
        """Whether the answer of a named node is missing."""
        return self.machine.state is State.DISCOVERING

    @property
    def is_complete(self) -> bool:
        """Whether every owner has it."""
        return self.machine.state is State.COMPLETE

    @property
    def options(self) -> Options:
        """The options that satisfy every listener. Each listener asks for its retained messages itself."""
        wanted = self.listeners.kinds
        return Options(
            qos=max(options.qos for options in wanted),
            no_local=all(options.no_local for options in wanted),
            retain_as_published=any(options.retain_as_published for options in wanted),
            overflow=max(options.overflow for options in wanted),
            queue_messages=max(options.queue_messages for options in wanted),
            queue_bytes=max(options.queue_bytes for options in wanted),
        )

    def packet(self, session_options: SessionOptions, listener: int = 0) -> pb.Subscribe:
        """The SUBSCRIBE that satisfies every listener, in the name of one of them or (0) of all."""
        options = self.options
        return pb.Subscribe(
            filter=self.filter,
            qos=pb.Qos.Name(options.qos),
            no_local=options.no_local,
            retain_as_published=options.retain_as_published,
            retain_handling=pb.RetainHandling.Name(self._retain_handling(listener)),
            client=session_options.client,
            group=self.group,
            session_expiry_s=session_options.expiry_s,
            overflow=pb.Overflow.Name(options.overflow),
            queue_messages=options.queue_messages,
            queue_bytes=options.queue_bytes,
            listener=listener,
        )

    def _retain_handling(self, listener: int) -> int:
        """As a waiting listener has it. For all others only retained messages of a new subscription are
        wanted."""
        if listener in self.waiting:
            return self.listeners[listener].retain_handling
        least = min(options.retain_handling for options in self.listeners.kinds)
        return max(least, pb.RETAIN_HANDLING_SEND_IF_NEW)

    @property
    def key(self) -> Key:
        """Its key among the client's subscriptions."""
        return self.group, self.filter

    @property
    def title(self) -> str:
        """The filter as its user writes it."""
        return shared.joined(self.group, self.filter)

    @property
    def is_resumed(self) -> bool:
        """Whether every owner had it before this run of the client (§6.4)."""
        return bool(self.owners) and not self.was_missing

    @property
    def owners(self) -> tuple[str, ...]:
        """The names of the nodes that have it."""
        return tuple(sorted(node for node, at in self.by_node.items() if at.state is owner.State.ACTIVE))

    @property
    def silent(self) -> list[SubscriptionOwner]:
        """The nodes from which something is awaited."""
        return [at for at in self.everyone if not at.is_settled]
