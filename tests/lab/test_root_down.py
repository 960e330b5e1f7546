"""`kill -9` of the root under load: delegated subtrees are not affected (§5.6).

The paths have no faults. The delay of each message is measured from before its `publish` to after it was
read, without the time that the programs waited for a CPU.
"""

from __future__ import annotations

import time

from tests.lab.conftest import DELEGATED
from tests.lab.journal import now
from tests.lab.network import Network
from tests.lab.result import missing, require_order, require_single
from tests.product.starvation import Starvation

MOST_DELAY_S = 0.1
RATE = "250"


def test_delegated_subtrees_are_not_affected_while_the_root_is_down(network: Network, is_long: bool) -> None:
    subscriber = network.subscriber("three", [f"{subtree}/#" for subtree in DELEGATED], qos=2)
    subscriber.await_ready()
    topics = [f"{subtree}/lamp" for subtree in DELEGATED]
    publishers = [
        network.publisher(host, topics, qos, "--rate", RATE) for qos, host in ((1, "one"), (2, "two"))
    ]
    for publisher in publishers:
        publisher.start()
        publisher.await_ready()
        publisher.await_acknowledged(100)
    owners = [node for name, node in network.nodes.items() if name != "root"]
    with Starvation([one.process.pid for one in (*owners, *publishers, subscriber)]) as starvation:
        killed = now()
        network.nodes["root"].kill()
        time.sleep(10 if is_long else 3)  # The time for which the root is down.
        network.restart("root")
        back = now()
        for publisher in publishers:
            publisher.await_flow(back + 2_000_000)
            publisher.end()
        subscriber.end()
    received = subscriber.received()
    require_order(received)
    require_single(entry for entry in received if entry.source == "two")
    for publisher in publishers:
        assert missing(publisher, received) == []
        assert len(publisher.acknowledged()) == len(publisher.begun())
    times = [(entry.begun_at, entry.at) for entry in received if entry.begun_at >= killed]
    assert len(times) > 1_000
    late = [(begun, at) for begun, at in times if at - begun >= MOST_DELAY_S * 1e6]
    own = (starvation.own_s(begun * 1_000, at * 1_000) for begun, at in late)
    assert max(own, default=0) < MOST_DELAY_S
