"""Messages that owners queue for a session whose client is offline, and their delivery after it has
reconnected."""

from __future__ import annotations

from collections import Counter

import pytest

from hbroker import sync
from tests import waiting
from tests.interop.clients import PATIENCE_S
from tests.interop.home import FORGETFUL, PLACES, HomeNetwork
from tests.interop.peer import connected

EACH = 2_000
"""Messages at each owner: fewer than one owner queues for a session, and in total more than a gateway
does."""


@pytest.mark.parametrize("qos", [1, 2])
def test_a_resumed_session_gets_every_acknowledged_message_of_all_owners(home: HomeNetwork, qos: int) -> None:
    """R7: the gateway does not take more messages from owners than it can hold."""
    place = home.place("one", f"offline-{qos}", kept=True)
    with connected(place) as offline:
        offline.subscribe(*((f"{at}/offline{qos}/#", qos) for at in PLACES))
    expected = [
        (f"{at}/offline{qos}/x", f"{at} {number}".encode()) for number in range(EACH) for at in PLACES
    ]
    with sync.connect(home.root) as publisher:
        publisher.publish_many(expected, qos=qos, timeout=60)
    with connected(place) as resumed:
        resumed.await_received(len(expected))
    assert resumed.is_session_present == [True]
    assert sorted((m.topic, bytes(m.payload)) for m in resumed.received) == sorted(expected)


def publish_and_kill(home: HomeNetwork, topic: str, qos: int, node: str) -> list[tuple[str, bytes]]:
    """Publishes to all owners, and kills a node. Returns, once the node runs again, what was published."""
    sent = [(f"{at}/{topic}", f"{at} {number}".encode()) for number in range(50) for at in PLACES]
    with sync.connect(home.root) as publisher:
        publisher.publish_many(sent, qos=qos, timeout=60)
    killed = home.processes()[node]
    killed.kill()
    waiting.until(lambda: home.processes().get(node, killed) != killed, "the node runs again", PATIENCE_S)
    return sent


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_lost_by_one_owner_is_not_present_and_other_owners_deliver_its_messages(
    home: HomeNetwork, qos: int
) -> None:
    """R6: a node without a store that is killed while the client is offline loses its part of the session."""
    place = home.place("one", f"forgotten-{qos}", kept=True)
    filters = [(f"{at}/forgotten{qos}/#", qos) for at in PLACES]
    with connected(place) as offline:
        offline.subscribe(*filters)
    sent = publish_and_kill(home, f"forgotten{qos}/x", qos, FORGETFUL)
    expected = Counter(message for message in sent if not message[0].startswith(f"home/{FORGETFUL}"))
    with connected(place) as resumed:
        assert resumed.is_session_present == [False]
        assert resumed.received == []
        resumed.subscribe(*filters)
        resumed.await_received(expected.total())
    assert Counter((m.topic, bytes(m.payload)) for m in resumed.received) == expected
    with connected(place) as again:
        pass
    assert again.is_session_present == [True]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_is_present_with_its_messages_after_an_owner_was_killed(
    home: HomeNetwork, qos: int
) -> None:
    place = home.place("one", f"stored-{qos}", kept=True)
    with connected(place) as offline:
        offline.subscribe(*((f"{at}/stored{qos}/#", qos) for at in PLACES))
    expected = publish_and_kill(home, f"stored{qos}/x", qos, "kitchen")
    with connected(place) as resumed:
        resumed.await_received(len(expected))
    assert resumed.is_session_present == [True]
    assert sorted((m.topic, bytes(m.payload)) for m in resumed.received) == sorted(expected)
