"""Five owners, and paths that do to packets all that paths do: all arrives, in order, at QoS 2 once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbroker.sim.lab import Lab
from tests.lab.conftest import BAD, TOPICS
from tests.lab.network import Network, Publisher, Subscriber
from tests.lab.result import missing, require_order, require_single
from tests.waiting import until

PATIENCE_S = 60.0


@pytest.mark.timeout(3_600)
def test_all_arrives_in_order_and_at_qos_2_once(
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
        await_all(subscriber, publishers)
        subscriber.end()
        require_all(subscriber, publishers, count)
    seen = lab.counts()
    assert 0.15 < seen["lost"] / seen["in"] < 0.25
    assert seen["damaged"] > 0
    assert refused_for_their_checksum(lab, "a") > 0


def await_all(subscriber: Subscriber, publishers: dict[int, Publisher]) -> None:
    """One whose answers did not get through for two seconds holds no PUBACK back (§7.3): what waits for it at
    the owner comes later."""

    def lacking() -> list[int]:
        received = subscriber.received()
        return [number for publisher in publishers.values() for number in missing(publisher, received)]

    until(lambda: not lacking(), "all has come", PATIENCE_S, found=lacking, glance_s=0.25)


def require_all(subscriber: Subscriber, publishers: dict[int, Publisher], count: int) -> None:
    """Everything that was published has come, as its QoS asks."""
    received = subscriber.received()
    require_order(received)
    require_single(entry for entry in received if entry.source == publishers[2].host)
    for publisher in publishers.values():
        assert len(publisher.acknowledged()) == count
        assert missing(publisher, received) == []


def refused_for_their_checksum(lab: Lab, host: str) -> int:
    """Datagrams that a host's kernel dropped because they were damaged (RFC 1213, udp)."""
    names, values = (line.split() for line in lab.read(host, "/proc/net/snmp") if line.startswith("Udp:"))
    return int(values[names.index("InCsumErrors")])
