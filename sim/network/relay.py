"""The faults of the simulated network, for packets of real hosts.

A relay stands between hosts like a router. Whole IPv4 packets come in, and go out to the host of their
destination address, with the faults of `paths`: late, twice, out of order, damaged, or not at all. It changes
no address and no port, so the hosts notice only the faults. It has no clock and no socket; `hbroker.sim.lab`
provides both.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from .paths import CLEAR, Faults

__all__ = ["UDP_HEADER", "Path", "Relay", "Routes"]

Path: TypeAlias = tuple[str, str]
"""One direction between two hosts: the IPv4 addresses of sender and receiver, as text."""

UDP_HEADER: Final = 8


@dataclass(frozen=True, slots=True)
class Routes:
    """The faults of all paths.

    `faults`: of every path that is not in `exceptions`; None in `exceptions`: the path is cut.
    """

    faults: Faults = CLEAR
    exceptions: Mapping[Path, Faults | None] = field(default_factory=dict)

    def on(self, path: Path) -> Faults | None:
        """The faults of one path; None: it is cut."""
        return self.exceptions.get(path, self.faults)


class Relay:
    """Packets on their way between hosts. Times are microseconds and never decrease."""

    def __init__(self, seed: int, routes: Routes | None = None) -> None:
        self.routes = routes or Routes()
        """May be replaced at any time. Packets that are on their way are not affected."""
        self.counts: Counter[str] = Counter()
        """Packets that came `in`; of these, packets that were `cut` off or `lost`; `foreign` packets (not
        IPv4); copies that went `out`; and `damaged` copies."""
        self._random = Random(seed)
        self._under_way: list[tuple[int, int, str, bytes]] = []
        self._sequence = 0

    def handle_packet(self, now: int, packet: bytes) -> None:
        """A host sends a packet."""
        if len(packet) < 20 or packet[0] >> 4 != 4:
            self.counts["foreign"] += 1
            return
        self.counts["in"] += 1
        destination = _dotted(packet[16:20])
        faults = self.routes.on((_dotted(packet[12:16]), destination))
        if faults is None:
            self.counts["cut"] += 1
            return
        arrivals = faults.arrivals(self._random, now, _payload_bytes(packet))
        if not arrivals:
            self.counts["lost"] += 1
        for at in arrivals:
            self._sequence += 1
            copy = packet
            if faults.damages(self._random):
                self.counts["damaged"] += 1
                copy = _damaged(packet, self._random)
            heapq.heappush(self._under_way, (at, self._sequence, destination, copy))

    def poll_transmit(self, now: int) -> tuple[str, bytes] | None:
        """A packet that is due, and the address of its destination host; None: no packet is due."""
        if not self._under_way or self._under_way[0][0] > now:
            return None
        _, _, destination, packet = heapq.heappop(self._under_way)
        self.counts["out"] += 1
        return destination, packet

    def poll_timeout(self) -> int | None:
        """The time at which the next packet is due; None: there is none."""
        return self._under_way[0][0] if self._under_way else None


def _dotted(address: bytes) -> str:
    return f"{address[0]}.{address[1]}.{address[2]}.{address[3]}"


def _payload_bytes(packet: bytes) -> int:
    """The size of a datagram's payload, without the headers of IPv4 and UDP."""
    return max(len(packet) - _header_bytes(packet) - UDP_HEADER, 0)


def _header_bytes(packet: bytes) -> int:
    return (packet[0] & 0x0F) * 4


def _damaged(packet: bytes, random: Random) -> bytes:
    """The packet with one bit flipped that its UDP checksum covers."""
    damaged = bytearray(packet)
    damaged[random.randrange(min(_header_bytes(packet), len(packet) - 1), len(packet))] ^= (
        1 << random.randrange(8)
    )
    return bytes(damaged)
