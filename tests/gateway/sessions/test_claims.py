"""Claims of one turn go out together, and each of their clients gets what it would have got alone."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from hbroker.gateway.native_api import ConnectEvent
from hbroker.gateway.records import claims
from hbroker.gateway.records.claims import Claim, Stamp
from hbroker.gateway.records.record_authentication import CLAIMS, verify
from hbroker.sim.network import ClientHost
from tests.gateway.networks import SECOND, Client, FakeGateway, two_gateways
from tests.network.networks import Tree

_numbers = count(1_000_000)


def storm(gateway: FakeGateway, *names: str, **fields: Any) -> list[Client]:
    """So many CONNECTs in one turn."""
    clients = [Client(gateway, next(_numbers), name) for name in names]
    for client in clients:
        told = {"version": 5, "listener": 0, "peer": ("192.0.2.1", 4000), **fields}
        event = ConnectEvent(connection=client.number, client_id=client.name, **told)
        gateway.control.handle_mqtt(gateway.world.now, event)
    gateway.settle()
    return clients


def listener(tree: Tree) -> ClientHost:
    """One who hears every claim from now on."""
    outsider = tree.client()
    outsider.subscribe(CLAIMS + "#", 1)
    tree.world.run(SECOND)
    return outsider


def told_of(outsider: ClientHost) -> list[list[Claim]]:
    bodies = [verify(b"", message.topic, bytes(message.payload)) for message in outsider.messages]
    return [claims.parse(body) or [] for body in bodies if body is not None]


def test_clients_of_one_turn_are_claimed_by_a_few_messages() -> None:
    tree, one, _ = two_gateways()
    outsider = listener(tree)
    names = [f"device-{n}" for n in range(100)]
    clients = storm(one, *names)
    tree.world.run_until(lambda: all(client.is_accepted for client in clients))
    batches = told_of(outsider)
    assert [claim.client for batch in batches for claim in batch] == names
    assert [len(batch) for batch in batches] == [32, 32, 32, 4]
    stamps = [claim.stamp for batch in batches for claim in batch]
    assert stamps == sorted(set(stamps))


def test_long_client_ids_share_a_message_with_fewer() -> None:
    tree, one, _ = two_gateways()
    outsider = listener(tree)
    clients = storm(one, *(f"{n}" + "x" * 299 for n in range(5)), "y" * 512)
    tree.world.run_until(lambda: all(client.is_accepted for client in clients))
    assert [len(batch) for batch in told_of(outsider)] == [2, 2, 1, 1]


def test_those_that_another_gateway_has_end_there_first() -> None:
    tree, one, two = two_gateways()
    former = [two.connect(f"c{n}", clean_start=False, session_expiry_s=100) for n in (3, 40)]
    for client in former:
        client.subscribe("home/#")
    clients = storm(one, *(f"c{n}" for n in range(50)), clean_start=False, session_expiry_s=100)
    while not all(client.is_accepted for client in clients):
        for before, client in zip(former, (clients[3], clients[40]), strict=True):
            assert before.closed == 0x8E or not client.is_accepted
        tree.world.step()
    assert [n for n, client in enumerate(clients) if client.is_present] == [3, 40]


def test_one_client_id_twice_in_a_turn_is_the_later_ones() -> None:
    tree, one, _ = two_gateways()
    first, second = storm(one, "a", "a")
    tree.world.run_until(lambda: second.is_accepted)
    tree.world.run(SECOND)
    assert (first.refused, first.closed) == (None, 0x8E)
    assert second.closed is None


def test_what_failed_is_claimed_again_without_those_who_went() -> None:
    tree, one, two = two_gateways()
    tree.root.kill()
    clients = storm(one, "stays", "goes", "returns")
    tree.world.run_until(lambda: all(client.is_accepted for client in clients))
    clients[1].drop()
    clients[2].drop()
    (back,) = storm(one, "returns")
    rival = two.connect("stays")
    tree.world.run(60 * SECOND)  # The network gives a message up after 25.
    tree.root.restart(remembers=True)
    outsider = listener(tree)
    tree.world.run(60 * SECOND)
    assert (clients[0].closed, rival.closed, back.closed) == (0x8E, None, None)
    assert {claim.client for batch in told_of(outsider) for claim in batch} == {"stays", "returns"}


@pytest.mark.parametrize(
    "entries",
    [[["a", 0]], [["a", 0, 1]], [[1, 0, True]], [["a", "0", True]], ["a"], [["a", 0, True]] * 33, "abc", {}],
)
def test_what_is_no_list_of_claims_is_none(entries: object) -> None:
    assert claims.parse({"gateway": "g", "run": 1, "since": 5, "claims": entries}) is None


def test_claims_are_read_as_they_were_told() -> None:
    told = [Claim(f"c{n}", Stamp(10**15 + n * n, 7), n % 2 == 0) for n in range(claims.MOST_TOGETHER)]
    assert claims.parse(claims.body_of("g", told)) == told
