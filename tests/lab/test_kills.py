"""`kill -9` in mid-stream, over bad paths: of the root, of an owner, of a publisher, of a subscriber.

What was acknowledged had reached everyone connected, what was not comes again, and QoS 2 doubles nothing even
so. The journals say it: each client writes down what it saw before it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbroker.protocol import timers
from hbroker.sim.lab import Lab
from tests.lab.conftest import BAD, FILTERS, TOPICS
from tests.lab.journal import now
from tests.lab.network import Network, Publisher, Subscriber
from tests.lab.verdict import missing, require_order, require_single

STREAM = 200
"""Messages that are acknowledged to each publisher before the kill."""

RATE = "150"


@pytest.fixture
def publishers(lab: Lab, network: Network) -> list[Publisher]:
    """One at QoS 1 and one at QoS 2, neither started yet."""
    return [network.publisher(host, TOPICS, qos, "--rate", RATE) for qos, host in ((1, "one"), (2, "two"))]


@pytest.fixture
def subscribers(lab: Lab, network: Network) -> list[Subscriber]:
    """Two that have subscribed at every owner; from then on the paths are bad."""
    subscribers = [network.subscriber(host, FILTERS, qos=2) for host in ("three", "four")]
    for subscriber in subscribers:
        subscriber.await_ready()
    lab.set_faults(BAD)
    return subscribers


@pytest.mark.parametrize("victim", ["root", "a"])
def test_a_killed_owner_loses_nothing(
    network: Network, publishers: list[Publisher], subscribers: list[Subscriber], victim: str
) -> None:
    for _ in stream(publishers):
        network.nodes[victim].kill()
        network.restart(victim)
    for subscriber in subscribers:
        subscriber.end()
        received = subscriber.received()
        require_order(received)
        require_single(entry for entry in received if entry.source == "two")
        for publisher in publishers:
            assert missing(publisher, received) == []


def test_killed_clients_take_nothing_from_others(
    network: Network, publishers: list[Publisher], subscribers: list[Subscriber]
) -> None:
    gone, other = subscribers
    for _ in stream(publishers):
        publishers[1].kill()
        gone.kill()
        publishers[1].start()
        publishers[1].await_ready()
        gone.start()
        gone.await_ready()
    for subscriber in subscribers:
        subscriber.end()
        received = subscriber.received()
        require_order(received)
        require_single(entry for entry in received if entry.source == "two")
    for publisher in publishers:
        assert missing(publisher, other.received()) == []
    assert highest_numbers(gone) == highest_numbers(other)


def stream(publishers: list[Publisher]) -> Iterator[None]:
    """Publishes before the body of the loop, which runs once, during it, and after it; until all that was
    begun is acknowledged."""
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.await_ready()
        publisher.await_acknowledged(STREAM)
    yield
    back = now()
    for publisher in publishers:
        publisher.await_flow(back + timers.SECOND)
        publisher.end()


def highest_numbers(subscriber: Subscriber) -> dict[str, int]:
    """The highest number that came from each publisher."""
    highest: dict[str, int] = {}
    for entry in subscriber.received():
        highest[entry.source] = max(entry.number, highest.get(entry.source, 0))
    return highest
