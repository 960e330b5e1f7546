"""MQTT clients of workspaces at a gateway: who is in which, and that equal client ids and topics never
meet."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hbroker.config import WorkspaceQuotas
from hbroker.gateway.access import acl_file
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.policy import Admitted, Candidate
from hbroker.gateway.native_api import Rule, WillMessage
from hbroker.gateway.records.record_authentication import SESSIONS, client_hash
from tests.gateway.networks import SECOND, FakeGateway, two_gateways
from tests.network.networks import Tree

NOT_AUTHORIZED, QUOTA_EXCEEDED, WRONG_CLIENT_ID, TAKEN_OVER = 0x87, 0x97, 0x85, 0x8E
DEFAULT, ACME, OTHER = 0, 1, 2
LISTENERS = ("", "acme", "other")
NAMES = {DEFAULT: "same", ACME: "$workspace/acme/same", OTHER: "$workspace/other/same"}


class NamedPolicy(FilePolicy):
    """Everybody is of the workspace that its user name says."""

    def admit(self, candidate: Candidate) -> Admitted:
        name = candidate.username
        return Admitted(name, workspace=None if name is None else name.removeprefix("of-"))

    def rules(self, username: str | None, client_id: str) -> Sequence[Rule]:
        return acl_file.OPEN


def one_gateway(**fields: object) -> FakeGateway:
    tree = Tree.grow(1, ("home",))
    return FakeGateway(tree, "one", workspaces=LISTENERS, **fields).ready()  # type: ignore[arg-type]


def test_clients_of_equal_ids_in_two_workspaces_are_connected_together() -> None:
    gateway = one_gateway()
    clients = {at: gateway.connect("same", listener=at) for at in NAMES}
    for at, client in clients.items():
        assert client.subscribe("home/+", "#", "$share/group/home/#") == [1, 1, 1]
        filters = set(gateway.control._context.connection_table.of_client(NAMES[at]).subscriptions)
        assert filters == {"home/+", "#", "$share/group/home/#"}
    for client in clients.values():
        assert client.closed is None
    gateway.publish("$workspace/acme/home/oven", b"180")
    taken = clients[ACME].taken
    gateway.world.run_until(lambda: len(clients[ACME].taken) >= 2)
    gateway.publish("home/oven", b"end")
    gateway.world.run_until(lambda: ("home/oven", b"end") in clients[DEFAULT].taken)
    assert {topic for topic, _ in clients[ACME].taken} == {"$workspace/acme/home/oven"}
    assert {topic for topic, _ in clients[DEFAULT].taken} == {"home/oven"}
    assert clients[OTHER].taken == []
    del taken
    assert clients[ACME].unsubscribe("home/+", "$share/group/home/#", "home") == [0, 0, 0x11]


def test_a_client_is_taken_over_by_one_of_its_workspace_alone() -> None:
    _, one, two = two_gateways(workspaces=LISTENERS)
    before = {at: one.connect("same", listener=at, session_expiry_s=100, clean_start=False) for at in NAMES}
    for client in before.values():
        assert client.subscribe("home/+") == [1]
    after = two.connect("same", listener=ACME, session_expiry_s=100, clean_start=False)
    assert after.is_present
    assert [before[at].closed for at in NAMES] == [None, TAKEN_OVER, None]
    again = one.connect("same", listener=DEFAULT, session_expiry_s=100, clean_start=False)
    assert again.is_present
    assert [before[at].closed for at in NAMES] == [TAKEN_OVER, TAKEN_OVER, None]
    assert after.closed is None


def test_a_session_is_resumed_with_its_subscriptions_at_another_gateway() -> None:
    _, one, two = two_gateways(workspaces=LISTENERS)
    for at in NAMES:
        client = one.connect("same", listener=at, session_expiry_s=100, clean_start=False)
        assert client.subscribe("home/+") == [1]
        client.drop()
    records = two.control._context.records
    two.world.run_until(lambda: all(records.of(name) is not None for name in NAMES.values()))
    for at in NAMES:
        one.publish(f"{'' if not at else f'$workspace/{LISTENERS[at]}/'}home/x", f"{at}".encode())
    for at in NAMES:
        client = two.connect("same", listener=at, session_expiry_s=100, clean_start=False)
        assert client.is_present
        two.world.run_until(lambda client=client: len(client.taken) == 1)  # type: ignore[misc]
        assert [payload for _, payload in client.taken] == [f"{at}".encode()]
    assert len({SESSIONS + client_hash(name) for name in NAMES.values()}) == 3


def test_a_will_is_published_in_its_workspace() -> None:
    gateway = one_gateway()
    watchers = {at: gateway.connect(f"watcher-{at}", listener=at) for at in NAMES}
    for client in watchers.values():
        assert client.subscribe("wills/#") == [1]
    dying = gateway.connect("same", listener=ACME, will=WillMessage("wills/x", b"gone", qos=1))
    dying.drop()
    gateway.world.run_until(lambda: len(watchers[ACME].taken) == 1)
    assert watchers[ACME].taken == [("$workspace/acme/wills/x", b"gone")]
    gateway.world.run(SECOND)
    assert [watchers[at].taken for at in (DEFAULT, OTHER)] == [[], []]


@pytest.mark.parametrize("filter", ["$SYS/#", "$workspace/other/#", "$gateway/#", "$share/g/$SYS/#"])
def test_a_client_of_a_workspace_reads_nothing_of_the_network(filter: str) -> None:
    gateway = one_gateway()
    assert gateway.connect("a", listener=ACME).subscribe(filter, "x") == [NOT_AUTHORIZED, 1]


def test_a_will_on_a_topic_of_the_network_is_refused() -> None:
    gateway = one_gateway()
    will = WillMessage("$SYS/broker/connection/x/state", b"1")
    for at, code in ((DEFAULT, None), (ACME, NOT_AUTHORIZED)):
        client = gateway.begin("a", listener=at, will=will)
        gateway.world.run_until(lambda client=client: client.is_answered)  # type: ignore[misc]
        assert client.refused == code


def test_no_client_of_a_gateway_reads_a_workspace_from_outside() -> None:
    rule = Rule("$workspace/#", True, True, True)

    class Wide(FilePolicy):
        def rules(self, username: str | None, client_id: str) -> Sequence[Rule]:
            return (rule, *acl_file.OPEN)

    gateway = one_gateway(policy=Wide())
    assert gateway.connect("a").subscribe("$workspace/acme/#", "#") == [NOT_AUTHORIZED, 1]


def test_a_client_id_like_the_name_of_one_in_a_workspace_is_refused() -> None:
    gateway = one_gateway()
    client = gateway.begin("$workspace/acme/same")
    assert client.refused == WRONG_CLIENT_ID


def test_a_policy_says_of_which_workspace_a_client_is() -> None:
    gateway = one_gateway(policy=NamedPolicy())
    table = gateway.control._context.connection_table
    for name, at in (("acme", DEFAULT), ("free", DEFAULT), ("acme", ACME)):
        client = gateway.connect(f"{name}-{at}", listener=at, username=f"of-{name}")
        connection = table.get(client.number)
        assert connection is not None
        assert connection.workspace.name == name
        assert gateway.native_api.accepted[client.number].workspace == name
    for name, at in (("acme", OTHER), ("", ACME), ("No Name", DEFAULT)):
        assert gateway.begin(f"{name}-{at}", listener=at, username=f"of-{name}").refused == NOT_AUTHORIZED


def test_a_workspace_has_no_more_clients_than_its_quota() -> None:
    gateway = one_gateway(quotas=(WorkspaceQuotas("acme", sessions=2),))
    clients = [gateway.connect(f"c{number}", listener=ACME) for number in range(2)]
    third = gateway.begin("c2", listener=ACME)
    assert third.refused == QUOTA_EXCEEDED
    gateway.connect("c2", listener=OTHER)
    gateway.connect("c2")
    again = gateway.connect("c1", listener=ACME)
    assert clients[1].closed == TAKEN_OVER
    assert gateway.begin("c2", listener=ACME).refused == QUOTA_EXCEEDED
    again.drop()
    gateway.connect("c2", listener=ACME)


def test_operators_see_the_workspace_of_a_client() -> None:
    gateway = one_gateway()
    for at in NAMES:
        gateway.connect("same", listener=at)
    offline = gateway.connect("gone", listener=ACME, session_expiry_s=100)
    assert offline.subscribe("x") == [1]
    offline.drop()
    gateway.world.run(SECOND)
    listed = {
        (entry["client"], entry["workspace"], entry["state"])
        for entry in gateway.control._admin_requests._clients("")
    }
    assert listed == {
        ("same", None, "connected"),
        ("same", "acme", "connected"),
        ("same", "other", "connected"),
        ("gone", "acme", "offline"),
    }
