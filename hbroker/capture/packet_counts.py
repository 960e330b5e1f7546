"""Packets counted by source, destination and name.

The network promises that no message goes from broker to broker. Here that is a number: the PUBLISH packets
whose source and destination are both brokers. It proves something only together with the number of all
packets, and the number of datagrams that the capture missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from hbroker.addresses import Address


@dataclass(slots=True)
class PacketCounts:
    """Counts by source, destination, and name of the packet."""

    datagrams: int = 0
    missed: int = 0
    """Datagrams that the capture missed. If there are any, a count of zero proves nothing."""
    counts: Counter[tuple[Address, Address, str]] = field(default_factory=Counter)

    def add(self, source: Address, destination: Address, kinds: Iterable[str]) -> None:
        """Counts one datagram and its packets."""
        self.datagrams += 1
        for kind in kinds:
            self.counts[source, destination, kind] += 1

    def seen(self, kind: str) -> int:
        """The number of packets with this name."""
        return sum(count for (_, _, name), count in self.counts.items() if name == kind)

    def between(self, kind: str, places: Collection[Address]) -> int:
        """The number of packets with this name whose source and destination are both among `places`."""
        return sum(
            count
            for (source, destination, name), count in self.counts.items()
            if name == kind and source in places and destination in places
        )

    def to_json(self) -> dict[str, Any]:
        """The counts, ready for json.dumps."""
        flows = [
            {"source": list(source), "destination": list(destination), "packet": name, "count": count}
            for (source, destination, name), count in sorted(self.counts.items())
        ]
        return {"datagrams": self.datagrams, "missed": self.missed, "flows": flows}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> PacketCounts:
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError for anything else."""
        packet_counts = cls(entry["datagrams"], entry["missed"])
        for flow in entry["flows"]:
            (source_ip, source_port), (ip, port) = flow["source"], flow["destination"]
            packet_counts.counts[(source_ip, source_port), (ip, port), flow["packet"]] = flow["count"]
        return packet_counts
