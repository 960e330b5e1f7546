"""An owner that is cut off from all hosts and reconnected: no message is lost or duplicated, and the order is
kept.

Meanwhile its parent has reclaimed its subtree (§5.6), has waited for its subscribers (§5.8), and hands the
subtree over to it again (§5.4). This takes time, so it is tested only in the long form.
"""

from __future__ import annotations

import time

import pytest

from hbroker.sim.lab import Lab
from tests.lab.conftest import CLIENTS, FILTERS, SUBTREES, TOPICS
from tests.lab.journal import now
from tests.lab.network import Network
from tests.lab.result import longest_gap_s, missing, require_order, require_single


@pytest.mark.usefixtures("in_long_form")
@pytest.mark.timeout(300)
def test_no_message_is_lost_when_an_owner_is_cut_off_and_reconnected(lab: Lab, network: Network) -> None:
    subscribers = [network.subscriber(host, FILTERS, qos=2) for host in ("three", "four")]
    for subscriber in subscribers:
        subscriber.await_ready()
    cut_off = network.publisher("one", ["site/a/lamp"], 2, "--rate", "100", "--window", "10000")
    others = network.publisher("two", [topic for topic in TOPICS if "/a/" not in topic], 2, "--rate", "100")
    for publisher in (cut_off, others):
        publisher.start()
        publisher.await_ready()
        publisher.await_acknowledged(100)
    lab.cut(["a"], [host for host in (*SUBTREES, *CLIENTS) if host != "a"])
    time.sleep(30)  # The time for which the owner is cut off.
    lab.heal()
    healed = now()
    for publisher in (cut_off, others):
        publisher.await_flow(healed + 1_000_000)
        publisher.end()
    for subscriber in subscribers:
        subscriber.end()
        received = subscriber.received()
        require_order(received)
        require_single(received)
        assert missing(cut_off, received) == []
        assert missing(others, received) == []
        assert longest_gap_s(entry for entry in received if entry.source == others.host) < 1.0
