"""Sessions, groups and wills over a simulated network (docs/protocol.md §§6.4-6.6), with loss, and with
several owners."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Reason
from hbroker.protocol.results import Published, Subscribed, TakenOver, WillSet
from hbroker.protocol.sessions.options import SessionOptions, session_id
from hbroker.protocol.timers import SECOND
from hbroker.protocol.wills.client_will import Will
from hbroker.sim.network import CLEAR, ClientHost, Datagram, Faults, NodeHost
from hbroker.sim.network.checks.applications import Interest, Sent
from hbroker.sim.network.checks.losses import Losses
from hbroker.sim.network.checks.sharing import Sharing
from tests.network.networks import Tree

LOSSY = Faults(loss=0.1, reordering=0.1, duplication=0.05)
SESSION_OPTIONS = SessionOptions("lamp", session_id("lamp"), expiry_s=300)
TOPICS = ("home/kitchen/a", "home/bedroom/b", "garden/c")


def network(seed: int = 1, faults: Faults = LOSSY) -> Tree:
    return Tree.grow(seed, ("home/kitchen", "home/bedroom"), faults)


def subscribed(tree: Tree, host: ClientHost, filter: str = "#", group: str = "") -> Subscribed:
    """Subscribes at QoS 2, and waits until every owner has the subscription."""
    id = host.subscribe(filter, 2, group)

    def found() -> list[Subscribed]:
        return [o for o in host.results if isinstance(o, Subscribed) and o.subscription == id]

    tree.world.run_until(lambda: bool(found()))
    return found()[0]


def publish(
    tree: Tree, publisher: ClientHost, payloads: list[bytes], topics: tuple[str, ...] = TOPICS
) -> None:
    """Publishes each payload to each topic at QoS 2, and waits until all are acknowledged."""
    before = len(publish_results(publisher))
    for payload in payloads:
        for topic in topics:
            publisher.publish(topic, payload, 2)
    tree.world.run_until(lambda: len(publish_results(publisher)) == before + len(payloads) * len(topics))


def publish_results(publisher: ClientHost) -> list[Published]:
    return [result for result in publisher.results if isinstance(result, Published)]


def received(*hosts: ClientHost) -> list[tuple[str, bytes]]:
    return [(message.topic, message.payload) for host in hosts for message in host.messages]


def payloads(first: int, count: int = 10) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def assert_all_in_order(received: list[tuple[str, bytes]], sent: list[bytes]) -> None:
    for topic in TOPICS:
        assert [payload for at, payload in received if at == topic] == sent, topic


@pytest.mark.parametrize("how", ["killed", "left"])
@pytest.mark.parametrize("seed", [1, 2])
def test_messages_for_an_offline_session_arrive_at_the_next_run(how: str, seed: int) -> None:
    tree = network(seed)
    first = tree.client(session_options=SESSION_OPTIONS)
    assert not subscribed(tree, first).resumed
    publisher = tree.client("publisher")
    publish(tree, publisher, payloads(0))
    if how == "left":
        first.leave()
        tree.world.run(SECOND)
    first.kill()
    publish(tree, publisher, payloads(10))
    tree.world.run(60 * SECOND)
    publish(tree, publisher, payloads(20))
    second = tree.client(session_options=SESSION_OPTIONS)
    assert subscribed(tree, second).resumed
    publish(tree, publisher, payloads(30))
    tree.world.run_until(lambda: len(received(first, second)) >= 40 * len(TOPICS))
    tree.world.run(5 * SECOND)
    assert_all_in_order(received(first, second), payloads(0, 40))


def test_messages_of_an_ended_subscription_delay_the_rest_of_the_queue_only_once() -> None:
    """Soak seed 11679: each of these messages waited for a listener by itself, and all others waited
    behind it."""
    tree = network(faults=CLEAR)
    client = ClientHost(tree.world, tree.root.address, SESSION_OPTIONS.client, SESSION_OPTIONS, credit=1)
    ended = subscribed(tree, client, "garden/c").subscription
    subscribed(tree, client, "garden/d")
    client.stop()
    publish(tree, tree.client("publisher"), payloads(0), ("garden/c", "garden/d"))
    client.resume()
    client.unsubscribe(ended)
    client.messages.clear()
    tree.world.run(40 * SECOND)
    assert received(client) == [("garden/d", payload) for payload in payloads(0)]


def test_a_session_goes_on_from_another_address() -> None:
    tree = network()
    client = tree.client(session_options=SESSION_OPTIONS)
    subscribed(tree, client)
    publisher = tree.client("publisher")
    publish(tree, publisher, payloads(0))
    client.world.move(client)
    publish(tree, publisher, payloads(10))
    tree.world.run_until(lambda: len(received(client)) >= 20 * len(TOPICS))
    assert_all_in_order(received(client), payloads(0, 20))


def test_an_expired_session_is_forgotten_at_every_owner() -> None:
    tree = network(faults=Faults())
    session_options = SessionOptions("lamp", session_id("lamp"), expiry_s=20)
    first = tree.client(session_options=session_options)
    subscribed(tree, first)
    first.kill()
    publisher = tree.client("publisher")
    publish(tree, publisher, payloads(0, 2))
    tree.world.run(40 * SECOND)
    assert all(host.engine.counters()["subscriptions"] == 0 for host in (tree.root, *tree.nodes.values()))
    second = tree.client(session_options=session_options)
    assert not subscribed(tree, second).resumed
    publish(tree, publisher, payloads(2, 2))
    assert_all_in_order(received(second), payloads(2, 2))


def test_a_clean_start_ends_the_earlier_subscriptions_at_every_owner() -> None:
    tree = network()
    first = tree.client(session_options=SESSION_OPTIONS)
    subscribed(tree, first, "home/#")
    subscribed(tree, first, "garden/#")
    first.kill()
    second = tree.client(
        session_options=SessionOptions("lamp", SESSION_OPTIONS.session, 300, clean_start=True)
    )
    assert not subscribed(tree, second).resumed
    stored = [s.filter for host in (tree.root, *tree.nodes.values()) for s in host.control.subscription_store]
    assert stored == ["#"] * 3
    publish(tree, tree.client("publisher"), payloads(0, 5))
    tree.world.run(SECOND)
    assert_all_in_order(received(second), payloads(0, 5))


def test_a_session_is_not_resumed_if_an_owner_lost_it() -> None:
    tree = network(faults=Faults())
    first = tree.client(session_options=SESSION_OPTIONS)
    subscribed(tree, first)
    first.kill()
    kitchen = tree.nodes["home/kitchen"]
    kitchen.kill()
    again = tree.nodes["home/kitchen"] = kitchen.restart()
    tree.world.run_until(lambda: tree.serves(again))
    second = tree.client(session_options=SESSION_OPTIONS)
    assert not subscribed(tree, second).resumed


def test_a_later_run_takes_the_session_over_and_the_former_run_does_not_take_it_back() -> None:
    for seed in range(1, 6):
        tree = network(seed)
        first = tree.client(session_options=SESSION_OPTIONS)
        subscribed(tree, first)
        second = tree.client(session_options=SESSION_OPTIONS)
        subscribed(tree, second)
        tree.world.run_until(lambda: TakenOver() in first.results)  # noqa: B023 (it is called here)
        tree.world.run(30 * SECOND)
        publish(tree, tree.client("publisher"), payloads(0, 3))
        tree.world.run(5 * SECOND)
        assert TakenOver() not in second.results
        assert received(first) == []
        assert_all_in_order(received(second), payloads(0, 3))


# Groups


def test_the_members_of_a_group_share_the_messages_and_each_arrives_once() -> None:
    tree = network()
    members = [tree.client(f"member-{number}") for number in range(4)]
    for member in members:
        subscribed(tree, member, group="g")
    alone = tree.client("alone")
    subscribed(tree, alone)
    publish(tree, tree.client("publisher"), payloads(0, 40))
    tree.world.run(5 * SECOND)
    assert sorted(received(*members)) == sorted(received(alone))
    assert max(Counter(received(*members)).values()) == 1
    shares = [len(received(member)) for member in members]
    assert min(shares) > 0.1 * sum(shares), shares


def test_unacknowledged_messages_of_a_dead_member_go_to_other_members() -> None:
    tree = network(faults=Faults())
    members = [tree.client(f"member-{number}") for number in range(3)]
    for member in members:
        subscribed(tree, member, group="g")
    dead = members[0]
    dead.stop()
    publisher = tree.client("publisher")
    for payload in payloads(0, 30):
        publisher.publish("garden/c", payload, 2)
    tree.world.run_until(lambda: len(publish_results(publisher)) == 30, within=60 * SECOND)
    tree.world.run(30 * SECOND)
    assert sorted(received(*members[1:])) == sorted(("garden/c", payload) for payload in payloads(0, 30))


@pytest.mark.parametrize("seed", range(1, 6))
def test_messages_for_a_leaving_member_go_to_other_members(seed: int) -> None:
    tree = network(seed)
    members = [tree.client(f"member-{number}") for number in range(4)]
    subscriptions = [subscribed(tree, member, group="g").subscription for member in members]
    publisher = tree.client("publisher")
    for member, subscription in zip(members[1:], subscriptions[1:], strict=True):
        for payload in payloads(0, 30):
            publisher.publish("garden/c", b"%d " % subscription + payload, 2)
        tree.world.run(SECOND // 200)
        member.unsubscribe(subscription)
        tree.world.run(SECOND // 50)
    tree.world.run_until(lambda: len(publish_results(publisher)) == 90)
    assert len(set(received(*members))) == 90


def test_messages_of_the_only_persistent_member_wait_for_it_alone() -> None:
    """The expectation of the checkers: the message is acknowledged, and goes to the member that is back
    first."""
    sent = Sent("p", (1, 1), "a", 1, retain=False, payload=b"", at=5)
    kept, here = (Interest("a", 1, ("a",), 0, "g") for _ in range(2))
    changed: dict[str, int] = {}
    sharing = Sharing(SimpleNamespace(changed=changed), lambda: 9, Losses())  # type: ignore[arg-type]
    sharing.join(1, kept)
    kept.mark_whole("a", 1)
    assert list(sharing.distribute(sent, {1: 6})) == []
    assert list(sharing.groups_lacking(sent, set())) == [], "nobody is there"
    assert list(sharing.check_at_end(set())) == []
    assert list(sharing.groups_lacking(sent, {kept})) == ["$share/g/a"]
    assert len(list(sharing.check_at_end({kept}))) == 1
    sharing.join(2, here)
    here.mark_whole("a", 1)
    assert list(sharing.groups_lacking(sent, {here})) == ["$share/g/a"], "it is chosen before who is offline"
    assert list(sharing.check_at_end({here})) == [], "it waits where it was put before that one came"
    kept.end("a")
    assert len(list(sharing.check_at_end({here}))) == 1, "a session that ends gives it up"


@pytest.mark.parametrize("seed", range(1, 6))
def test_late_datagrams_of_one_run_acknowledge_nothing_of_the_next_run_at_the_same_address(seed: int) -> None:
    """For example when a client comes back to a gateway, whose pool clients share a socket."""
    tree = Tree.grow(seed)
    world, reader = tree.world, tree.client("reader")
    subscribed(tree, reader, "garden/c")
    first = tree.client(session_options=SESSION_OPTIONS)
    address = first.address

    def path(datagram: Datagram) -> Faults | None:
        if datagram.decode().header.session != SESSION_OPTIONS.session:
            return CLEAR
        if world.hosts.get(address) is first:
            return Faults(delay_us=SECOND // 5) if datagram.destination == address else CLEAR
        return None if is_cut else CLEAR

    is_cut = True
    world.path = path
    first.publish("garden/c", b"first", 1)
    world.run(SECOND // 20)
    first.kill()
    second = ClientHost(world, tree.root.address, session_options=SESSION_OPTIONS, address=address)
    second.publish("garden/c", b"second", 1)
    world.run(SECOND // 2)
    assert received(reader) == [("garden/c", b"first")]
    assert publish_results(second) == []
    is_cut = False
    world.run_until(lambda: bool(publish_results(second)))
    assert received(reader) == [("garden/c", b"first"), ("garden/c", b"second")]


# Wills


def will(delay_s: int = 0) -> Will:
    return Will(pb.Publish(topic="home/kitchen/gone", payload=b"gone", qos=pb.QOS_EXACTLY_ONCE), delay_s)


def with_will(tree: Tree, delay_s: int, session_options: SessionOptions = SESSION_OPTIONS) -> ClientHost:
    client = tree.client(session_options=session_options)
    client.set_will(will(delay_s))
    tree.world.run_until(lambda: WillSet("kitchen") in client.results)
    return client


def watcher(tree: Tree) -> ClientHost:
    host = tree.client("watcher")
    subscribed(tree, host, "home/kitchen/gone")
    return host


GONE = ("home/kitchen/gone", b"gone")


def test_a_will_is_published_once_after_its_delay() -> None:
    tree = network()
    reader = watcher(tree)
    client = with_will(tree, 30)
    tree.world.run(60 * SECOND)
    client.kill()
    tree.world.run(30 * SECOND)
    assert received(reader) == []
    tree.world.run(60 * SECOND)
    assert received(reader) == [GONE]


def test_a_delayed_will_is_not_published_if_the_client_is_back_in_time() -> None:
    tree = network()
    reader = watcher(tree)
    with_will(tree, 30).kill()
    tree.world.run(20 * SECOND)
    again = with_will(tree, 30)
    tree.world.run(120 * SECOND)
    assert received(reader) == []
    again.leave()
    tree.world.run(SECOND)  # so that the LEAVE arrives, however often it is lost
    again.kill()
    tree.world.run(120 * SECOND)
    assert received(reader) == [], "a clean close publishes none"


def test_the_will_of_a_client_that_was_cut_off_is_published_and_registered_anew() -> None:
    tree = network(faults=Faults())
    reader = watcher(tree)
    client = with_will(tree, 0)
    tree.world.path = lambda d: None if client.address in (d.source, d.destination) else Faults()
    tree.world.run(60 * SECOND)
    assert received(reader) == [GONE]
    tree.world.path = None
    tree.world.run(30 * SECOND)
    client.kill()
    tree.world.run(60 * SECOND)
    assert received(reader) == [GONE] * 2, "what it registered again is a message of its own"


def test_a_will_moves_with_its_subtree() -> None:
    tree = network()
    reader = watcher(tree)
    client = with_will(tree, 5)
    tree.join("home/kitchen/gone", name="gone")
    tree.world.run(30 * SECOND)
    assert received(reader) == []
    client.kill()
    tree.world.run(60 * SECOND)
    assert received(reader) == [GONE]


def test_a_will_is_registered_again_at_an_owner_that_restarted() -> None:
    tree = network(faults=Faults())
    client = with_will(tree, 0)
    kitchen = tree.nodes["home/kitchen"]
    kitchen.kill()
    again = tree.nodes["home/kitchen"] = kitchen.restart()
    tree.world.run(30 * SECOND)
    reader = watcher(tree)
    assert len(again.control.wills) == 1
    client.kill()
    tree.world.run(60 * SECOND)
    assert received(reader) == [GONE]


def test_a_will_to_the_status_topic_of_a_node_is_refused() -> None:
    tree = network(faults=Faults())
    client = tree.client(session_options=SESSION_OPTIONS)
    client.set_will(Will(pb.Publish(topic="$SYS/nodes/kitchen/status", payload=b"{}")))
    tree.world.run(SECOND)
    (refused,) = client.results
    assert getattr(refused, "reason", None) == Reason.REASON_NOT_AUTHORIZED


def test_a_message_that_expired_at_a_dead_member_does_not_go_to_another_member() -> None:
    tree = network(faults=Faults())
    first, second, publisher = (
        ClientHost(
            tree.world, tree.root.address, name, SessionOptions(name, session_id(name), expiry_s=expiry)
        )
        for name, expiry in (("first", 1), ("second", 300), ("publisher", 0))
    )
    subscribed(tree, first, "garden/c", "g")
    first.stop()
    publisher.catch_up()
    for payload, expiry_s in ((b"dies", 1), (b"lives", None)):
        publisher.engine.publish("garden/c", payload, 2, published_at_us=publisher.clock(), expiry_s=expiry_s)
    tree.world.drive(publisher)
    tree.world.run_until(lambda: len(publish_results(publisher)) == 2)
    first.kill()
    subscribed(tree, second, "garden/c", "g")
    tree.world.run_until(lambda: bool(second.messages))
    tree.world.run(SECOND)
    assert received(second) == [("garden/c", b"lives")]
    (status,) = (s for s in tree.root.engine.sessions(9) if s.session == second.session)
    assert (status.accepted, status.delivered, status.expired) == (2, 1, 1)


@pytest.mark.parametrize("is_offline", [True, False])
def test_a_session_without_remaining_subscriptions_ends_at_the_source_of_a_handover(is_offline: bool) -> None:
    """§6.4. Otherwise the empty session would stay there until its expiry."""
    tree = network(3, CLEAR)
    lamp, screen, kitchen = (
        tree.client(session_options=SESSION_OPTIONS),
        tree.client("screen"),
        tree.nodes["home/kitchen"],
    )
    subscribed(tree, lamp, "home/kitchen/+")
    if is_offline:
        lamp.leave()
        tree.world.run(SECOND)
        lamp.kill()
    publish(tree, screen, [b"waits"] if is_offline else [], TOPICS[:1])
    assert kitchen.control.sessions.get(lamp.session) is not None
    tree.order(kitchen, pb.ORDER_KIND_HAND_BACK, "home/kitchen")
    tree.world.run(SECOND)
    assert sessions_of(kitchen) == []
    assert sessions_of(tree.root) == [lamp.session]
    tree.order(kitchen, pb.ORDER_KIND_CLAIM, "home/kitchen")
    tree.world.run(SECOND)
    assert sessions_of(tree.root) == []
    assert sessions_of(kitchen) == [lamp.session]
    publish(tree, screen, [b"later"], TOPICS[:1])
    back = tree.client(session_options=SESSION_OPTIONS) if is_offline else lamp
    if is_offline:
        assert subscribed(tree, back, "home/kitchen/+").resumed
    expected = [b"waits", b"later"] if is_offline else [b"later"]
    tree.world.run_until(lambda: [message.payload for message in back.messages] == expected)


def sessions_of(node: NodeHost) -> list[int]:
    """The sessions that outlive their links."""
    return [status.session for status in node.engine.sessions(10) if is_kept(node, status.session)]


def is_kept(node: NodeHost, session: int) -> bool:
    known = node.control.sessions.get(session)
    return known is not None and known.is_persistent
