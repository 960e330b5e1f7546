"""A deterministic network of recording cores (`fakes`), in virtual time.

It keeps the guarantees of the link layer: packets in a session arrive once and in order, and a packet that
cannot arrive ends the link. Packets outside of a session are lost, duplicated and reordered as `Faults` says.
One seed gives one run.
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
"""The shortest and the longest delay of a packet, in microseconds."""


@dataclass(slots=True)
class Faults:
    """Probabilities for a packet outside of a session."""

    loss: float = 0.0
    duplication: float = 0.0
    late: float = 0.0
    """The probability that the packet arrives up to a second late, and so out of order."""


@dataclass(slots=True)
class FakeLink:
    """A link with both its ends."""

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
    """Hosts by address, and the packets on their way between them."""

    unix_offset_us = 1_700_000_000 * timers.SECOND

    def __init__(self, seed: int = 0, faults: Faults | None = None) -> None:
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.now = 0
        self.hosts: dict[Address, FakeCore] = {}
        self.epochs: dict[str, int] = {}
        """The highest epoch under which any node ever held each subtree."""
        self.epochs_fell: list[str] = []
        self.has_changed = True
        """Whether the owners may have changed since `on_step` looked. Time alone changes nothing."""
        self.on_step: Callable[[], None] = lambda: None
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._links = count(1)
        self._cut: set[frozenset[Address]] = set()

    def attach(self, address: Address, *, is_node: bool = True) -> FakeCore:
        """Starts a host at this address. A host that was there before is dead."""
        core = FakeCore(self, address, self.random.getrandbits(64))
        self.hosts[address] = core
        self.has_changed = True
        return core

    def kill(self, address: Address) -> None:
        """Ends the process. Its peers notice after the idle timeout."""
        core = self.hosts[address]
        core.alive = False
        self.has_changed = True
        for fake_link in list(core.links.values()):
            self._end_later(fake_link, "timeout", timers.IDLE_TIMEOUT)

    def part(self, one: Address, other: Address) -> None:
        """Cuts the path between two hosts."""
        self._cut.add(frozenset((one, other)))
        for fake_link in list(self.hosts[one].links.values()):
            if fake_link.peer_of(self.hosts[one]).address == other:
                self._end_later(fake_link, "timeout", timers.IDLE_TIMEOUT)

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
        for link, fake_link in core.links.items():
            if fake_link.session == session and fake_link.peer_of(core).address == address:
                return link
        acceptor = self.hosts.get(address) or FakeCore(self, address, 0)
        fake_link = FakeLink(session, core, acceptor, next(self._links), next(self._links))
        core.links[fake_link.initiator_link] = fake_link
        if not acceptor.alive or address not in self.hosts or self._parted(core, acceptor):
            self._end_later(fake_link, "timeout", timers.IDLE_TIMEOUT)
        else:
            self._at(self._way(), lambda: self._accept(fake_link))
        return fake_link.initiator_link

    def carry(self, fake_link: FakeLink, sender: FakeCore, packet: bytes) -> None:
        receiver = fake_link.peer_of(sender)
        arrival = max(self.now + self._way(), fake_link.arrival.get(id(receiver), 0) + 1)
        fake_link.arrival[id(receiver)] = arrival

        def arrive() -> None:
            if not fake_link.open or self._parted(sender, receiver):
                return
            self._accept(fake_link)
            inbound = receiver is fake_link.acceptor
            link = fake_link.link_of(receiver)
            self._hand(receiver, ControlEvent(link, sender.address, packet, inbound))

        self._at(arrival - self.now, arrive)

    def cast(self, sender: FakeCore, address: Address, packet: bytes) -> None:
        copies = 1 + (self.random.random() < self.faults.duplication)
        for _ in range(copies):
            if self.random.random() < self.faults.loss:
                continue
            late = self.random.randrange(timers.SECOND) if self.random.random() < self.faults.late else 0
            self._at(self._way() + late, lambda: self._arrive(sender, address, packet))

    def end(self, fake_link: FakeLink, reason: str) -> None:
        if not fake_link.open:
            return
        fake_link.open = False
        for core in (fake_link.initiator, fake_link.acceptor):
            link = fake_link.link_of(core)
            if core.links.pop(link, None) is None:
                continue
            if not core.opened.get(fake_link.session, False):
                core.end_session(fake_link.session)
            inbound = core is fake_link.acceptor
            peer = fake_link.peer_of(core).address
            event = LinkDownEvent(link, peer, fake_link.session, inbound, reason)
            self._at(1, partial(self._hand, core, event))

    def _arrive(self, sender: FakeCore, address: Address, packet: bytes) -> None:
        receiver = self.hosts.get(address)
        if receiver is not None and not self._parted(sender, receiver):
            self._hand(receiver, ControlEvent(None, sender.address, packet, True))

    def _accept(self, fake_link: FakeLink) -> None:
        if fake_link.accepted or not fake_link.open or not fake_link.acceptor.alive:
            return
        fake_link.accepted = True
        session, initiator, acceptor = fake_link.session, fake_link.initiator, fake_link.acceptor
        acceptor.links[fake_link.acceptor_link] = fake_link
        self._hand(acceptor, LinkUpEvent(fake_link.acceptor_link, initiator.address, session, True))
        self._hand(initiator, LinkUpEvent(fake_link.initiator_link, acceptor.address, session, False))

    def _hand(self, core: FakeCore, event: Event) -> None:
        if core.alive and core.control is not None:
            core.control.handle_event(self.now, event)

    def _live(self) -> list[Control]:
        return [c.control for c in self.hosts.values() if c.alive and c.control is not None]

    def _parted(self, one: FakeCore, other: FakeCore) -> bool:
        apart = frozenset((one.address, other.address)) in self._cut
        return apart or not one.alive or not other.alive

    def _end_later(self, fake_link: FakeLink, reason: str, after: int) -> None:
        self._at(after, lambda: self.end(fake_link, reason))

    def _way(self) -> int:
        return self.random.randint(*DELAY)

    def _at(self, after: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + after, next(self._order), action))

    def restarted(self, address: Address) -> None:
        """The peers of a host that restarted notice it with their next keep-alive (§3.6)."""
        for core in list(self.hosts.values()):
            for fake_link in list(core.links.values()):
                peer = fake_link.peer_of(core)
                if peer.address == address and not peer.alive:
                    self._end_later(fake_link, "restarted", self.random.randrange(timers.KEEP_ALIVE))
