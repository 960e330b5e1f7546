"""`kill -9` in mid-stream, over bad paths: of an owner, of the root, of a publisher, of a subscriber.

What was acknowledged had reached everyone connected, what was not comes again, and QoS 2 doubles nothing even
so. The journals say it: each client writes down what it saw before it goes on.
"""

from __future__ import annotations

import pytest

from hbroker.protocol import timers
from hbroker.sim.lab import Lab
from tests.lab.conftest import BAD, FILTERS, TOPICS
from tests.lab.journal import now
from tests.lab.network import Network, Subscriber
from tests.lab.result import missing, require_order, require_single

RATE = "150"


@pytest.mark.timeout(600)
def test_what_is_killed_takes_nothing_with_it(lab: Lab, network: Network, is_long: bool) -> None:
    """A subscriber that died is waited for until its session ends: in the long form alone."""
    subscribers = [network.subscriber(host, FILTERS, qos=2) for host in ("three", "four")]
    for subscriber in subscribers:
        subscriber.await_ready()
    lab.set_faults(BAD)
    publishers = [
        network.publisher(host, TOPICS, qos, "--rate", RATE) for qos, host in ((1, "one"), (2, "two"))
    ]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.await_ready()
        publisher.await_acknowledged(200)
    gone = subscribers[0]
    for victim in [network.nodes["a"], network.nodes["root"], publishers[1], *([gone] if is_long else [])]:
        victim.kill()
        victim.start()
        victim.await_ready()
        back = now()
        for publisher in publishers:
            publisher.await_flow(back + timers.SECOND)
    for program in (*publishers, *subscribers):
        program.end()
    for subscriber in subscribers:
        require_order(subscriber.received())
        require_single(entry for entry in subscriber.received() if entry.source == "two")
        assert highest_numbers(subscriber) == highest_numbers(subscribers[1])
    for publisher in publishers:
        assert missing(publisher, subscribers[1].received()) == []
        assert is_long or missing(publisher, gone.received()) == []


def highest_numbers(subscriber: Subscriber) -> dict[str, int]:
    """The highest number that came from each publisher."""
    highest: dict[str, int] = {}
    for entry in subscriber.received():
        highest[entry.source] = max(entry.number, highest.get(entry.source, 0))
    return highest
