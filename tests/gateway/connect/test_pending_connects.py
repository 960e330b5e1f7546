"""Several CONNECTs of one client at once: each is answered, and the last connection stays (MQTT 5 §3.1.4)."""

from __future__ import annotations

import pytest

from hbroker.gateway.connections.pending_connects import MOST_WAITING
from hbroker.gateway.native_api import WillMessage
from tests.gateway.networks import SECOND, Client, two_gateways
from tests.network.networks import Tree


def wait_for_answers(tree: Tree, clients: list[Client]) -> None:
    tree.world.run_until(lambda: all(client.is_answered for client in clients))
    tree.world.run(SECOND)


@pytest.mark.parametrize("at", ["one", "both"])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kept", [False, True])
def test_several_connects_of_one_client_are_accepted_one_after_the_other(
    at: str, version: int, kept: bool
) -> None:
    tree, one, two = two_gateways()
    fields = {"clean_start": not kept, "session_expiry_s": 100 if kept and version == 5 else 0}
    gateways = [one, two] if at == "both" else [one, one]
    clients = [gateway.begin("a", version=version, **fields) for gateway in gateways * 2]
    wait_for_answers(tree, clients)
    assert [client.refused for client in clients] == [None] * 4
    (stays,) = (client for client in clients if client.closed is None)
    assert [client.closed for client in clients if client is not stays] == [0x8E] * 3
    if at == "one":
        assert stays is clients[-1]
        assert [client.is_present for client in clients] == [False, kept, kept, kept]
    assert stays.subscribe("home/x") == [1]
    stays.gateway.publish("home/x", b"1")
    tree.world.run_until(lambda: stays.taken == [("home/x", b"1")])


def test_a_connect_whose_connection_closes_while_it_waits_is_skipped() -> None:
    tree, one, _ = two_gateways()
    clients = [one.begin("a") for _ in range(4)]
    clients[1].drop()
    clients[0].drop()
    wait_for_answers(tree, clients[2:])
    assert [client.closed for client in clients[2:]] == [0x8E, None]


def test_each_takeover_publishes_the_will_of_the_former_connection() -> None:
    tree, one, two = two_gateways()
    watcher = two.connect("watcher")
    watcher.subscribe("home/will")
    clients = [one.begin("a", will=WillMessage("home/will", b"%d" % n, qos=1)) for n in range(3)]
    wait_for_answers(tree, clients)
    assert watcher.taken == [("home/will", b"0"), ("home/will", b"1")]


def test_a_connect_that_cannot_be_accepted_soon_is_refused_in_favour_of_the_next_one() -> None:
    """The owner of the gateways' topics is down, so a claim takes three seconds."""
    tree, one, _ = two_gateways()
    tree.root.stop()
    clients = [one.begin("a", session_expiry_s=0) for _ in range(2)]
    wait_for_answers(tree, clients)
    assert clients[0].refused == 0x88
    assert clients[1].is_accepted


def test_the_connects_that_wait_for_one_client_are_bounded() -> None:
    tree, one, _ = two_gateways()
    clients = [one.begin("a") for _ in range(2 * MOST_WAITING)]
    wait_for_answers(tree, clients)
    refused = [client for client in clients if client.refused is not None]
    assert {client.refused for client in refused} == {0x89}
    assert refused == clients[1 : len(refused) + 1], "those that have waited longest"
    assert len(refused) == MOST_WAITING - 1
    assert clients[-1].is_accepted
    assert clients[-1].closed is None
