"""The result of the demo: packets between brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hbroker.capture.packet_counts import PacketCounts
    from hbroker.demo.house import Node

__all__ = ["on_capture"]


def on_capture(
    packet_counts: PacketCounts | None, nodes: tuple[Node, ...], refusal: str | None
) -> Iterator[str]:
    """Lines about the packets between brokers: no PUBLISH may go from broker to broker."""
    if packet_counts is None:
        yield f"Not captured: {refusal or 'the capture failed'}."
        yield "The counters above are the nodes' own: each took in the messages of its subtree alone."
        return
    brokers = {node.address for node in nodes}
    seen = packet_counts.seen("PUBLISH")
    yield f"PUBLISH packets on the loopback interface: {seen}, in {packet_counts.datagrams} datagrams"
    yield f"PUBLISH packets between broker addresses:  {packet_counts.between('PUBLISH', brokers)}"
    control = sum(
        count
        for (source, destination, kind), count in packet_counts.counts.items()
        if source in brokers and destination in brokers and kind not in ("PUBLISH", "")
    )
    yield f"control packets between broker addresses:  {control}"
    if packet_counts.missed:
        yield f"(The capture missed {packet_counts.missed} datagrams: these numbers are too low.)"
