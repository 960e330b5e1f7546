"""Owners whose lease ends while they are suspended, or while their parent is down: two owners never serve at
once (§5.6).

A lease takes time. The two cases run at the same time in two labs, so that the time is waited for once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.sim.lab import Lab
from tests.lab.conftest import CLIENTS
from tests.lab.journal import Received, now
from tests.lab.network import Network, Publisher, Subscriber, until
from tests.lab.result import missing, require_order, require_single
from tests.lab.wire import packets_sent

SUBTREES = {"root": "", "a": "site/a", "b": "site/b"}
STOPS = timers.LEASE - timers.LEASE_DRIFT
"""The time after its last renewal at which an owner stops serving, in microseconds."""

DISTRIBUTED = (pb.REASON_SUCCESS, pb.REASON_NO_MATCHING_SUBSCRIBERS)


@dataclass(frozen=True, slots=True)
class Suspended:
    """A lab whose owner `a` was suspended under load."""

    lab: Lab
    network: Network
    publisher: Publisher
    late: Publisher
    """This publisher publishes again when `a` has been suspended for most of its lease."""
    subscriber: Subscriber
    stopped: int
    recording: Path


@dataclass(frozen=True, slots=True)
class RootDown:
    """A lab whose root was killed under load. `a` has the policy `fence`, `b` has `serve`."""

    network: Network
    publishers: dict[str, Publisher]
    subscriber: Subscriber
    killed: int


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suspended, RootDown]]:
    with Lab([*SUBTREES, *CLIENTS]) as one, Lab([*SUBTREES, *CLIENTS]) as other:
        suspending = Network(one, tmp_path_factory.mktemp("suspended"), SUBTREES)
        without_root = Network(other, tmp_path_factory.mktemp("root-down"), SUBTREES, serving=["b"])
        for network in (suspending, without_root):
            network.start()
        recording = tmp_path_factory.mktemp("wire") / "recording"
        with one.recording(recording):
            yield _suspend_owner(one, suspending, recording), _kill_root(without_root)


def test_without_its_parent_an_owner_with_fence_stops_and_one_with_serve_continues(
    labs: tuple[Suspended, RootDown],
) -> None:
    root_down = labs[1]
    lease_ends = root_down.killed + STOPS
    root_down.publishers["b"].await_flow(lease_ends + timers.SECOND)
    for publisher in root_down.publishers.values():
        publisher.kill()
    root_down.subscriber.end()
    received = root_down.subscriber.received()
    assert root_down.publishers["a"].latest() < lease_ends
    assert latest(received, "site/a/lamp") < lease_ends < latest(received, "site/b/lamp")
    require_order(received)
    require_single(received)
    for publisher in root_down.publishers.values():
        assert missing(publisher, received) == []


def test_an_owner_suspended_beyond_its_lease_serves_nothing(labs: tuple[Suspended, RootDown]) -> None:
    suspended = labs[0]
    until(lambda: len(suspended.late.begun()) >= 2, "a message waits for the suspended owner")
    suspended.publisher.await_flow(suspended.stopped)
    # Without its parent it cannot become the owner again. A message that it served now would be served by a
    # second owner.
    suspended.lab.cut(["root"], ["a"])
    woken = now()
    suspended.network.nodes["a"].signal(signal.SIGCONT)
    until(lambda: 1 in suspended.late.acknowledged(), "it refuses the message")

    def packets() -> list[pb.Packet]:
        return list(packets_sent(suspended.recording, suspended.lab.address("a"), woken))

    until(
        lambda: any(packet.puback.reason == pb.REASON_NOT_RESPONSIBLE for packet in packets()),
        "the recording of its refusal",
    )
    assert not [packet for packet in packets() if packet.HasField("publish")]
    pubacks = [packet.puback for packet in packets() if packet.HasField("puback")]
    distributed = {tuple(puback.ranges) for puback in pubacks if puback.reason in DISTRIBUTED}
    assert len(distributed) <= len(_under_way(suspended)), (
        "its subscribers answered for no more while it slept"
    )
    suspended.lab.heal()
    until(lambda: _is_owner(suspended), "it joins again")
    for publisher in (suspended.publisher, suspended.late):
        publisher.end()
    suspended.subscriber.end()
    received = suspended.subscriber.received()
    require_order(received)
    require_single(received)
    for publisher in (suspended.publisher, suspended.late):
        assert missing(publisher, received) == []


def _under_way(suspended: Suspended) -> list[int]:
    """The messages that the owner may have received and not acknowledged when it was suspended."""
    acknowledged = suspended.publisher.acknowledged()
    return [
        number
        for number, begun in suspended.publisher.begun().items()
        if begun.at <= suspended.stopped
        and (number not in acknowledged or acknowledged[number].at > suspended.stopped)
    ]


def latest(received: Iterable[Received], topic: str) -> int:
    """The time before the publication of the latest of these messages. An owner that had stopped by then
    would not have accepted it."""
    return max(entry.begun_at for entry in received if entry.topic == topic)


def _suspend_owner(lab: Lab, network: Network, recording: Path) -> Suspended:
    subscriber = network.subscriber("three", ["site/a/#"], qos=2)
    subscriber.await_ready()
    publisher = network.publisher("one", ["site/a/lamp"], 2, "--rate", "100")
    late = network.publisher("two", ["site/a/lamp"], 2, "--rate", "0.1")
    _start(publisher, late)
    network.nodes["a"].signal(signal.SIGSTOP)
    return Suspended(lab, network, publisher, late, subscriber, now(), recording)


def _kill_root(network: Network) -> RootDown:
    subscriber = network.subscriber("three", ["site/a/#", "site/b/#"], qos=2)
    subscriber.await_ready()
    publishers = {
        name: network.publisher(host, [f"site/{name}/lamp"], 2, "--rate", "50")
        for name, host in (("a", "one"), ("b", "two"))
    }
    _start(*publishers.values())
    network.nodes["root"].kill()
    return RootDown(network, publishers, subscriber, now())


def _start(*publishers: Publisher) -> None:
    for publisher in publishers:
        publisher.start()
        publisher.await_ready()
        publisher.await_acknowledged(1)


def _is_owner(suspended: Suspended) -> bool:
    packets = packets_sent(suspended.recording, suspended.lab.address("a"), suspended.stopped)
    return any(packet.HasField("publish") for packet in packets)
