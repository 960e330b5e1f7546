"""A store that may have no more bytes: what it would have to keep is refused, connected subscribers are
served, and it takes messages again when there is room. (The bound stands for a full disk, which is handled in
the same way.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from hbroker import HBrokerError, sync
from tests.product.network import PATIENCE, network_of

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
limits: {store_bytes: 16777216}
"""
PAYLOAD = bytes(60_000)
MOST = 16_777_216 // len(PAYLOAD) + 100
"""More messages than fit."""
SESSIONS = 2
"""So that no queue reaches its own bound."""
REFUSED_S = 3.0
"""How long a publisher tries to publish what is refused."""


def client_of(root: str, number: int) -> sync.Client:
    """A client with a persistent session."""
    return sync.connect(root, client_id=f"away{number}", session_expiry=3_600, session_key="k")


def publish_until_refused(publisher: sync.Client) -> int:
    """How many messages got PUBACKs."""
    for accepted in range(MOST):
        try:
            publisher.publish(f"kept/{accepted % SESSIONS}", PAYLOAD, qos=1, timeout=REFUSED_S)
        except HBrokerError:
            return accepted
    return MOST


@pytest.mark.timeout(300)
def test_a_full_store_refuses_what_it_would_have_to_keep_until_there_is_room(tmp_path: Path) -> None:
    with network_of(FILE, tmp_path) as (network, root):
        for number in range(SESSIONS):
            with client_of(root, number) as client:
                client.subscribe(f"kept/{number}", qos=1)
        with (
            sync.connect(root) as publisher,
            sync.connect(root) as reader,
            reader.subscribe("read", qos=1) as live,
        ):
            accepted = publish_until_refused(publisher)
            assert 0 < accepted < MOST
            failed = network.event("storage_failed")
            assert failed["process"] == "root"
            assert failed["error"].startswith("the store: ")
            publisher.publish("read", b"now", qos=1, timeout=PATIENCE)
            message = live.next(timeout=PATIENCE)
            assert message is not None
            assert message.payload == b"now"
        for number in range(SESSIONS):
            with client_of(root, number) as client, client.subscribe(f"kept/{number}", qos=1) as messages:
                assert messages.resumed
                for _ in range(number, accepted, SESSIONS):
                    assert messages.next(timeout=PATIENCE) is not None
        assert network.event("storage_recovered")["process"] == "root"
        with sync.connect(root) as publisher:
            publisher.publish("kept/0", b"again", qos=1, timeout=PATIENCE)
