"""`hbroker clients`, `hbroker kick` and SIGHUP, at the gateways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hbroker.config import GatewayLimits
from hbroker.gateway.access.acl_file import parse
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.password_file import Passwords
from hbroker.gateway.admin_requests import CLIENTS, KICK, Request
from hbroker.gateway.records.record_authentication import sign, verify
from hbroker.runtime.gateway.policies import VerifiedPasswordCache
from hbroker.sim.network import ClientHost
from tests.gateway.networks import SECOND, FakeGateway, two_gateways
from tests.network.networks import Tree

KEY = b"k" * 32


def ask(tree: Tree, request: Request, key: bytes = b"", payload: bytes | None = None) -> ClientHost:
    operator = tree.client()
    operator.subscribe(request.reply_topic, 1)
    tree.world.run(SECOND // 5)
    operator.publish(request.topic, payload or sign(key, request.topic, request.body()), 1)
    tree.world.run(2 * SECOND)
    return operator


def answers(operator: ClientHost, key: bytes = b"") -> dict[str, list[dict[str, Any]]]:
    """The entries by gateway, for the gateways whose list is complete."""
    lists: dict[str, list[dict[str, Any]]] = {}
    ended = set()
    for message in operator.messages:
        body = verify(key, message.topic, bytes(message.payload))
        assert body is not None
        lists.setdefault(body["gateway"], []).extend(body["entries"])
        if body["is_last"]:
            ended.add(body["gateway"])
    return {gateway: entries for gateway, entries in lists.items() if gateway in ended}


def test_every_gateway_lists_its_clients() -> None:
    tree, one, two = two_gateways()
    for number in range(450):
        one.begin(f"c{number}", version=4)
    one.connect("offline", clean_start=False, session_expiry_s=50).drop()
    two.connect("b", username="bob").subscribe("home/#")
    operator = ask(tree, Request(CLIENTS, "r" * 16, tree.world.now))
    told = answers(operator)
    assert sorted(told) == ["one", "two"]
    assert len([e for e in told["one"] if e["state"] == "connected"]) == 450
    assert [e["client"] for e in told["one"] if e["state"] == "offline"] == ["offline"]
    (entry,) = told["two"]
    assert (entry["client"], entry["user"], entry["version"], entry["subscriptions"]) == ("b", "bob", 5, 1)
    assert entry["address"] == "192.0.2.1:4000"


def test_a_kick_closes_one_connection_and_keeps_its_session() -> None:
    tree, one, two = two_gateways()
    kept = one.connect("a", clean_start=False, session_expiry_s=50)
    other = two.connect("b")
    told = answers(ask(tree, Request(KICK, "r" * 16, tree.world.now, "a")))
    assert {name: entry["kicked"] for name, (entry,) in told.items()} == {"one": True, "two": False}
    assert (kept.closed, other.closed) == (0x98, None)
    assert two.connect("a", clean_start=False, session_expiry_s=50).is_present


@pytest.mark.parametrize(
    ("key", "age", "is_obeyed"),
    [(KEY, 0, True), (b"", 0, False), (b"x" * 32, 0, False), (KEY, 120, False), (KEY, -120, False)],
)
def test_a_request_without_the_networks_key_or_with_an_old_time_is_ignored(
    key: bytes, age: int, is_obeyed: bool
) -> None:
    tree = Tree.grow(1, ("home",))
    one = FakeGateway(tree, "one", key=KEY).ready()
    client = one.connect("a")
    operator = ask(tree, Request(KICK, "r" * 16, tree.world.now - age * SECOND, "a"), key)
    assert (client.closed == 0x98) == is_obeyed == bool(answers(operator, KEY))


def test_a_replayed_request_is_ignored() -> None:
    tree = Tree.grow(1, ("home",))
    one = FakeGateway(tree, "one", key=KEY).ready()
    one.connect("a")
    request = Request(KICK, "r" * 16, tree.world.now, "a")
    ask(tree, request, KEY)
    again = one.connect("a")
    ask(tree, request, KEY)
    assert again.closed is None
    assert one.control.counters()["orders_dropped"] == 1


@pytest.mark.parametrize("reply", ["", "short", "a/" + "r" * 20, "#" * 20, "r" * 65])
def test_a_request_with_an_invalid_reply_topic_is_ignored(reply: str) -> None:
    tree = Tree.grow(1, ("home",))
    one = FakeGateway(tree, "one").ready()
    body = {"kind": KICK, "reply": reply, "at_us": tree.world.now, "client": "a"}
    client = one.connect("a")
    tree.client().publish("$gateway/requests/kick", sign(b"", "", body), 1)
    tree.world.run(SECOND)
    assert client.closed is None


class TestReload:
    """SIGHUP."""

    def passwords(self, **hashes: str) -> Passwords:
        return Passwords(hashes, VerifiedPasswordCache(b"secret"))

    def policy(self, anonymous: bool = True, access: str | None = None, **hashes: str) -> FilePolicy:
        return FilePolicy(
            self.passwords(**hashes), None if access is None else parse(access, "acl"), anonymous=anonymous
        )

    def admitted(self, gateway: FakeGateway, user: str) -> Any:
        client = gateway.begin(user, username=user, password=b"x")
        asked = gateway.control.poll_check(gateway.world.now)
        assert asked is not None
        answer = gateway.control._context.policy.admit
        assert answer is not None
        from hbroker.gateway.access.policy import Admitted

        proof = gateway.control._context.policy._passwords.hash_of(user)  # type: ignore[attr-defined]
        gateway.control.handle_decision(gateway.world.now, asked[0], Admitted(user, proof))
        gateway.settle()
        gateway.world.run_until(lambda: client.is_accepted)
        return client

    def test_clients_whose_password_changed_or_was_removed_are_disconnected(self) -> None:
        tree = Tree.grow(1, ("home",))
        gateway = FakeGateway(tree, "one", policy=self.policy(ann="1", bob="2", cyd="3")).ready()
        clients = {name: self.admitted(gateway, name) for name in ("ann", "bob", "cyd")}
        nobody = gateway.connect("nobody")
        gateway.control.reload(tree.world.now, self.policy(False, ann="1", bob="other"), gateway.settings)
        closed = {name: client.closed for name, client in clients.items()}
        assert closed == {"ann": None, "bob": 0x87, "cyd": 0x87}
        assert nobody.closed == 0x87

    def test_new_access_rules_and_limits_apply_at_once_to_open_connections(self) -> None:
        tree = Tree.grow(1, ("home",))
        gateway = FakeGateway(tree, "one", policy=self.policy()).ready()
        one, two = gateway.connect("a"), gateway.connect("b")
        assert len(gateway.native_api.acls) == 1
        access = "topic read home/#\npattern write of/%c"
        settings = replace(gateway.settings, limits=GatewayLimits(subscriptions=1))
        gateway.control.reload(tree.world.now, self.policy(access=access), settings)
        lists = [gateway.native_api.acls[gateway.native_api.assigned[c.number]] for c in (one, two)]
        assert [[r.filter for r in rules] for rules in lists] == [["home/#", "of/a"], ["home/#", "of/b"]]
        assert len(gateway.native_api.acls) == 2
        assert one.subscribe("home/x", "office/x", "home/y") == [1, 0x87, 0x97]
        assert one.closed is two.closed is None
        one.drop()
        assert len(gateway.native_api.acls) == 1
