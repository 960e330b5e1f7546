"""SUBSCRIBE and UNSUBSCRIBE (MQTT 5 §3.8 to MQTT 5 §3.11, MQTT 5 §4.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hbroker._native import Message
from hbroker.config import GatewayLimits
from hbroker.gateway.access.acl_file import parse
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.connections.connection import MOST_SHAPES
from hbroker.gateway.native_api import SubscribeEvent, SubscribeOptions
from hbroker.gateway.network_clients import network_session
from hbroker.protocol.client import ClientControl
from hbroker.protocol.subscriptions.client.options import NewListener
from tests.gateway.fakes import MemberHost
from tests.gateway.networks import SECOND, Client, FakeGateway
from tests.network.networks import HOME, Tree


def one_gateway(seed: int = 1, subtrees: tuple[str, ...] = ("home",), **fields: object) -> FakeGateway:
    return FakeGateway(Tree.grow(seed, subtrees), "one", **fields).ready()  # type: ignore[arg-type]


def test_clients_of_one_filter_share_one_network_subscription() -> None:
    gateway = one_gateway()
    clients = [gateway.connect(f"c{number}") for number in range(5)]
    for client in clients:
        assert client.subscribe("home/+") == [1]
    owner = gateway.tree.nodes["home"]
    assert owner.engine.matching("home/oven") == 1
    gateway.publish("home/oven", b"180")
    gateway.world.run_until(lambda: all(c.taken == [("home/oven", b"180")] for c in clients))


def test_the_listener_is_attached_before_the_subscription_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = one_gateway()
    client = gateway.connect("a")
    order: list[tuple[str, object]] = []
    attach, subscribe = gateway.native_api.attach_listener, ClientControl.subscribe_together

    def attached(listener: int, *args: Any, **options: Any) -> None:
        order.append(("attach", listener))
        attach(listener, *args, **options)

    def subscribed(control: ClientControl, now: int, wanted: Sequence[NewListener], **options: Any) -> None:
        order.extend(("subscribe", each.listener) for each in wanted)
        subscribe(control, now, wanted, **options)

    monkeypatch.setattr(gateway.native_api, "attach_listener", attached)
    monkeypatch.setattr(ClientControl, "subscribe_together", subscribed)
    assert client.subscribe("home/a") == [1]
    assert [kind for kind, _ in order] == ["attach", "subscribe"]
    assert order[0][1] == order[1][1]


def test_queued_messages_reach_all_matching_subscriptions_of_a_resumed_session_however_fast_the_owner_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pool client's core sends and receives while the gateway makes one subscription after the other."""
    gateway = one_gateway()
    native_api, owner = gateway.native_api, gateway.tree.nodes["home"]
    client = gateway.connect("a", clean_start=False, session_expiry_s=100)
    client.subscribe("home/oven", "home/+", "home/#", "$share/g/home/+")
    client.disconnect()
    gateway.world.run(SECOND)
    gateway.publish("home/oven", b"180")
    gateway.world.run(SECOND)
    came: list[list[int]] = []
    route = native_api.route

    def routed(host: MemberHost, messages: list[Message]) -> None:
        if host.number:
            came.extend(message.subscriptions for message in messages)
        route(host, messages)

    def exchange(host: MemberHost) -> None:
        while host.number and (sent := host.poll_transmit()):
            for destination, data in sent:
                assert destination == owner.address
                owner.handle_datagram(host.address, data)
            owner.process_events()
            for destination, data in owner.poll_transmit():
                if destination == host.address:
                    host.handle_datagram(owner.address, data)
                else:
                    gateway.world.inject(owner.address, destination, data)

    monkeypatch.setattr(native_api, "route", routed)
    native_api.meanwhile = exchange
    client = gateway.connect("a", clean_start=False, session_expiry_s=100)
    gateway.world.run_until(lambda: len(client.taken) == 2)
    assert sorted(map(len, came)) == [1, 3], "one copy for the group, and one for all others"


@pytest.mark.parametrize(
    ("filter", "code"),
    [
        ("home/#/x", 0x8F),
        ("home+", 0x8F),
        ("", 0x8F),
        ("$share/g", 0x8F),
        ("$share//home", 0x8F),
        ("$share/a+/home", 0x8F),
        ("$gateway/claims/#", 0x87),
        ("$share/g/$gateway/#", 0x87),
        ("$other/x", 0x87),
        ("$SYS/#", 0),
        ("#", 0),
        ("/", 0),
    ],
)
def test_suback_has_the_reason_codes_of_the_clients_version(filter: str, code: int) -> None:
    gateway = one_gateway()
    five, three = gateway.connect("five"), gateway.connect("three", version=4)
    assert five.subscribe("home/x", filter, qos=0) == [0, code]
    assert three.subscribe("home/x", filter, qos=0) == [0, code if code < 0x80 else 0x80]


def test_no_local_on_a_shared_subscription_is_a_protocol_error() -> None:
    client = one_gateway().connect("a")
    client.begin_subscribe("$share/g/home", no_local=True)
    assert client.closed == 0x82


def test_a_filter_is_refused_only_if_the_rules_allow_no_matching_topic() -> None:
    access = parse("topic read home/#\ntopic deny home/secret/#", "acl")
    client = one_gateway(policy=FilePolicy(None, access)).connect("a")
    wanted = ("home/x", "#", "home/secret/safe", "office", "$share/g/office/#", "$SYS/#")
    assert client.subscribe(*wanted) == [1, 1, 0x87, 0x87, 0x87, 0x87]


def test_the_filters_of_a_client_are_bounded() -> None:
    client = one_gateway(limits=GatewayLimits(subscriptions=2)).connect("a")
    assert client.subscribe("home/a", "home/b", "home/c") == [1, 1, 0x97]
    assert client.subscribe("home/a") == [1], "it replaces what is there"
    assert client.unsubscribe("home/a") == [0]
    assert client.subscribe("home/c") == [1]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (GatewayLimits(), (0, 0)),
        (GatewayLimits(queue_messages=50), (50, 0)),
        (GatewayLimits(queue_messages=50, queue_bytes=1 << 20), (50, 1 << 20)),
    ],
)
def test_an_owner_applies_its_own_bounds_unless_the_gateway_has_others(
    limits: GatewayLimits, expected: tuple[int, int]
) -> None:
    gateway = one_gateway(limits=limits)
    gateway.connect("a", clean_start=False, session_expiry_s=100).subscribe("home/x")
    session = gateway.tree.nodes["home"].control.sessions.get(network_session("a", b""))
    assert session is not None
    assert (session.queue_messages, session.queue_bytes) == expected


def test_a_long_filter_counts_more_than_once() -> None:
    """Otherwise the record of a session, which every gateway stores, could have hundreds of megabytes."""
    client = one_gateway(limits=GatewayLimits(subscriptions=10)).connect("a")
    long = "home/" + "x" * (8 * 64)
    assert client.subscribe(long, "home/b", "home/c") == [1, 1, 0x97]
    assert client.subscribe(long) == [1], "it replaces what is there"
    assert client.unsubscribe(long) == [0]
    assert client.subscribe("home/c", long + "x" * 64) == [1, 0x97]
    assert client.subscribe("home/c", long) == [1, 0x97]


def test_one_client_cannot_use_up_the_filter_shapes_of_the_gateway() -> None:
    client = one_gateway().connect("a")
    odd = ["/".join("+" if at in {0, 1, last} else "a" for at in range(20)) for last in range(2, 20)]
    codes = client.subscribe(*odd)
    assert codes == [1] * MOST_SHAPES + [0x97] * (len(odd) - MOST_SHAPES)
    assert client.subscribe(odd[0], "+/a/+/#", "+" + "/a" * 64) == [1, 1, 0x97]
    assert client.unsubscribe(odd[0]) == [0]
    assert client.subscribe(odd[-1]) == [1]


def test_suback_waits_for_every_owner() -> None:
    gateway = one_gateway(subtrees=HOME)
    client = gateway.connect("a")
    cams = gateway.tree.nodes["home/outside/securitycams"]
    cams.stop()
    packet_id = client.begin_subscribe("home/#")
    gateway.world.run(3 * SECOND)
    assert (client.number, packet_id) not in gateway.native_api.subacks
    cams.resume()
    gateway.world.run_until(lambda: (client.number, packet_id) in gateway.native_api.subacks)
    assert gateway.native_api.subacks[client.number, packet_id] == [1]
    for node in gateway.tree.nodes.values():
        assert node.engine.matching(f"{node.settings.subtree}/x") == 1


@pytest.mark.parametrize(("version", "code"), [(5, 0x80), (4, 0x80)])
def test_only_the_filter_whose_owner_does_not_answer_fails(version: int, code: int) -> None:
    gateway = one_gateway(subtrees=("home", "office"))
    client = gateway.connect("a", version=version)
    gateway.tree.nodes["office"].stop()
    assert client.subscribe("home/x", "office/x") == [1, code]
    gateway.publish("home/x", b"1")
    gateway.world.run_until(lambda: client.taken == [("home/x", b"1")])
    assert client.unsubscribe("office/x") == [0x11]


def test_suback_is_sent_before_retained_messages() -> None:
    gateway = one_gateway()
    gateway.publish("home/lamp", b"on", retain=True)
    gateway.world.run(SECOND)
    client = gateway.connect("a")
    client.subscribe("home/+")
    gateway.world.run_until(lambda: client.taken == [("home/lamp", b"on")])
    assert [kind for kind, _ in gateway.native_api.log] == ["accept", "suback"]


@pytest.mark.parametrize(("handling", "again"), [(0, 2), (1, 1), (2, 0)])
def test_a_repeated_subscribe_sends_retained_messages_as_its_retain_handling_says(
    handling: int, again: int
) -> None:
    gateway = one_gateway()
    gateway.publish("home/lamp", b"on", retain=True)
    gateway.world.run(SECOND)
    client = gateway.connect("a")
    for _ in range(2):
        client.subscribe("home/lamp", retain_handling=handling)
        gateway.world.run(SECOND)
    assert client.taken == [("home/lamp", b"on")] * again


def test_a_repeated_subscribe_replaces_the_subscription_without_a_gap() -> None:
    gateway = one_gateway()
    client = gateway.connect("a")
    client.subscribe("home/lamp", qos=0)
    for number in range(20):
        gateway.publish("home/lamp", b"%d" % number)
        client.begin_subscribe("home/lamp", qos=1 + number % 2, retain_handling=2)
        gateway.world.run(3_000)
    gateway.world.run(SECOND)
    assert client.taken == [("home/lamp", b"%d" % number) for number in range(20)]
    assert len(gateway.native_api.listeners) == 1


def test_unsubscribe_ends_the_subscription_at_the_owner() -> None:
    gateway = one_gateway()
    one, two = gateway.connect("a"), gateway.connect("b")
    one.subscribe("home/x")
    two.subscribe("home/x")
    owner = gateway.tree.nodes["home"]
    assert one.unsubscribe("home/x", "home/y", "home/#/x") == [0, 0x11, 0x8F]
    assert owner.engine.matching("home/x") == 1
    two.drop()
    gateway.world.run_until(lambda: owner.engine.matching("home/x") == 0)


def test_unsubscribe_answers_a_subscribe_that_has_no_suback_yet() -> None:
    gateway = one_gateway(subtrees=("home", "office"))
    gateway.tree.nodes["office"].stop()
    client = gateway.connect("a")
    packet_id = client.begin_subscribe("office/x")
    assert client.unsubscribe("office/x") == [0]
    assert gateway.native_api.subacks[client.number, packet_id] == [1]


def test_members_at_several_gateways_share_a_group() -> None:
    tree = Tree.grow(3, ("home",))
    clients = [FakeGateway(tree, name).ready().connect(name) for name in ("one", "two", "three")]
    for client in clients:
        assert client.subscribe("$share/g/home/+") == [1]
    for number in range(60):
        clients[0].gateway.publish("home/oven", b"%d" % number)
    tree.world.run(2 * SECOND)
    shares = [len(client.taken) for client in clients]
    assert sum(shares) == 60
    assert min(shares) > 5, shares


def test_two_members_at_one_gateway_share_a_group() -> None:
    gateway = one_gateway()
    clients = [gateway.connect(name) for name in ("a", "b")]
    for client in clients:
        assert client.subscribe("$share/g/home/+") == [1]
    for number in range(40):
        gateway.publish("home/oven", b"%d" % number)
    gateway.world.run(2 * SECOND)
    assert sorted(int(payload) for client in clients for _, payload in client.taken) == list(range(40))
    assert min(len(client.taken) for client in clients) > 3


def test_unacknowledged_messages_of_a_leaving_member_go_to_another_member() -> None:
    gateway = one_gateway()
    one, two = gateway.connect("a"), gateway.connect("b")
    one.subscribe("$share/g/home/+")
    one.session.connection = None  # so it acknowledges nothing
    gateway.publish("home/oven", b"1")
    gateway.world.run(SECOND)
    assert two.subscribe("$share/g/home/+") == [1]
    one.drop()
    gateway.world.run_until(lambda: two.taken == [("home/oven", b"1")])


def test_the_gateway_publishes_the_sys_broker_topics() -> None:
    gateway = one_gateway()
    client = gateway.connect("a")
    assert client.subscribe("$SYS/broker/#") == [1]
    assert gateway.native_api.hosts.keys() == {0}
    values = dict(client.taken)
    assert values["$SYS/broker/messages/received"] == b"7"
    assert values["$SYS/broker/uptime"].endswith(b" seconds")
    assert {retained for _, _, retained in client.session.taken} == {True}
    client.session.taken.clear()
    gateway.world.run(11 * SECOND)
    told = dict(client.taken)
    assert told["$SYS/broker/clients/connected"] == b"1", "it has changed"
    assert "$SYS/broker/messages/received" not in told, "it has not"
    assert {retained for _, _, retained in client.session.taken} == {False}
    assert client.unsubscribe("$SYS/broker/#") == [0]


def test_a_subscription_to_all_sys_topics_includes_those_of_the_nodes() -> None:
    gateway = one_gateway()
    client = gateway.connect("a")
    assert client.subscribe("$SYS/#") == [1]
    gateway.world.run_until(lambda: any(t.startswith("$SYS/nodes/home/") for t, _ in client.taken))
    assert any(topic.startswith("$SYS/broker/") for topic, _ in client.taken)


def test_a_bridge_before_mqtt_5_gets_no_local_and_retain_as_published() -> None:
    gateway = one_gateway()
    wants = {"no_local": True, "retain_as_published": True}
    for is_bridge in (False, True):
        client = gateway.connect("b", version=4, is_bridge=is_bridge)
        client.subscribe("home/#", "$share/g/home/#")
        options = {n.filter: n.options for n in gateway.native_api.listeners.values()}
        (own, shared) = (listening.options for listening in gateway.native_api.listeners.values())
        assert own == SubscribeOptions(1, **(wants if is_bridge else {})), options
        assert shared == SubscribeOptions(1, retain_as_published=is_bridge), "a group has no such members"
        client.disconnect()


def at_once(client: Client) -> None:
    wanted = (("home/lamp", SubscribeOptions(0)), ("home/#", SubscribeOptions(1)))
    packet_id = next(client.packet_ids)
    client.gateway.tell(SubscribeEvent(client.number, packet_id, wanted, 7))
    client.gateway.world.run_until(lambda: (client.number, packet_id) in client.native_api.subacks)


def pipelined(client: Client) -> None:
    packets = [client.begin_subscribe("home/lamp", qos=0), client.begin_subscribe("home/#", qos=1)]
    awaited = {(client.number, packet_id) for packet_id in packets}
    client.gateway.world.run_until(lambda: awaited <= client.native_api.subacks.keys())


def one_after_the_other(client: Client) -> None:
    client.subscribe("home/lamp", qos=0)
    client.subscribe("home/#", qos=1)


@pytest.mark.parametrize("subscribe", [at_once, pipelined, one_after_the_other])
def test_overlapping_subscriptions_of_a_persistent_session_deliver_each_message_once(
    subscribe: Callable[[Client], None],
) -> None:
    """At the owners, the session's own subscription replaces the one that the gateway made for QoS 0."""
    gateway = one_gateway()
    kept: dict[str, Any] = {"clean_start": False, "session_expiry_s": 100}
    client = gateway.connect("a", **kept)
    subscribe(client)
    gateway.world.run(SECOND)
    for number in range(2):
        gateway.publish("home/lamp", b"%d" % number)
        gateway.publish("home/oven", b"%d" % number)
        gateway.world.run(SECOND)
        expected = {("home/lamp", b"%d" % number), ("home/oven", b"%d" % number)}
        assert sorted(client.taken) == sorted(expected)
        client.disconnect()
        client = gateway.connect("a", **kept)
    assert client.unsubscribe("home/#") == [0]
    gateway.publish("home/lamp", b"left")
    gateway.publish("home/oven", b"left")
    gateway.world.run(SECOND)
    assert client.taken == [("home/lamp", b"left")]
    client.drop()
    assert len(gateway.native_api.listeners) == 0


def test_a_subscription_moves_to_the_session_once_its_unreachable_owner_is_back() -> None:
    gateway = one_gateway()
    client = gateway.connect("a", session_expiry_s=100)
    client.subscribe("home/lamp", qos=0)
    gateway.tree.nodes["home"].stop()
    packet_id = client.begin_subscribe("home/#", qos=1)
    gateway.world.run(12 * SECOND)
    assert client.native_api.subacks[client.number, packet_id] == [0x80]
    gateway.tree.nodes["home"].resume()
    gateway.world.run(15 * SECOND)
    gateway.publish("home/lamp", b"1")
    gateway.world.run(SECOND)
    assert client.taken == [("home/lamp", b"1")]


@pytest.mark.parametrize("ends", ["drop", "disconnect", "offline"])
@pytest.mark.parametrize("first_us", [0, 300, 1_000, 5_000])
def test_a_session_can_end_while_its_subscriptions_wait(first_us: int, ends: str) -> None:
    """Subscriptions that were made again before they were complete are removed with the session, too."""
    gateway = one_gateway()
    owner = gateway.tree.nodes["home"]
    client = gateway.connect("a", session_expiry_s=1)
    owner.stop()
    for filter, qos in (("home/lamp", 0), ("home/lamp", 0), ("home/#", 1), ("home/lamp", 0)):
        client.begin_subscribe(filter, qos=qos)
        gateway.world.run(first_us)
    if ends == "disconnect":
        client.disconnect(session_expiry_s=0)
    else:
        client.drop()
    gateway.world.run(3 * SECOND if ends == "offline" else 200_000)
    owner.resume()
    gateway.world.run(12 * SECOND)
    assert len(gateway.native_api.listeners) == 0
