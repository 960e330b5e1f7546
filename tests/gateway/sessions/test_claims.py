"""Claims of one turn are sent together, and each client gets what it would have got alone."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from hbroker.gateway.native_api import ConnectEvent
from hbroker.gateway.records import client_id_claims
from hbroker.gateway.records.client_id_claims import ClientIdClaim, Stamp
from hbroker.gateway.records.record_authentication import CLAIMS, verify
from hbroker.sim.network import ClientHost
from tests.gateway.networks import SECOND, Client, FakeGateway, two_gateways
from tests.network.networks import Tree

_numbers = count(1_000_000)


def connect_together(gateway: FakeGateway, *names: str, **fields: Any) -> list[Client]:
    """Sends a CONNECT for each of these client ids in one turn."""
    clients = [Client(gateway, next(_numbers), name) for name in names]
    for client in clients:
        told = {"version": 5, "listener": 0, "peer": ("192.0.2.1", 4000), **fields}
        event = ConnectEvent(connection=client.number, client_id=client.name, **told)
        gateway.control.handle_mqtt(gateway.world.now, event)
    gateway.settle()
    return clients


def claims_listener(tree: Tree) -> ClientHost:
    """A native client that receives every claim from now on."""
    outsider = tree.client()
    outsider.subscribe(CLAIMS + "#", 1)
    tree.world.run(SECOND)
    return outsider


def claims_received_by(outsider: ClientHost) -> list[list[ClientIdClaim]]:
    bodies = [verify(b"", message.topic, bytes(message.payload)) for message in outsider.messages]
    return [client_id_claims.parse(body) or [] for body in bodies if body is not None]


def test_the_clients_of_one_turn_are_claimed_by_a_few_messages() -> None:
    tree, one, _ = two_gateways()
    outsider = claims_listener(tree)
    names = [f"device-{n}" for n in range(100)]
    clients = connect_together(one, *names)
    tree.world.run_until(lambda: all(client.is_accepted for client in clients))
    batches = claims_received_by(outsider)
    assert [claim.client for batch in batches for claim in batch] == names
    assert [len(batch) for batch in batches] == [32, 32, 32, 4]
    stamps = [claim.stamp for batch in batches for claim in batch]
    assert stamps == sorted(set(stamps))


def test_fewer_long_client_ids_share_a_message() -> None:
    tree, one, _ = two_gateways()
    outsider = claims_listener(tree)
    clients = connect_together(one, *(f"{n}" + "x" * 299 for n in range(5)), "y" * 512)
    tree.world.run_until(lambda: all(client.is_accepted for client in clients))
    assert [len(batch) for batch in claims_received_by(outsider)] == [2, 2, 1, 1]


def test_connections_at_another_gateway_end_before_the_claimed_clients_are_accepted() -> None:
    tree, one, two = two_gateways()
    former = [two.connect(f"c{n}", clean_start=False, session_expiry_s=100) for n in (3, 40)]
    for client in former:
        client.subscribe("home/#")
    clients = connect_together(one, *(f"c{n}" for n in range(50)), clean_start=False, session_expiry_s=100)
    while not all(client.is_accepted for client in clients):
        for before, client in zip(former, (clients[3], clients[40]), strict=True):
            assert before.closed == 0x8E or not client.is_accepted
        tree.world.step()
    assert [n for n, client in enumerate(clients) if client.is_present] == [3, 40]


def test_of_two_connects_with_one_client_id_in_a_turn_the_later_one_stays() -> None:
    tree, one, _ = two_gateways()
    first, second = connect_together(one, "a", "a")
    tree.world.run_until(lambda: second.is_accepted)
    tree.world.run(SECOND)
    assert (first.refused, first.closed) == (None, 0x8E)
    assert second.closed is None


def test_failed_claims_are_repeated_for_the_clients_that_are_still_connected() -> None:
    tree, one, two = two_gateways()
    tree.root.kill()
    clients = connect_together(one, "stays", "goes", "returns")
    tree.world.run_until(lambda: all(client.is_accepted for client in clients))
    clients[1].drop()
    clients[2].drop()
    (back,) = connect_together(one, "returns")
    rival = two.connect("stays")
    tree.world.run(60 * SECOND)  # the network gives a message up after 25 s
    tree.root.restart(remembers=True)
    outsider = claims_listener(tree)
    tree.world.run(60 * SECOND)
    assert (clients[0].closed, rival.closed, back.closed) == (0x8E, None, None)
    assert {claim.client for batch in claims_received_by(outsider) for claim in batch} == {"stays", "returns"}


@pytest.mark.parametrize(
    "entries",
    [[["a", 0]], [["a", 0, 1]], [[1, 0, True]], [["a", "0", True]], ["a"], [["a", 0, True]] * 33, "abc", {}],
)
def test_a_malformed_list_of_claims_is_refused(entries: object) -> None:
    assert client_id_claims.parse({"gateway": "g", "run": 1, "since": 5, "claims": entries}) is None


def test_claims_are_read_back() -> None:
    told = [
        ClientIdClaim(f"c{n}", Stamp(10**15 + n * n, 7), n % 2 == 0)
        for n in range(client_id_claims.MOST_TOGETHER)
    ]
    assert client_id_claims.parse(client_id_claims.body_of("g", told)) == told
