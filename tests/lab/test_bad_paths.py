"""Five owners, and paths with every kind of fault: all messages arrive in order, and at QoS 2 once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbroker.sim.lab import Lab
from tests.lab.conftest import TOPICS
from tests.lab.network import Network, Publisher, Subscriber
from tests.lab.result import await_all, missing, require_order, require_single
from tests.network.networks import BAD


@pytest.mark.timeout(3_600)
def test_all_messages_arrive_in_order_over_bad_paths_and_at_qos_2_once(
    lab: Lab, network: Network, tmp_path: Path, is_long: bool
) -> None:
    count = 100_000 if is_long else 2_000
    lab.set_faults(BAD)
    subscribers = [network.subscriber(host, ["site/#"], qos=2) for host in ("three", "four")]
    for subscriber in subscribers:
        subscriber.await_ready()
    publishers = {
        qos: network.publisher(host, TOPICS, qos, "--count", str(count), "--window", "2000")
        for qos, host in ((1, "one"), (2, "two"))
    }
    for publisher in publishers.values():
        publisher.start()
    for publisher in publishers.values():
        publisher.await_end(patience_s=3_000 if is_long else 100)
    for subscriber in subscribers:
        await_all(subscriber, publishers.values())
        subscriber.end()
        require_all(subscriber, publishers, count)
    seen = lab.counts()
    assert 0.15 < seen["lost"] / seen["in"] < 0.25
    assert seen["damaged"] > 0
    assert checksum_errors(lab, "a") > 0


def require_all(subscriber: Subscriber, publishers: dict[int, Publisher], count: int) -> None:
    """Every published message has arrived, with the guarantee of its QoS."""
    received = subscriber.received()
    require_order(received)
    require_single(entry for entry in received if entry.source == publishers[2].host)
    for publisher in publishers.values():
        assert len(publisher.acknowledged()) == count
        assert missing(publisher, received) == []


def checksum_errors(lab: Lab, host: str) -> int:
    """The number of damaged datagrams that the kernel of a host has dropped (RFC 1213, udp)."""
    names, values = (line.split() for line in lab.read(host, "/proc/net/snmp") if line.startswith("Udp:"))
    return int(values[names.index("InCsumErrors")])
