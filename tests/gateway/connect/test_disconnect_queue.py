"""All clients of a gateway disconnect at once, and some connect again at once. No client waits until all
disconnects are processed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

from hbroker.config import GatewayLimits
from hbroker.gateway.connections.connection import Connection, ConnectionTable
from hbroker.gateway.connections.disconnect_queue import AT_ONCE, DisconnectQueue
from hbroker.gateway.native_api import ClosedEvent, WillMessage
from tests.gateway.networks import SECOND, two_gateways

KEPT: Final[dict[str, Any]] = {"clean_start": False, "session_expiry_s": 100}
MANY: Final = 3 * AT_ONCE


def test_a_new_client_does_not_wait_for_the_disconnects_of_all_others() -> None:
    tree, one, _ = two_gateways()
    clients = [one.connect(f"c{n}", **KEPT) for n in range(MANY)]
    for client in clients:
        client.drop()
    assert len(one.control._disconnect_queue) == MANY - AT_ONCE
    assert one.connect("another").is_accepted
    again = one.connect(clients[-1].name, **KEPT)
    assert again.is_present
    tree.world.run(SECOND)
    assert len(one.control._disconnect_queue) == 0
    counters = one.control.counters()
    assert (counters["connections"], counters["sessions_offline"]) == (2, MANY - 1)


def test_the_disconnect_queue_stays_short_while_clients_connect_and_disconnect_all_the_time() -> None:
    """Otherwise the queue would grow for as long as this goes on."""
    gone: list[int] = []
    disconnect_queue = DisconnectQueue(
        ConnectionTable(), lambda now, connection, event: gone.append(connection.id)
    )
    for turn in range(1, 101):
        for number in range(MANY * turn, MANY * (turn + 1)):
            disconnect_queue.count_connect()
            disconnect_queue.add(turn, cast(Connection, SimpleNamespace(id=number)), cast(ClosedEvent, None))
        disconnect_queue.handle_timeout(turn)
        assert len(disconnect_queue) <= MANY
    assert gone == sorted(gone), "in the order in which they broke"


def test_a_disconnect_is_processed_before_the_next_connect_of_its_client() -> None:
    """Also at another gateway: the will of a client that sent DISCONNECT is not published, although its
    disconnect is still queued when the client connects again."""
    tree, one, two = two_gateways()
    witness = two.connect("witness")
    witness.subscribe("wills/#")
    clients = [one.connect(f"c{n}", will=WillMessage(f"wills/{n}", b"", qos=1), **KEPT) for n in range(MANY)]
    tree.world.run(SECOND)
    for client in clients:
        client.disconnect()
    assert len(one.control._disconnect_queue) > 1
    two.connect(clients[-1].name, **KEPT)
    one.connect(clients[-2].name, **KEPT)
    tree.world.run(2 * SECOND)
    assert witness.taken == []
    assert two.control.counters()["connections"] == 2


def test_a_closed_connection_does_not_count_for_the_limit() -> None:
    tree, one, _ = two_gateways(limits=GatewayLimits(connections=MANY))
    clients = [one.connect(f"c{n}") for n in range(MANY)]
    assert one.begin("more").refused is not None
    for client in clients:
        client.drop()
    for n in range(MANY):
        assert one.begin(f"other{n}").refused is None
    tree.world.run(SECOND)
    assert one.control.counters()["connections"] == MANY
