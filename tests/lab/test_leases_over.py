"""Owners whose lease ends while they sleep, or while their parent is dead: never two serve (§5.6).

A lease takes its time. So that the time is waited for once, both things happen at once, in two labs.
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
from tests.lab.wire import said

SUBTREES = {"root": "", "a": "site/a", "b": "site/b"}
STOPS = timers.LEASE - timers.LEASE_DRIFT
"""How long after its last renewal an owner stops, in microseconds."""

DISTRIBUTED = (pb.REASON_SUCCESS, pb.REASON_NO_MATCHING_SUBSCRIBERS)


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A lab whose owner `a` was stopped at a time, in mid-stream."""

    lab: Lab
    network: Network
    publisher: Publisher
    late: Publisher
    """It publishes again when `a` has slept for most of its lease."""
    subscriber: Subscriber
    stopped: int
    recording: Path


@dataclass(frozen=True, slots=True)
class Orphans:
    """A lab whose root was killed at a time, in mid-stream; `a` is under `fence`, `b` under `serve`."""

    network: Network
    publishers: dict[str, Publisher]
    subscriber: Subscriber
    killed: int


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sleeper, Orphans]]:
    with Lab([*SUBTREES, *CLIENTS]) as one, Lab([*SUBTREES, *CLIENTS]) as other:
        sleeping = Network(one, tmp_path_factory.mktemp("sleeper"), SUBTREES)
        orphaned = Network(other, tmp_path_factory.mktemp("orphans"), SUBTREES, serving=["b"])
        for network in (sleeping, orphaned):
            network.start()
        recording = tmp_path_factory.mktemp("wire") / "recording"
        with one.recording(recording):
            yield _put_to_sleep(one, sleeping, recording), _kill_root(orphaned)


def test_without_its_parent_fence_stops_and_serve_goes_on(labs: tuple[Sleeper, Orphans]) -> None:
    orphans = labs[1]
    lease_ends = orphans.killed + STOPS
    orphans.publishers["b"].await_flow(lease_ends + timers.SECOND)
    for publisher in orphans.publishers.values():
        publisher.kill()
    orphans.subscriber.end()
    received = orphans.subscriber.received()
    assert orphans.publishers["a"].latest() < lease_ends
    assert latest(received, "site/a/lamp") < lease_ends < latest(received, "site/b/lamp")
    require_order(received)
    require_single(received)
    for publisher in orphans.publishers.values():
        assert missing(publisher, received) == []


def test_an_owner_that_overslept_serves_nothing(labs: tuple[Sleeper, Orphans]) -> None:
    sleeper = labs[0]
    until(lambda: len(sleeper.late.begun()) >= 2, "something waits for it when it wakes")
    sleeper.publisher.await_flow(sleeper.stopped)
    # Without its parent it cannot become the owner again: what it served now it would serve as a second one.
    sleeper.lab.cut(["root"], ["a"])
    woken = now()
    sleeper.network.nodes["a"].signal(signal.SIGCONT)
    until(lambda: 1 in sleeper.late.acknowledged(), "it sends those away who ask it")

    def words() -> list[pb.Packet]:
        return list(said(sleeper.recording, sleeper.lab.address("a"), woken))

    until(
        lambda: any(word.puback.reason == pb.REASON_NOT_RESPONSIBLE for word in words()),
        "the recording of its refusal",
    )
    assert not [word for word in words() if word.HasField("publish")]
    pubacks = [word.puback for word in words() if word.HasField("puback")]
    told = {tuple(puback.ranges) for puback in pubacks if puback.reason in DISTRIBUTED}
    assert len(told) <= len(_under_way(sleeper)), "its subscribers answered for no more while it slept"
    sleeper.lab.heal()
    until(lambda: _is_owner(sleeper), "it joins again")
    for publisher in (sleeper.publisher, sleeper.late):
        publisher.end()
    sleeper.subscriber.end()
    received = sleeper.subscriber.received()
    require_order(received)
    require_single(received)
    for publisher in (sleeper.publisher, sleeper.late):
        assert missing(publisher, received) == []


def _under_way(sleeper: Sleeper) -> list[int]:
    """Messages that the owner may have had and not acknowledged when it fell asleep."""
    acknowledged = sleeper.publisher.acknowledged()
    return [
        number
        for number, begun in sleeper.publisher.begun().items()
        if begun.at <= sleeper.stopped
        and (number not in acknowledged or acknowledged[number].at > sleeper.stopped)
    ]


def latest(received: Iterable[Received], topic: str) -> int:
    """When the latest of those messages was about to be published: however late it is read, an owner that had
    stopped by then would not have taken it."""
    return max(entry.begun_at for entry in received if entry.topic == topic)


def _put_to_sleep(lab: Lab, network: Network, recording: Path) -> Sleeper:
    subscriber = network.subscriber("three", ["site/a/#"], qos=2)
    subscriber.await_ready()
    publisher = network.publisher("one", ["site/a/lamp"], 2, "--rate", "100")
    late = network.publisher("two", ["site/a/lamp"], 2, "--rate", "0.1")
    _start(publisher, late)
    network.nodes["a"].signal(signal.SIGSTOP)
    return Sleeper(lab, network, publisher, late, subscriber, now(), recording)


def _kill_root(network: Network) -> Orphans:
    subscriber = network.subscriber("three", ["site/a/#", "site/b/#"], qos=2)
    subscriber.await_ready()
    publishers = {
        name: network.publisher(host, [f"site/{name}/lamp"], 2, "--rate", "50")
        for name, host in (("a", "one"), ("b", "two"))
    }
    _start(*publishers.values())
    network.nodes["root"].kill()
    return Orphans(network, publishers, subscriber, now())


def _start(*publishers: Publisher) -> None:
    for publisher in publishers:
        publisher.start()
        publisher.await_ready()
        publisher.await_acknowledged(1)


def _is_owner(sleeper: Sleeper) -> bool:
    words = said(sleeper.recording, sleeper.lab.address("a"), sleeper.stopped)
    return any(word.HasField("publish") for word in words)
