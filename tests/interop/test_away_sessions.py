"""What owners hold for a session whose client is away, and what of it comes when it is back."""

from __future__ import annotations

import pytest

from hbroker import sync
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
