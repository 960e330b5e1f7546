"""An owner is stopped for longer than its lease, and goes on (§5.6): nothing that it acknowledged is lost.

The simulated network tests more cases (tests/network/moving/test_ended_leases.py). Here the owner is a real
process, stopped by SIGSTOP. Its data plane has to notice the end of its lease by itself.
"""

from __future__ import annotations

import signal

import pytest

from hbroker import sync
from hbroker.runtime.client.identity import Profile
from tests.product.home import TOPIC, HomeNetwork, next_payload
from tests.product.network import PATIENCE

MANY = 1_000
AWAY: Profile = {"client_id": "lamp", "session_expiry": 600, "session_key": "secret"}


@pytest.mark.usefixtures("in_long_form")
@pytest.mark.parametrize("qos", [1, 2])
def test_queued_messages_survive_the_end_of_their_owners_lease(home: HomeNetwork, qos: int) -> None:
    with sync.connect(home.root, **AWAY) as lamp:
        lamp.subscribe("home/#", qos=qos)
    waiting = [b"%d" % number for number in range(MANY)]
    kitchen = home.network.processes()["kitchen"]
    with sync.connect(home.root, timeout=PATIENCE) as publisher:
        publisher.publish_many([(TOPIC, payload) for payload in waiting], qos=qos)
        kitchen.send_signal(signal.SIGSTOP)
        try:
            publisher.publish(
                TOPIC, b"meanwhile", qos=qos
            )  # acknowledged once the parent has taken the subtree back
            assert publisher.resolve(TOPIC).owner == "home"
        finally:
            kitchen.send_signal(signal.SIGCONT)
        home.await_owner(TOPIC, "kitchen")
        publisher.publish(TOPIC, b"last", qos=qos)
    with sync.connect(home.root, **AWAY) as lamp, lamp.subscribe("home/#", qos=qos) as messages:
        came = list(iter(lambda: next_payload(messages), b"last"))
        assert not messages.resumed, "the parent had not known of it"
    assert [payload for payload in came if payload != b"meanwhile"] == waiting
