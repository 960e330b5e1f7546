"""The results of the demo: messages by watcher, and packets between brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hbroker.capture.packet_counts import PacketCounts
    from hbroker.demo.house import Node
    from hbroker.demo.life import Progress

__all__ = ["on_capture", "on_life"]


def on_life(progress: Progress) -> Iterator[str]:
    """Lines about the published and received messages."""
    by_qos = ", ".join(f"{count} at QoS {qos}" for qos, count in sorted(progress.published.items()))
    yield f"published {progress.published.total()} messages ({by_qos or 'none'}), {progress.failed} failed"
    for watch in progress.watches:
        owners = ", ".join(watch.owners)
        yield f"  {watch.filter:<20} QoS {watch.qos}: {watch.received:>6} received from {owners}"


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
