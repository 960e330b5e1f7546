"""`kill -9` of an owner, the root, a publisher and a subscriber under load, over bad paths.

Acknowledged messages have reached every connected subscriber, other messages are sent again, and QoS 2 still
delivers each message once. The journals show this: each client writes an entry before it continues.
"""

from __future__ import annotations

import pytest

from hbroker.protocol import timers
from hbroker.sim.lab import Lab
from tests.lab.conftest import FILTERS, TOPICS
from tests.lab.journal import now
from tests.lab.network import Network, Subscriber, until
from tests.lab.result import await_all, missing, require_order, require_single
from tests.network.networks import BAD

RATE = "150"


@pytest.mark.timeout(600)
def test_killed_processes_lose_and_duplicate_no_messages(lab: Lab, network: Network, is_long: bool) -> None:
    """Owners wait for a killed subscriber until its session ends. This is tested only in the long form."""
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
    for publisher in publishers:
        publisher.end()
    await_all(subscribers[1], publishers)
    if is_long:
        until(lambda: highest_numbers(gone) == highest_numbers(subscribers[1]), "both have the last messages")
    else:
        await_all(gone, publishers)
    for subscriber in subscribers:
        subscriber.end()
        require_order(subscriber.received())
        require_single(entry for entry in subscriber.received() if entry.source == "two")
        assert highest_numbers(subscriber) == highest_numbers(subscribers[1])
    for publisher in publishers:
        assert missing(publisher, subscribers[1].received()) == []
        assert is_long or missing(publisher, gone.received()) == []


def highest_numbers(subscriber: Subscriber) -> dict[str, int]:
    """The highest message number received from each publisher."""
    highest: dict[str, int] = {}
    for entry in subscriber.received():
        highest[entry.source] = max(entry.number, highest.get(entry.source, 0))
    return highest
