"""One filter's subscription at all its owners, and when it is complete (§6).

The subscription is complete when *every node in any `passed_to` has given an answer that stands for all
delegations by which it was named, and every responsible node has said `active`* (§6.2). So it has one
`SubscriptionOwner` for each node that was named, and one for its entry, the root, whose answer names the
first nodes. The rule is evaluated after each change of an owner, so there is no count to get wrong.

The application may subscribe to one filter several times. For the network that is one subscription, with the
options of its most demanding listeners.

What a node answers about its jurisdiction comes in one SUBACK or in several parts (§6.1). Outside of a
session each part may be lost. The request is repeated until all parts have arrived. Parts of two answers
complete each other if their `list` is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import auto
from functools import lru_cache
from typing import Any, Final

from hbroker._proto import packet_pb2 as pb
from hbroker.addresses import format_address
from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.requests import Request
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.protocol.state_machine import StateMachine, Symbol
from hbroker.protocol.subscriptions import shared
from hbroker.protocol.subscriptions.client.options import Key, Listeners, Options
from hbroker.subtree import depth, prefixes

__all__ = [
    "OWNER",
    "SUBSCRIPTION",
    "ClientSubscription",
    "OwnerEvent",
    "OwnerState",
    "SubackAnswer",
    "SubackAnswerParts",
    "SubscriptionEvent",
    "SubscriptionOwner",
    "SubscriptionState",
]

MOST_ANSWER_PARTS: Final = 10_000
_NONE: Final[set[str]] = set()
_NO_CUTS: Final[dict[str, int]] = {}
"""One empty object of each kind for all answers: most have no cuts, and arrive in one part."""

_MOST_CUTS: Final = 1_000
_EMPTY: Final[frozenset[Any]] = frozenset()
"""One empty set for all owners, most of which have empty sets."""


@dataclass(frozen=True, slots=True)
class SubackAnswer:
    """The subtrees that a node holds, and its cuts as (subtree: epoch), as far as a filter touches them."""

    held: AbstractSet[str] = frozenset()
    cuts: Mapping[str, int] = field(default_factory=lambda: _NO_CUTS)

    def accounts_for(self, subtree: str, epoch: int) -> bool:
        """Whether the answer stands for a delegation by which the node was named (§6.1): the node holds the
        subtree itself, or has delegated exactly this subtree under a higher epoch."""
        for around in reversed([*prefixes(subtree, depth(subtree))]):
            if around in self.held:
                return True
            if around in self.cuts:
                return around == subtree and self.cuts[around] > epoch
        return False

    def with_change(self, change: SubackAnswer) -> SubackAnswer:
        """This answer with an unsolicited SUBACK, which lists all subtrees that are held now, and only the
        new cuts (§6.3)."""
        before = {subtree: epoch for subtree, epoch in self.cuts.items() if subtree not in change.held}
        return SubackAnswer(change.held, {**before, **change.cuts})


NO_ANSWER: Final = SubackAnswer()
"""Of a node that has not answered: one for all of them."""


@dataclass(slots=True)
class SubackAnswerParts:
    """The parts of one node's answer. `answer`: the last complete answer."""

    list: int = 0
    missing: set[int] | None = None
    """None: no part of a split answer has arrived."""
    held: set[str] = field(default_factory=lambda: _NONE)
    cuts: dict[str, int] = field(default_factory=lambda: _NO_CUTS)
    answer: SubackAnswer = field(default_factory=lambda: NO_ANSWER)

    def add_part(self, suback: pb.SubAck) -> bool:
        """Adds one part. Returns whether the answer is complete. A part with another `list` begins a new
        answer."""
        if suback.parts > MOST_ANSWER_PARTS:
            return False
        held, cuts = suback.held, {cut.subtree: cut.epoch for cut in suback.passed_to}
        if not suback.parts:
            self.missing = None
            self.answer = SubackAnswer(_shared(tuple(held)), cuts or _NO_CUTS)
            return True
        if self.missing is None or self.list != suback.list:
            self.list, self.missing = suback.list, set(range(suback.parts))
            self.held, self.cuts = set(), {}
        self.missing.discard(suback.part)
        self.held.update(held)
        self.cuts.update(cuts)
        if not self.missing:
            self.answer = SubackAnswer(self.held, self.cuts)
        return not self.missing


@lru_cache(maxsize=1_024)
def _shared(held: tuple[str, ...]) -> frozenset[str]:
    """One object for all clients of a gateway, which get the same answer from a node."""
    return frozenset(held)


class OwnerState(Symbol):
    """What the client waits for from this node."""

    EXPECTED = auto()
    """For the answer to a SUBSCRIBE that another node forwarded to it."""
    ASKED = auto()
    """For the answer to a SUBSCRIBE that this client sent to it."""
    CLEAR = auto()
    """For nothing: no topic of its jurisdiction can match."""
    SUBSCRIBING = auto()
    """For the SUBACK within the session that says `active`."""
    ACTIVE = auto()
    """For nothing: it has the subscription."""
    BACKING_OFF = auto()
    """For the end of a pause, to make the subscription again."""


class OwnerEvent(Symbol):
    """What happens to a node's part."""

    EXPECT = auto()
    """Another node says that this one has a subtree now."""
    SILENCE = auto()
    """It did not answer in time: the client asks it directly, or again."""
    RESPONSIBLE = auto()
    """It says that it is responsible."""
    NOT_RESPONSIBLE = auto()
    """It says that it is not, or not any more."""
    ACTIVATE = auto()
    """It says that the subscription is active."""
    RENEW = auto()
    """The options of the subscription changed."""
    DEFER = auto()
    """It asks the client to come back later."""
    LINK_DOWN = auto()
    """The link to it ended, and with it the subscription."""
    RESUME = auto()
    """The pause is over."""


OWNER: Final[dict[tuple[OwnerState, OwnerEvent], OwnerState]] = {
    (OwnerState.EXPECTED, OwnerEvent.SILENCE): OwnerState.ASKED,
    (OwnerState.EXPECTED, OwnerEvent.RESPONSIBLE): OwnerState.SUBSCRIBING,
    (OwnerState.EXPECTED, OwnerEvent.NOT_RESPONSIBLE): OwnerState.CLEAR,
    (OwnerState.EXPECTED, OwnerEvent.ACTIVATE): OwnerState.ACTIVE,
    (OwnerState.ASKED, OwnerEvent.SILENCE): OwnerState.ASKED,
    (OwnerState.ASKED, OwnerEvent.RESPONSIBLE): OwnerState.SUBSCRIBING,
    (OwnerState.ASKED, OwnerEvent.NOT_RESPONSIBLE): OwnerState.CLEAR,
    (OwnerState.ASKED, OwnerEvent.ACTIVATE): OwnerState.ACTIVE,
    (OwnerState.CLEAR, OwnerEvent.EXPECT): OwnerState.EXPECTED,
    (OwnerState.CLEAR, OwnerEvent.SILENCE): OwnerState.ASKED,
    (OwnerState.CLEAR, OwnerEvent.RESPONSIBLE): OwnerState.SUBSCRIBING,
    (OwnerState.CLEAR, OwnerEvent.NOT_RESPONSIBLE): OwnerState.CLEAR,
    (OwnerState.CLEAR, OwnerEvent.ACTIVATE): OwnerState.ACTIVE,
    (OwnerState.SUBSCRIBING, OwnerEvent.RESPONSIBLE): OwnerState.SUBSCRIBING,
    (OwnerState.SUBSCRIBING, OwnerEvent.NOT_RESPONSIBLE): OwnerState.CLEAR,
    (OwnerState.SUBSCRIBING, OwnerEvent.ACTIVATE): OwnerState.ACTIVE,
    (OwnerState.SUBSCRIBING, OwnerEvent.RENEW): OwnerState.SUBSCRIBING,
    (OwnerState.SUBSCRIBING, OwnerEvent.DEFER): OwnerState.BACKING_OFF,
    (OwnerState.SUBSCRIBING, OwnerEvent.LINK_DOWN): OwnerState.BACKING_OFF,
    (OwnerState.ACTIVE, OwnerEvent.RESPONSIBLE): OwnerState.ACTIVE,
    (OwnerState.ACTIVE, OwnerEvent.NOT_RESPONSIBLE): OwnerState.CLEAR,
    (OwnerState.ACTIVE, OwnerEvent.ACTIVATE): OwnerState.ACTIVE,
    (OwnerState.ACTIVE, OwnerEvent.RENEW): OwnerState.SUBSCRIBING,
    (OwnerState.ACTIVE, OwnerEvent.LINK_DOWN): OwnerState.BACKING_OFF,
    (OwnerState.BACKING_OFF, OwnerEvent.RESPONSIBLE): OwnerState.BACKING_OFF,
    (OwnerState.BACKING_OFF, OwnerEvent.NOT_RESPONSIBLE): OwnerState.CLEAR,
    (OwnerState.BACKING_OFF, OwnerEvent.RESUME): OwnerState.SUBSCRIBING,
}


@dataclass(slots=True, eq=False)
class SubscriptionOwner:
    """A node, as one subscription knows it.

    - `cuts`: the delegations (subtree, epoch) by which other nodes named it.
    - `announced`: those of them that an owner announced whose cuts were known, by an unsolicited SUBACK.
    - `answer`: its last answer, amended by the unsolicited SUBACKs since. `solicited`: without these.
    - `unaccounted`: the delegations for which its answer does not stand (§6.1, §6.2).
    - `discovery_request`: the request outside of a session.
    - `parts`: the parts of its answer to that; `session_parts`: those within the session.
    - `link`: the link of the session.
    - `pending`: the SUBSCRIBEs within the session that wait for an answer, with the listener of each.
    - `answered_listeners`: the listeners for which it has answered, until the subscription is complete.
    - `failures`: pauses since it was last active.
    """

    subscription: ClientSubscription
    node: str
    address: Address
    state_machine: StateMachine[OwnerState, OwnerEvent]
    cuts: set[tuple[str, int]] = field(default_factory=set)
    announced: AbstractSet[tuple[str, int]] = _EMPTY
    answer: SubackAnswer = field(default_factory=lambda: NO_ANSWER)
    solicited: SubackAnswer = field(default_factory=lambda: NO_ANSWER)
    unaccounted: AbstractSet[tuple[str, int]] = _EMPTY
    discovery_request: Request[SubscriptionOwner] | None = None
    parts: SubackAnswerParts = field(default_factory=SubackAnswerParts)
    session_parts: SubackAnswerParts = field(default_factory=SubackAnswerParts)
    link: int | None = None
    pending: dict[int, int] = field(default_factory=dict)
    answered_listeners: AbstractSet[int] = _EMPTY
    failures: int = 0

    def add_cut(self, cut: tuple[str, int], *, is_announced: bool = False) -> bool:
        """Adds a delegation by which the node was named. False: it was known."""
        if cut in self.cuts or len(self.cuts) >= _MOST_CUTS:
            return False
        self.cuts.add(cut)
        if is_announced:
            self.announced = {*self.announced, cut}
        if not self._accounts_for(cut):
            self.unaccounted = {*self.unaccounted, cut}
        return True

    def set_answer(self, answer: SubackAnswer) -> None:
        """Replaces its last answer, by one to a SUBSCRIBE."""
        self.solicited = answer
        self._set_answer(answer)

    def amend_answer(self, change: SubackAnswer) -> None:
        """Amends its last answer by an unsolicited SUBACK (§6.3)."""
        self._set_answer(self.answer.with_change(change))

    def reset(self) -> None:
        """Forgets its answer, and the delegations by which it was named."""
        self.cuts.clear()
        self.announced = _EMPTY
        self.parts, self.session_parts = SubackAnswerParts(), SubackAnswerParts()
        self.set_answer(NO_ANSWER)

    def _set_answer(self, answer: SubackAnswer) -> None:
        self.answer = answer
        self.unaccounted = {cut for cut in self.cuts if not self._accounts_for(cut)} or _EMPTY

    def _accounts_for(self, cut: tuple[str, int]) -> bool:
        """Whether its answer stands for a delegation, and the cuts in the delegated subtree are known (§6.2):
        from the owner before, or from an answer of this node to a SUBSCRIBE."""
        is_known = cut in self.announced or self.solicited.accounts_for(*cut)
        return is_known and self.answer.accounts_for(*cut)

    @property
    def text(self) -> str:
        """The node for error messages."""
        address = format_address(self.address)
        return f"{self.node} ({address})" if self.node else address

    @property
    def state(self) -> OwnerState:
        """What the client waits for from this node."""
        return self.state_machine.state

    @property
    def is_awaited(self) -> bool:
        """Whether it has not answered yet whether it is responsible."""
        return self.state_machine.state in (OwnerState.EXPECTED, OwnerState.ASKED)

    @property
    def knows_cuts(self) -> bool:
        """Whether its cuts are known, because no request to it is open. Unsolicited SUBACKs name only
        changes."""
        return self.state_machine.state in (OwnerState.CLEAR, OwnerState.ACTIVE)

    @property
    def withholds_cuts(self) -> bool:
        """Whether only an unsolicited SUBACK stands for a delegation: cuts may have moved along, and only an
        answer to a SUBSCRIBE names these (§6.2)."""
        return any(self.answer.accounts_for(*cut) for cut in self.unaccounted)

    @property
    def has_answered(self) -> bool:
        """Whether its answer stands for all delegations by which it was named."""
        return not self.is_awaited and not self.unaccounted

    @property
    def is_settled(self) -> bool:
        """Whether nothing is awaited from it."""
        return self.state_machine.state in (OwnerState.CLEAR, OwnerState.ACTIVE) and not self.unaccounted


class SubscriptionState(Symbol):
    """What a subscription waits for."""

    DISCOVERING = auto()
    """For the answers of all nodes that were named."""
    SUBSCRIBING = auto()
    """For the confirmations of all responsible nodes."""
    COMPLETE = auto()
    """For nothing."""
    ENDED = auto()


class SubscriptionEvent(Symbol):
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


SUBSCRIPTION: Final[dict[tuple[SubscriptionState, SubscriptionEvent], SubscriptionState]] = {
    (SubscriptionState.DISCOVERING, SubscriptionEvent.DISCOVER): SubscriptionState.DISCOVERING,
    (SubscriptionState.DISCOVERING, SubscriptionEvent.ANSWERED): SubscriptionState.SUBSCRIBING,
    (SubscriptionState.DISCOVERING, SubscriptionEvent.END): SubscriptionState.ENDED,
    (SubscriptionState.SUBSCRIBING, SubscriptionEvent.DISCOVER): SubscriptionState.DISCOVERING,
    (SubscriptionState.SUBSCRIBING, SubscriptionEvent.MISS): SubscriptionState.DISCOVERING,
    (SubscriptionState.SUBSCRIBING, SubscriptionEvent.CONFIRMED): SubscriptionState.COMPLETE,
    (SubscriptionState.SUBSCRIBING, SubscriptionEvent.END): SubscriptionState.ENDED,
    (SubscriptionState.COMPLETE, SubscriptionEvent.DISCOVER): SubscriptionState.DISCOVERING,
    (SubscriptionState.COMPLETE, SubscriptionEvent.MISS): SubscriptionState.DISCOVERING,
    (SubscriptionState.COMPLETE, SubscriptionEvent.LOSE): SubscriptionState.SUBSCRIBING,
    (SubscriptionState.COMPLETE, SubscriptionEvent.END): SubscriptionState.ENDED,
}


@dataclass(slots=True, eq=False)
class ClientSubscription:
    """A filter with its listeners and owners.

    - `listeners`: the listeners' options by id.
    - `pending_listeners`: the listeners that were not told yet that it is complete.
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
    pending_listeners: set[int] = field(default_factory=set)
    state_machine: StateMachine[SubscriptionState, SubscriptionEvent] = field(
        default_factory=lambda: StateMachine(SUBSCRIPTION, SubscriptionState.DISCOVERING)
    )
    root_owner: SubscriptionOwner | None = None
    by_node: dict[str, SubscriptionOwner] = field(default_factory=dict)
    restarts: int = 0
    reason: int = 0
    links: set[int] = field(default_factory=set)
    was_missing: bool = False
    was_complete: bool = False

    def restart(self) -> list[SubscriptionOwner]:
        """Begins a new discovery. Returns the owners that are forgotten: all that do not have the
        subscription."""
        self.state_machine.handle(SubscriptionEvent.DISCOVER)
        dropped = [at for at in self.all_owners if at.state is not OwnerState.ACTIVE]
        self.by_node = {node: at for node, at in self.by_node.items() if at.state is OwnerState.ACTIVE}
        for at in self.by_node.values():
            at.reset()
        return dropped

    def set_complete(self) -> None:
        """Notes that every listener was told that it is complete."""
        self.was_complete = True
        self.pending_listeners.clear()
        for at in self.by_node.values():
            at.answered_listeners = _EMPTY

    def handle_link_down(self, link: int) -> None:
        """A session's link ended. If a SUBSCRIBE there was not answered, the node may have made the
        subscription, and its next answer would report that as resumed."""
        has_answered = any(at.link == link and at.answered_listeners for at in self.by_node.values())
        if link in self.links and not has_answered and not self.was_complete:
            self.was_missing = True
        self.links.discard(link)

    def add_named(self, node: str, address: Address) -> SubscriptionOwner:
        """Adds a node that was named for the first time, and is expected to answer."""
        named = SubscriptionOwner(self, node, address, StateMachine(OWNER, OwnerState.EXPECTED))
        self.by_node[node] = named
        return named

    def update_state(self) -> None:
        """Updates the state from the states of the owners."""
        # Nodes that were named last answer last, so the reverse order finds a missing answer soon.
        all_owners = self.all_owners[::-1]
        has_answered = all(at.has_answered for at in all_owners)
        is_settled = all(at.is_settled for at in all_owners)
        for event, holds in (
            (SubscriptionEvent.MISS, not has_answered),
            (SubscriptionEvent.ANSWERED, has_answered),
            (SubscriptionEvent.LOSE, has_answered and not is_settled),
            (SubscriptionEvent.CONFIRMED, is_settled),
        ):
            if holds and self.state_machine.accepts(event):
                self.state_machine.handle(event)

    @property
    def all_owners(self) -> list[SubscriptionOwner]:
        """The entry, and all nodes that were named."""
        return (
            [*self.by_node.values()] if self.root_owner is None else [self.root_owner, *self.by_node.values()]
        )

    @property
    def is_discovering(self) -> bool:
        """Whether the answer of a named node is missing."""
        return self.state_machine.state is SubscriptionState.DISCOVERING

    @property
    def is_complete(self) -> bool:
        """Whether every owner has it."""
        return self.state_machine.state is SubscriptionState.COMPLETE

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
        if listener in self.pending_listeners:
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
        return tuple(sorted(node for node, at in self.by_node.items() if at.state is OwnerState.ACTIVE))

    @property
    def pending_owners(self) -> list[SubscriptionOwner]:
        """The nodes from which something is awaited."""
        return [at for at in self.all_owners if not at.is_settled]
