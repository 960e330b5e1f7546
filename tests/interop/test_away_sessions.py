"""What owners hold for a session whose client is away, and what of it comes when it is back."""

from __future__ import annotations

from collections import Counter

import pytest

from hbroker import sync
from tests import waiting
from tests.interop.clients import PATIENCE_S
from tests.interop.house import PLACES, House
from tests.interop.peer import connected

EACH = 2_000
"""Messages at each owner: less than one holds for a session, and all together more than a gateway does."""


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_gets_what_all_its_owners_acknowledged(house: House, qos: int) -> None:
    """R7: the gateway takes no more from owners than it can keep."""
    place = house.place("one", f"away-{qos}", kept=True)
    with connected(place) as away:
        away.subscribe(*((f"{at}/away{qos}/#", qos) for at in PLACES))
    expected = [(f"{at}/away{qos}/x", f"{at} {number}".encode()) for number in range(EACH) for at in PLACES]
    with sync.connect(house.root) as publisher:
        publisher.publish_many(expected, qos=qos, timeout=60)
    with connected(place) as back:
        back.await_received(len(expected))
    assert back.is_session_present == [True]
    assert sorted((m.topic, bytes(m.payload)) for m in back.received) == sorted(expected)


@pytest.mark.parametrize("qos", [1, 2])
def test_who_is_told_that_its_session_is_gone_gets_what_other_owners_hold(house: House, qos: int) -> None:
    """R6: a node is killed while the client is away, and takes its part of the session along."""
    place = house.place("one", f"forgotten-{qos}", kept=True)
    filters = [(f"{at}/forgotten{qos}/#", qos) for at in PLACES]
    with connected(place) as away:
        away.subscribe(*filters)
    sent = [(f"{at}/forgotten{qos}/x", f"{at} {number}".encode()) for number in range(50) for at in PLACES]
    with sync.connect(house.root) as publisher:
        publisher.publish_many(sent, qos=qos, timeout=60)
    killed = house.processes()["kitchen"]
    killed.kill()
    waiting.until(
        lambda: house.processes().get("kitchen", killed) != killed, "the node runs again", PATIENCE_S
    )
    expected = Counter(message for message in sent if not message[0].startswith("home/kitchen"))
    with connected(place) as back:
        assert back.is_session_present == [False]
        assert back.received == []
        back.subscribe(*filters)
        back.await_received(expected.total())
    assert Counter((m.topic, bytes(m.payload)) for m in back.received) == expected
    with connected(place) as again:
        pass
    assert again.is_session_present == [True]
