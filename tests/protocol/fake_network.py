"""A deterministic network of recording cores (`fakes`), in virtual time.

What the link layer guarantees, it keeps: packets in a session arrive once and in order, and what cannot
arrive ends the link. Packets outside of a session are lost, doubled and reordered as `Faults` says. One seed
gives one run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from hbroker._native import ControlEvent, LinkDownEvent, LinkUpEvent
from hbroker.protocol import timers
from hbroker.protocol.packets import Address
from tests.protocol.fakes import Control, FakeCore

if TYPE_CHECKING:
    from hbroker.protocol.core import Event

DELAY = (200, 2_000)
"""Shortest and longest way of a packet, in microseconds."""


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
