"""The events that a gateway reports for its log."""

from __future__ import annotations

from hbroker.gateway.events import MOST_REFUSALS, REFUSED, EventQueue, GatewayEvent
from hbroker.gateway.native_api import ConnectEvent
from tests.gateway.networks import SECOND, two_gateways


def test_a_takeover_is_reported_as_a_disconnect_by_the_server() -> None:
    tree, one, two = two_gateways()
    one.connect("a")
    two.connect("a", version=4)
    tree.world.run(SECOND)
    of = {"client": "a", "address": "192.0.2.1:4000"}
    connected = GatewayEvent("client_connected", {**of, "version": 5, "session_present": False})
    assert one.control.poll_event() == connected
    ended = GatewayEvent("client_disconnected", {**of, "cause": "server", "reason": "0x8E"})
    assert one.control.poll_event() == ended
    assert one.control.poll_event() is None
    connected = GatewayEvent("client_connected", {**of, "version": 4, "session_present": False})
    assert two.control.poll_event() == connected


def test_only_the_first_refusals_of_each_second_are_reported() -> None:
    events = EventQueue()
    event = ConnectEvent(1, 0, ("2001:db8::1", 7), 4, "x" * 600)
    for at in (0, SECOND):
        for n in range(100):
            events.refused(at + n, event, 0x85, "too long")
    told = []
    while (gateway_event := events.poll()) is not None:
        assert gateway_event.name == REFUSED
        told.append(gateway_event.fields)
    assert [fields.get("more", 0) for fields in told] == [0] * MOST_REFUSALS + [100 - MOST_REFUSALS] + [0] * (
        MOST_REFUSALS - 1
    )
    assert told[0]["address"] == "[2001:db8::1]:7"
    assert len(str(told[0]["client"])) < 200
