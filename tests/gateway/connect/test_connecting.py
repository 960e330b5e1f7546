"""CONNECT: which clients are accepted, and with what CONNACK (MQTT 5 §3.1, MQTT 5 §3.2)."""

from __future__ import annotations

import pytest

from hbroker.config import GatewayLimits
from hbroker.gateway.access.acl_file import parse
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.password_checks import ADDRESS, MOST_WAITING, PAIR
from hbroker.gateway.access.password_file import Passwords
from hbroker.gateway.access.policy import Admitted, Candidate, Challenge, Check, Decision, Refusal
from hbroker.gateway.native_api import AuthEvent, ConnectEvent, Rule, WillMessage
from hbroker.gateway.reason_codes import Code
from hbroker.runtime.gateway.policies import VerifiedPasswordCache
from tests.gateway.networks import Client, FakeGateway
from tests.network.networks import Tree


def one_gateway(seed: int = 1, **fields: object) -> FakeGateway:
    return FakeGateway(Tree.grow(seed, ("home",)), "one", **fields).ready()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"version": 6}, 0x84),
        ({"version": 2}, 0x84),
        ({"version": 3, "client_id": ""}, 0x85),
        ({"version": 4, "client_id": "", "clean_start": False}, 0x85),
        ({"version": 5, "client_id": "x" * 513}, 0x85),
        ({"version": 5, "auth_method": "SCRAM-SHA-1"}, 0x8C),
        ({"version": 5, "will": WillMessage("$SYS/broker/uptime")}, 0x87),
        ({"version": 4, "will": WillMessage("$gateway/claims/x")}, 0x87),
    ],
)
def test_a_refused_connect_gets_the_reason_code_of_the_specification(
    fields: dict[str, object], code: int
) -> None:
    gateway = one_gateway()
    client = gateway.begin(str(fields.pop("client_id", "a")), **fields)
    assert client.refused == code


def test_the_will_of_a_bridge_publishes_that_it_is_offline() -> None:
    gateway = one_gateway()
    state = "$SYS/broker/connection/house.bridge/state"
    watcher = gateway.connect("watcher")
    assert watcher.subscribe("$SYS/broker/#", qos=1) == [1]
    bridge = gateway.connect(
        "house.bridge", version=4, is_bridge=True, will=WillMessage(state, b"0", 1, True)
    )
    gateway.publish(state, b"1", retain=True)
    bridge.drop()
    gateway.world.run_until(lambda: (state, b"0") in watcher.taken)
    assert [text for topic, text in watcher.taken if topic == state] == [b"1", b"0"]


@pytest.mark.parametrize(("version", "clean"), [(4, True), (5, True), (5, False)])
def test_an_empty_client_id_is_replaced_and_the_assigned_one_returned(version: int, clean: bool) -> None:
    client = one_gateway().connect("", version=version, clean_start=clean)
    accept = client.native_api.accepted[client.number]
    assert accept.assigned_client_id == accept.client_id
    assert accept.client_id.startswith("auto-")
    other = client.gateway.connect("", version=version, clean_start=clean)
    assert client.native_api.accepted[other.number].client_id != accept.client_id


def test_the_configured_limits_are_applied_and_returned_in_connack() -> None:
    limits = GatewayLimits(connections=1, keep_alive=60, session_expiry=1_000)
    gateway = one_gateway(limits=limits)
    first = gateway.connect("a", keep_alive_s=0, session_expiry_s=5_000, clean_start=False)
    accept = first.native_api.accepted[first.number]
    assert (accept.server_keep_alive_s, accept.session_expiry_s) == (60, 1_000)
    assert gateway.begin("b").refused == 0x97
    assert gateway.begin("b", version=4).refused == 0x97
    first.drop()
    second = gateway.connect("b", keep_alive_s=30, session_expiry_s=10, clean_start=False)
    accept = second.native_api.accepted[second.number]
    assert (accept.server_keep_alive_s, accept.session_expiry_s) == (None, None)


def with_passwords() -> FakeGateway:
    passwords = Passwords({"alice": "$7$", "bob": "$7$b"}, VerifiedPasswordCache(b"secret"))
    return one_gateway(policy=FilePolicy(passwords, anonymous=False))


def test_a_connect_without_a_user_name_is_refused_if_anonymous_is_off() -> None:
    assert with_passwords().begin("a").refused == 0x87


def test_a_wrong_password_is_refused_with_bad_user_name_or_password() -> None:
    gateway = with_passwords()
    client = gateway.begin("a", username="alice", password=b"wrong")
    asked = gateway.control.poll_check(gateway.world.now)
    assert asked is not None
    number, check = asked
    assert not client.is_answered
    gateway.control.handle_decision(gateway.world.now, number, check())
    assert client.refused == 0x86
    assert gateway.control.poll_check(gateway.world.now) is None


def test_a_connect_is_refused_with_server_busy_if_too_many_password_checks_wait() -> None:
    gateway = with_passwords()
    told = [
        gateway.begin(f"c{n}", username=f"u{n}", password=b"x", peer=(f"2001:db8:{n:x}::1", 1))
        for n in range(MOST_WAITING + 1)
    ]
    assert [client.refused for client in told] == [None] * MOST_WAITING + [0x89]


def test_too_many_wrong_passwords_are_refused_with_connection_rate_exceeded() -> None:
    gateway = with_passwords()
    told = [gateway.begin(f"c{n}", username="alice", password=b"x") for n in range(PAIR.burst + 1)]
    assert [client.refused for client in told] == [None] * PAIR.burst + [0x9F]
    assert gateway.control.counters()["refused_pair"] == 1


def test_the_password_of_a_closed_connection_is_not_checked() -> None:
    gateway = with_passwords()
    gateway.begin("a", username="alice", password=b"x").drop()
    assert gateway.control.poll_check(gateway.world.now) is None


def test_a_client_whose_password_changes_during_the_check_is_refused() -> None:
    gateway = with_passwords()
    clients = {name: gateway.begin(name, username=name, password=b"x") for name in ("alice", "bob")}
    now = gateway.world.now
    asked = [gateway.control.poll_check(now) for _ in clients]
    changed = Passwords({"alice": "other", "bob": "$7$b"}, VerifiedPasswordCache(b"secret"))
    gateway.control.reload(now, FilePolicy(changed, anonymous=False), gateway.settings)
    for check, (name, proof) in zip(asked, (("alice", "$7$"), ("bob", "$7$b")), strict=True):
        assert check is not None
        gateway.control.handle_decision(now, check[0], Admitted(name, proof))
    gateway.settle()
    gateway.world.run_until(lambda: clients["bob"].is_accepted)
    assert clients["alice"].refused == 0x87


def test_a_decision_for_a_closed_connection_is_dropped() -> None:
    gateway = with_passwords()
    client = gateway.begin("a", username="alice", password=b"x")
    assert gateway.control.poll_check(gateway.world.now) is not None
    client.drop()
    gateway.control.handle_decision(gateway.world.now, client.number, Admitted("alice"))
    assert not client.is_answered


def test_a_will_on_a_topic_that_the_client_may_not_write_is_refused() -> None:
    access = parse("topic write home/#\ntopic deny home/secret", "acl")
    gateway = one_gateway(policy=FilePolicy(None, access))
    assert gateway.begin("a", will=WillMessage("home/secret")).refused == 0x87
    assert gateway.begin("a", will=WillMessage("office")).refused == 0x87
    assert gateway.connect("a", will=WillMessage("home/lamp")).is_accepted


class Hook:
    """A custom policy: two AUTH steps, then a user name."""

    def admit(self, candidate: Candidate) -> Decision | Check:
        return Refusal(Code.NOT_AUTHORIZED)

    def exchange(
        self, candidate: Candidate, method: str, data: bytes, step: int
    ) -> Decision | Challenge | None:
        if method != "twice":
            return None
        if data == b"no":
            return Refusal(Code.NOT_AUTHORIZED)
        return Challenge(b"again") if step == 0 else Admitted("hooked")

    def rules(self, username: str | None, client_id: str) -> list[Rule]:
        return [Rule("#", True, True, True)]

    def rules_name(self, username: str | None, client_id: str) -> tuple[str, ...]:
        return ()

    def still_admits(self, username: str | None, client_id: str, proof: str) -> bool:
        return True


def test_a_policy_can_implement_enhanced_authentication() -> None:
    gateway = one_gateway(policy=Hook())
    client = gateway.begin("a", auth_method="twice", auth_data=b"1")
    assert gateway.native_api.auths == [(client.number, 0x18, b"again")]
    gateway.tell(AuthEvent(client.number, 0x18, "twice", b"2"))
    gateway.world.run_until(lambda: client.is_accepted)
    assert gateway.native_api.accepted[client.number].auth_method == "twice"
    gateway.tell(AuthEvent(client.number, 0x19, "twice", b"1"))
    gateway.tell(AuthEvent(client.number, 0x18, "twice", b"2"))
    assert gateway.native_api.auths[1:] == [(client.number, 0x18, b"again"), (client.number, 0, b"")]
    gateway.tell(AuthEvent(client.number, 0x19, "twice", b"no"))
    assert client.closed == 0x87


@pytest.mark.parametrize("is_open", [False, True])
def test_an_authentication_that_takes_too_long_is_ended(is_open: bool) -> None:
    """Even if each answer arrives at once, and the exchange never ends."""
    gateway = one_gateway(policy=Hook())
    client = gateway.begin("a", auth_method="twice", auth_data=b"1")
    if is_open:
        gateway.tell(AuthEvent(client.number, 0x18, "twice", b"2"))
        gateway.world.run_until(lambda: client.is_accepted)
        gateway.world.run(30_000_000)
        assert client.closed is None, "what was done in time has no deadline any more"
        gateway.tell(AuthEvent(client.number, 0x19, "twice", b"1"))
    gateway.world.run(9_900_000)
    assert client.refused is None
    assert client.closed is None
    gateway.world.run(200_000)
    assert (client.closed if is_open else client.refused) == 0x87


def exchange(gateway: FakeGateway, data: bytes, host: str, name: str | None = None) -> Client:
    fields = {} if name is None else {"username": name}
    client = gateway.begin("a", auth_method="twice", auth_data=data, peer=(host, 1), **fields)
    if client.is_answered or data == b"given up":
        return client
    gateway.tell(AuthEvent(client.number, 0x18, "twice", b"2"))
    gateway.world.run_until(lambda: client.is_accepted)
    client.drop()
    return client


@pytest.mark.parametrize(("name", "most"), [(None, ADDRESS.burst), ("ann", PAIR.burst)])
def test_wrong_answers_in_auth_are_bounded_like_wrong_passwords(name: str | None, most: int) -> None:
    gateway = one_gateway(policy=Hook())
    told = [exchange(gateway, b"no", "192.0.2.9", name).refused for _ in range(most + 3)]
    assert told == [0x87] * most + [0x9F] * 3
    assert exchange(gateway, b"1", "192.0.2.9", name).refused == 0x9F
    assert exchange(gateway, b"1", "192.0.2.8", name).is_accepted
    by = "address" if name is None else "pair"
    assert gateway.control.counters()[f"refused_{by}"] == 4


def test_a_right_answer_in_auth_and_an_exchange_that_the_client_gave_up_are_no_guesses() -> None:
    gateway = one_gateway(policy=Hook())
    for _ in range(2 * PAIR.burst):
        assert exchange(gateway, b"1", "192.0.2.9", "ann").is_accepted
    for _ in range(PAIR.burst):
        exchange(gateway, b"given up", "192.0.2.9", "ann").drop()
    assert exchange(gateway, b"1", "192.0.2.9", "ann").refused == 0x9F, "none of these has an end yet"
    gateway.world.run(10_100_000)
    assert exchange(gateway, b"1", "192.0.2.9", "ann").is_accepted


def code_of_re_authentication(gateway: FakeGateway) -> int | None:
    """Logs in by AUTH, and then re-authenticates with a wrong answer. Returns the code with which the
    client is refused."""
    client = gateway.begin("a", auth_method="twice", auth_data=b"1", username="ann")
    gateway.tell(AuthEvent(client.number, 0x18, "twice", b"2"))
    gateway.world.run_until(lambda: client.is_answered)
    gateway.tell(AuthEvent(client.number, 0x19, "twice", b"no"))
    return client.refused or client.closed


def test_wrong_answers_in_a_re_authentication_count_as_guesses() -> None:
    gateway = one_gateway(policy=Hook())
    codes = [code_of_re_authentication(gateway) for _ in range(PAIR.burst + 1)]
    assert codes == [0x87] * PAIR.burst + [0x9F]


def test_a_change_of_the_authentication_method_is_a_protocol_error() -> None:
    gateway = one_gateway(policy=Hook())
    client = gateway.begin("a", auth_method="twice", auth_data=b"1")
    gateway.tell(AuthEvent(client.number, 0x18, "other", b"2"))
    assert client.is_answered
    assert not client.is_accepted


def test_a_packet_of_a_connection_that_is_not_accepted_is_dropped() -> None:
    gateway = one_gateway()
    client = gateway.begin("a")
    packet_id = client.begin_subscribe("home/#")
    gateway.world.run_until(lambda: client.is_accepted)
    gateway.world.run(1_000_000)
    assert (client.number, packet_id) not in gateway.native_api.subacks


def test_the_event_does_not_show_the_password() -> None:
    event = ConnectEvent(1, 0, ("192.0.2.1", 1), 5, "a", password=b"hunter2")
    assert "hunter2" not in repr(event)
