"""The events that a gateway reports for its log."""

from __future__ import annotations

from hbroker.gateway.events import MOST_REFUSALS, Connected, Disconnected, EventQueue, Refused
from hbroker.gateway.native_api import ConnectEvent
from tests.gateway.networks import SECOND, two_gateways


def test_a_takeover_is_reported_as_a_disconnect_by_the_server() -> None:
    tree, one, two = two_gateways()
    one.connect("a")
    two.connect("a", version=4)
    tree.world.run(SECOND)
    address = "192.0.2.1:4000"
    assert one.control.poll_event() == Connected("a", address, 5, None, is_present=False)
    assert one.control.poll_event() == Disconnected("a", address, "server", 0x8E)
    assert one.control.poll_event() is None
    assert two.control.poll_event() == Connected("a", address, 4, None, is_present=False)


def test_only_the_first_refusals_of_each_second_are_reported() -> None:
    events = EventQueue()
    event = ConnectEvent(1, 0, ("2001:db8::1", 7), 4, "x" * 600)
    for at in (0, SECOND):
        for n in range(100):
            events.refused(at + n, event, 0x85, "too long")
    told = []
    while (gateway_event := events.poll()) is not None:
        assert isinstance(gateway_event, Refused)
        told.append(gateway_event)
    assert [gateway_event.more for gateway_event in told] == [0] * MOST_REFUSALS + [100 - MOST_REFUSALS] + [
        0
    ] * (MOST_REFUSALS - 1)
    assert told[0].address == "[2001:db8::1]:7"
    assert len(told[0].client) < 200
