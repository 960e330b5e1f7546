"""A control plane without a data plane: recording cores, joined by a deterministic network in virtual time.

What the link layer guarantees, the network keeps: packets in a session arrive once and in order, and what
cannot arrive ends the link. Packets outside of a session are lost, doubled and reordered as `Faults` says.
One seed gives one run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Protocol

from hbroker._native import (
    ControlEvent,
    LinkDownEvent,
    LinkUpEvent,
    filter_touches,
    topic_matches,
)
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.packets import Address, Cut
from hbroker.subtree import is_within

if TYPE_CHECKING:
    from hbroker._native import SessionStatus
    from hbroker.protocol.core import Event

DELAY = (200, 2_000)
"""Shortest and longest way of a packet, in microseconds."""


class Control(Protocol):
    def handle_event(self, now: int, event: Event) -> None: ...
    def handle_timeout(self, now: int) -> None: ...
    def poll_timeout(self) -> int | None: ...


@dataclass(slots=True)
class Faults:
    """Probabilities for a packet outside of a session."""

    loss: float = 0.0
    duplication: float = 0.0
    late: float = 0.0
    """To arrive up to a second late, and so out of order."""


@dataclass(slots=True)
class Conversation:
    """A link, seen from above: both its ends."""

    session: int
    initiator: FakeCore
    acceptor: FakeCore
    initiator_link: int
    acceptor_link: int
    accepted: bool = False
    open: bool = True
    arrival: dict[int, int] = field(default_factory=dict)

    def peer_of(self, core: FakeCore) -> FakeCore:
        return self.acceptor if core is self.initiator else self.initiator

    def link_of(self, core: FakeCore) -> int:
        return self.initiator_link if core is self.initiator else self.acceptor_link


class FakeCore:
    """The verbs of the native core over plain dictionaries."""

    def __init__(self, network: Network, address: Address, session: int) -> None:
        self.network = network
        self.address = address
        self.session = session
        self.incarnation = session
        self.control: Control | None = None
        self.alive = True
        self.links: dict[int, Conversation] = {}
        self.grants: dict[str, tuple[int, bool]] = {}
        self.cuts: dict[str, Cut] = {}
        self.opened: dict[int, bool] = {}
        """Whether each is persistent."""
        self.subscriptions: dict[tuple[int, str], int] = {}
        self.messages: dict[str, bytes] = {}
        self.retained_sent: list[tuple[int, str, int]] = []
        self.waiting: tuple[list[bytes], list[bytes]] = ([], [])
        """Serialised QueuedRecords and SeenRecords."""
        self.open_messages = 0

    def counters(self) -> dict[str, int]:
        return {"messages_in": 0, "drop.no_subscriber": 0}

    # Links

    def connect(self, address: Address, token: bytes = b"") -> int:
        return self.network.open(self, address, self.session)

    def adopt(self, session: int, address: Address) -> int:
        for link, conversation in self.links.items():
            if conversation.session == session:
                return link
        return self.network.open(self, address, session)

    def is_one_sided(self, link: int) -> bool:
        return False

    def peer_of(self, link: int) -> Address | None:
        return None

    def close(self, link: int) -> None:
        if link in self.links:
            self.network.end(self.links[link], "closed")

    def send(self, link: int, packet: bytes) -> bool:
        if link not in self.links:
            return False
        self.network.carry(self.links[link], self, packet)
        return True

    def send_to(self, address: Address, packet: bytes, token: bytes = b"", pad_to: int = 0) -> None:
        self.network.cast(self, address, packet)

    def token_for(self, address: Address) -> bytes:
        return f"{address[0]}:{address[1]}".encode()

    # Jurisdiction

    def grant(
        self,
        subtree: str,
        epoch: int,
        serving: bool,
        until_us: int | None = None,
        *,
        reserved: bool = False,
        gathering: bool = False,
    ) -> None:
        self.network.has_changed |= self.grants.get(subtree) != (epoch, serving)
        self.grants[subtree] = epoch, serving
        self.network.granted(self, subtree, epoch)

    def revoke(self, subtree: str) -> None:
        self.grants.pop(subtree, None)
        self.network.has_changed = True

    def cut(self, cut: Cut) -> None:
        self.network.has_changed |= cut[0] not in self.cuts
        self.cuts[cut[0]] = cut

    def uncut(self, subtree: str) -> None:
        del self.cuts[subtree]
        self.network.has_changed = True

    def serves(self, topic: str) -> bool:
        """Whether a PUBLISH to this topic is taken here (§7.2): by the longest subtree that holds it."""
        if not self.alive:
            return False
        levels = topic.split("/")
        for depth in range(len(levels), -1, -1):
            subtree = "/".join(levels[:depth])
            if subtree in self.cuts:
                return False
            if subtree in self.grants:
                return self.grants[subtree][1]
        return False

    # Subscriptions

    def sessions(self, most: int) -> list[SessionStatus]:
        return []

    def publish_raw(self, publish: bytes) -> bool:
        return True

    def open_session(self, session: int, *, persistent: bool, queue_messages: int, queue_bytes: int) -> bool:
        is_connected = any(conversation.session == session for conversation in self.links.values())
        if is_connected or persistent:
            self.opened[session] = persistent
        return session in self.opened

    def end_session(self, session: int, reason: str = "session_ended") -> None:
        self.opened.pop(session, None)
        for key in [key for key in self.subscriptions if key[0] == session]:
            del self.subscriptions[key]

    def subscribe(
        self,
        session: int,
        filter: str,
        qos: int,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        group: str = "",
        overflow: int = 0,
    ) -> bool:
        if session not in self.opened:
            return False
        is_new = (session, filter) not in self.subscriptions
        self.subscriptions[session, filter] = qos
        return is_new

    def unsubscribe(self, session: int, filter: str, group: str = "") -> bool:
        return self.subscriptions.pop((session, filter), None) is not None

    def send_retained(self, session: int, filter: str, qos: int, listener: int) -> int:
        self.retained_sent.append((session, filter, listener))
        return sum(topic_matches(filter, topic) for topic in self.messages)

    def retained(self, subtree: str) -> list[bytes]:
        return [m for topic, m in self.messages.items() if is_within(topic, subtree)]

    def take_retained(self, messages: Sequence[bytes]) -> int:
        for message in messages:
            publish = pb.Publish.FromString(message)
            if publish.payload:
                self.messages[publish.topic] = message
            else:
                self.messages.pop(publish.topic, None)
        return 0

    def drop_retained(self, subtree: str) -> None:
        for topic in [t for t in self.messages if is_within(t, subtree)]:
            del self.messages[topic]

    def drain_subtree(self, subtree: str) -> int:
        return self.open_messages

    def export_subtree(self, subtree: str) -> tuple[list[bytes], list[bytes]]:
        """What waits (all of it, whatever the subtree) is taken out."""
        exported, self.waiting = self.waiting, ([], [])
        return exported

    def import_records(self, queued: Sequence[bytes], seen: Sequence[bytes]) -> int:
        self.waiting[0].extend(queued)
        self.waiting[1].extend(seen)
        return 0

    def matching(self, topic: str) -> int:
        return sum(topic_matches(filter, topic) for _, filter in self.subscriptions)

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> int:
        if retain:
            message = pb.Publish(topic=topic, payload=payload, retain=True)
            self.take_retained([message.SerializeToString()])
        return 1

    # For tests

    def filters(self) -> list[str]:
        return sorted(filter for _, filter in self.subscriptions)

    def stores(self, filter: str) -> bool:
        return filter in self.filters()

    def touched_by(self, filter: str) -> bool:
        return any(filter_touches(filter, subtree) for subtree in self.grants)


class Network:
    """Hosts by address, and what is on its way between them."""

    unix_offset_us = 1_700_000_000 * timers.SECOND

    def __init__(self, seed: int = 0, faults: Faults | None = None) -> None:
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.now = 0
        self.hosts: dict[Address, FakeCore] = {}
        self.epochs: dict[str, int] = {}
        """The highest epoch that any node ever held of each subtree."""
        self.epochs_fell: list[str] = []
        self.has_changed = True
        """Whether who serves what may have changed since `on_step` looked. Time alone changes nothing."""
        self.on_step: Callable[[], None] = lambda: None
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._links = count(1)
        self._cut: set[frozenset[Address]] = set()

    def attach(self, address: Address, *, is_node: bool = True) -> FakeCore:
        """A host that starts at this address; one that was there before is dead."""
        core = FakeCore(self, address, self.random.getrandbits(64))
        self.hosts[address] = core
        self.has_changed = True
        return core

    def kill(self, address: Address) -> None:
        """The process is gone. Its peers find out when nobody answers."""
        core = self.hosts[address]
        core.alive = False
        self.has_changed = True
        for conversation in list(core.links.values()):
            self._end_later(conversation, "timeout", timers.IDLE_TIMEOUT)

    def part(self, one: Address, other: Address) -> None:
        """Cuts the path between two hosts."""
        self._cut.add(frozenset((one, other)))
        for conversation in list(self.hosts[one].links.values()):
            if conversation.peer_of(self.hosts[one]).address == other:
                self._end_later(conversation, "timeout", timers.IDLE_TIMEOUT)

    def heal(self) -> None:
        self._cut.clear()

    def run(self, duration: int) -> None:
        """Lets this much time pass."""
        end = self.now + duration
        while True:
            timeouts = [(control.poll_timeout(), control) for control in self._live()]
            when = min((t for t, _ in timeouts if t is not None), default=end + 1)
            if self._due and self._due[0][0] <= when:
                at, _, action = self._due[0]
                if at > end:
                    break
                heapq.heappop(self._due)
                self.now = max(self.now, at)
                action()
            elif when <= end:
                self.now = max(self.now, when)
                for timeout, control in timeouts:
                    if timeout is not None and timeout <= self.now:
                        control.handle_timeout(self.now)
            else:
                break
            if self.has_changed:
                self.has_changed = False
                self.on_step()
        self.now = end

    # Called by cores

    def granted(self, core: FakeCore, subtree: str, epoch: int) -> None:
        if epoch < self.epochs.get(subtree, 0):
            self.epochs_fell.append(subtree)
            self.has_changed = True
        self.epochs[subtree] = epoch

    def open(self, core: FakeCore, address: Address, session: int) -> int:
        for link, conversation in core.links.items():
            if conversation.session == session and conversation.peer_of(core).address == address:
                return link
        acceptor = self.hosts.get(address) or FakeCore(self, address, 0)
        conversation = Conversation(session, core, acceptor, next(self._links), next(self._links))
        core.links[conversation.initiator_link] = conversation
        if not acceptor.alive or address not in self.hosts or self._parted(core, acceptor):
            self._end_later(conversation, "timeout", timers.IDLE_TIMEOUT)
        else:
            self._at(self._way(), lambda: self._accept(conversation))
        return conversation.initiator_link

    def carry(self, conversation: Conversation, sender: FakeCore, packet: bytes) -> None:
        receiver = conversation.peer_of(sender)
        arrival = max(self.now + self._way(), conversation.arrival.get(id(receiver), 0) + 1)
        conversation.arrival[id(receiver)] = arrival

        def arrive() -> None:
            if not conversation.open or self._parted(sender, receiver):
                return
            self._accept(conversation)
            inbound = receiver is conversation.acceptor
            link = conversation.link_of(receiver)
            self._hand(receiver, ControlEvent(link, sender.address, packet, inbound))

        self._at(arrival - self.now, arrive)

    def cast(self, sender: FakeCore, address: Address, packet: bytes) -> None:
        copies = 1 + (self.random.random() < self.faults.duplication)
        for _ in range(copies):
            if self.random.random() < self.faults.loss:
                continue
            late = self.random.randrange(timers.SECOND) if self.random.random() < self.faults.late else 0
            self._at(self._way() + late, lambda: self._arrive(sender, address, packet))

    def end(self, conversation: Conversation, reason: str) -> None:
        if not conversation.open:
            return
        conversation.open = False
        for core in (conversation.initiator, conversation.acceptor):
            link = conversation.link_of(core)
            if core.links.pop(link, None) is None:
                continue
            if not core.opened.get(conversation.session, False):
                core.end_session(conversation.session)
            inbound = core is conversation.acceptor
            peer = conversation.peer_of(core).address
            event = LinkDownEvent(link, peer, conversation.session, inbound, reason)
            self._at(1, partial(self._hand, core, event))

    def _arrive(self, sender: FakeCore, address: Address, packet: bytes) -> None:
        receiver = self.hosts.get(address)
        if receiver is not None and not self._parted(sender, receiver):
            self._hand(receiver, ControlEvent(None, sender.address, packet, True))

    def _accept(self, conversation: Conversation) -> None:
        if conversation.accepted or not conversation.open or not conversation.acceptor.alive:
            return
        conversation.accepted = True
        session, initiator, acceptor = conversation.session, conversation.initiator, conversation.acceptor
        acceptor.links[conversation.acceptor_link] = conversation
        self._hand(acceptor, LinkUpEvent(conversation.acceptor_link, initiator.address, session, True))
        self._hand(initiator, LinkUpEvent(conversation.initiator_link, acceptor.address, session, False))

    def _hand(self, core: FakeCore, event: Event) -> None:
        if core.alive and core.control is not None:
            core.control.handle_event(self.now, event)

    def _live(self) -> list[Control]:
        return [c.control for c in self.hosts.values() if c.alive and c.control is not None]

    def _parted(self, one: FakeCore, other: FakeCore) -> bool:
        apart = frozenset((one.address, other.address)) in self._cut
        return apart or not one.alive or not other.alive

    def _end_later(self, conversation: Conversation, reason: str, after: int) -> None:
        self._at(after, lambda: self.end(conversation, reason))

    def _way(self) -> int:
        return self.random.randint(*DELAY)

    def _at(self, after: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + after, next(self._order), action))

    def restarted(self, address: Address) -> None:
        """The peers of a host that restarted notice with their next keep-alive (§3.6)."""
        for core in list(self.hosts.values()):
            for conversation in list(core.links.values()):
                peer = conversation.peer_of(core)
                if peer.address == address and not peer.alive:
                    self._end_later(conversation, "restarted", self.random.randrange(timers.KEEP_ALIVE))
