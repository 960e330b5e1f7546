"""The texts in which the demo reports its results."""

from __future__ import annotations

from hbroker.capture.packet_counts import PacketCounts
from hbroker.demo import report
from hbroker.demo.house import Node

ROOT, KITCHEN, CLIENT = ("127.0.0.1", 7700), ("127.0.0.1", 7701), ("127.0.0.1", 40_001)
NODES = (Node("root", "", ROOT), Node("kitchen", "home/kitchen", KITCHEN))


def test_the_number_of_publish_packets_between_brokers_is_shown_with_the_total() -> None:
    packet_counts = PacketCounts()
    packet_counts.add(CLIENT, ROOT, ["PUBLISH"] * 3)
    packet_counts.add(KITCHEN, ROOT, ["JOIN"])
    text = "\n".join(report.on_capture(packet_counts, NODES, None))
    assert "loopback interface: 3, in 2 datagrams" in text
    assert "PUBLISH packets between broker addresses:  0" in text
    assert "control packets between broker addresses:  1" in text


def test_a_publish_between_brokers_is_shown() -> None:
    packet_counts = PacketCounts()
    packet_counts.add(ROOT, KITCHEN, ["PUBLISH"])
    assert "PUBLISH packets between broker addresses:  1" in "\n".join(
        report.on_capture(packet_counts, NODES, None)
    )


def test_missed_datagrams_are_shown() -> None:
    assert "missed 4 datagrams" in "\n".join(report.on_capture(PacketCounts(missed=4), NODES, None))


def test_a_capture_that_is_not_permitted_is_shown() -> None:
    text = "\n".join(report.on_capture(None, NODES, "this user may not capture"))
    assert "Not captured: this user may not capture" in text
    assert "counters" in text
