"""Virtual time, and datagrams on their way.

The world has one heap of events: a datagram arrives, or a host's deadline passes. It takes the earliest, lets
the host act, and puts what the host sends on its path. Only the world advances time.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import Event
from hbroker.protocol.resolution.caches import AnswerCache, OwnerCache

from .paths import CLEAR, Faults

if TYPE_CHECKING:
    from .hosts import Host
    from .security import SimulatedSecurity

__all__ = ["START", "Datagram", "World"]

Address = tuple[str, int]

START: Final = 1_700_000_000_000_000
"""The time at which a world begins: microseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """One datagram: the time at which it left, source, destination, and bytes.

    `security`: what opens it, if it is sealed; None: it is not.
    """

    at: int
    source: Address
    destination: Address
    data: bytes
    security: SimulatedSecurity | None = None

    def decode(self) -> pb.Datagram:
        """The datagram, decoded by Python's protobuf, which is independent of the codec under test. Empty: it
        belongs to a handshake."""
        return pb.Datagram.FromString(self._opened() or b"")

    def kinds(self) -> list[str]:
        """The names of the packets in it, in order; for AUTHENTICATED (§5.5), that of the packet inside."""
        if self._opened() is None:
            return ["handshake"]
        return [_kind(packet) for packet in self.decode().packets]

    def _opened(self) -> bytes | None:
        if self.security is None:
            return self.data
        opened = self.security.open(self.data)
        return None if opened is None else opened.data


def _kind(packet: pb.Packet) -> str:
    proved = packet.authenticated.packet
    return _kind(pb.Packet.FromString(proved)) if proved else packet.WhichOneof("body") or ""


class World:
    """Hosts, the paths between them, and the time.

    `faults` holds for all paths, unless `path` is set: it returns the faults of a datagram, or None to drop
    it. `security`: with what hosts seal their datagrams; None: they do not.
    """

    def __init__(self, seed: int, faults: Faults = CLEAR, security: SimulatedSecurity | None = None) -> None:
        self.random = Random(seed)
        self.now = START
        self.faults = faults
        self.security = security
        self.path: Callable[[Datagram], Faults | None] | None = None
        self.on_datagram: Callable[[Datagram], None] | None = None
        """Called for each datagram that leaves a host, before its path decides."""
        self.on_acted: Callable[[Host], None] = lambda host: None
        """Called when a host has acted."""
        self.on_event: Callable[[Host, Event], None] = lambda host, event: None
        """Called for each event of an engine, before its control handles it."""
        self.on_record: Callable[[Host], None] | None = None
        """Called when a node has written a record to one of its files."""
        self.sent_bytes: Counter[tuple[Address, Address]] = Counter()
        self.hosts: dict[Address, Host] = {}
        self.owner_cache = OwnerCache(0)
        """What clients know of the nodes together, as the pool clients of a gateway do. This one learns
        nothing."""
        self.answer_cache = AnswerCache(0)
        """What owners answered them. (With another client's token, a link opens one round trip later:
        §3.6.)"""
        self._due: list[tuple[int, int, Host, Datagram | None]] = []
        self._sequence = 0
        self._next_port = 7_700

    @property
    def age(self) -> int:
        """Microseconds since this world began."""
        return self.now - START

    def new_address(self) -> Address:
        """An address that no host has."""
        self._next_port += 1
        return ("10.0.0.1", self._next_port)

    def add(self, host: Host) -> None:
        """Adds a host at its address."""
        self.hosts[host.address] = host
        self.drive(host)

    def remove(self, host: Host) -> None:
        """Removes a host, as if its process had been killed: datagrams to it are lost."""
        del self.hosts[host.address]

    def move(self, host: Host) -> None:
        """Gives a host another address, as a NAT or another network does.

        The host does not learn of it. Datagrams to the former address are lost.
        """
        del self.hosts[host.address]
        host.address = self.new_address()
        self.hosts[host.address] = host

    def inject(self, source: Address, destination: Address, data: bytes) -> None:
        """Sends a datagram from any source, over its path."""
        self._send(Datagram(self.now, source, destination, data, self.security))

    def drive(self, host: Host) -> None:
        """Lets a host act, sends what it sends, and notes its next deadline."""
        if host.is_stopped:
            return
        host.process_events()
        for destination, data in host.poll_transmit():
            self._send(Datagram(self.now, host.address, destination, data, self.security))
        deadline = host.poll_timeout()
        if deadline is not None and (host.scheduled is None or deadline < host.scheduled):
            host.scheduled = max(deadline, self.now + 1)
            self._push(host.scheduled, host, None)
        self.on_acted(host)
        host.has_decided = False

    def step(self) -> bool:
        """Handles the next event. False: there is none."""
        if not self._due:
            return False
        at, _, host, datagram = heapq.heappop(self._due)
        self.now = max(self.now, at)
        if self.hosts.get(host.address if datagram is None else datagram.destination) is not host:
            return True
        if datagram is None:
            if host.scheduled != at:
                return True
            host.scheduled = None
            host.handle_timeout()
        elif datagram.destination == host.address:
            host.handle_datagram(datagram.source, datagram.data)
        self.drive(host)
        return True

    def run(self, microseconds: int) -> None:
        """Lets time pass."""
        end = self.now + microseconds
        while self._due and self._due[0][0] <= end:
            self.step()
        self.now = end

    def run_until(self, done: Callable[[], bool], within: int = 60_000_000) -> None:
        """Lets time pass until `done`. Raises TimeoutError after `within` microseconds."""
        end = self.now + within
        while not done():
            if not self._due or self._due[0][0] > end:
                raise TimeoutError(f"not done within {within / 1e6:g} s of virtual time")
            self.step()

    def _send(self, datagram: Datagram) -> None:
        self.sent_bytes[datagram.source, datagram.destination] += len(datagram.data)
        if self.on_datagram is not None:
            self.on_datagram(datagram)
        faults = self.faults if self.path is None else self.path(datagram)
        host = self.hosts.get(datagram.destination)
        if faults is None or host is None:
            return
        for at in faults.arrivals(self.random, self.now, len(datagram.data)):
            if not faults.damages(self.random):
                self._push(at, host, datagram)

    def _push(self, at: int, host: Host, datagram: Datagram | None) -> None:
        self._sequence += 1
        heapq.heappush(self._due, (at, self._sequence, host, datagram))
