"""Sessions, groups and wills over a simulated network (docs/protocol.md §§6.4-6.6): with loss, and over
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
TERMS = SessionOptions("lamp", session_id("lamp"), expiry_s=300)
TOPICS = ("home/kitchen/a", "home/bedroom/b", "garden/c")


def network(seed: int = 1, faults: Faults = LOSSY) -> Tree:
    return Tree.grow(seed, ("home/kitchen", "home/bedroom"), faults)


def subscribed(tree: Tree, host: ClientHost, filter: str = "#", group: str = "") -> Subscribed:
    """Subscribes at QoS 2, and waits until every owner has it."""
    id = host.subscribe(filter, 2, group)

    def found() -> list[Subscribed]:
        return [o for o in host.results if isinstance(o, Subscribed) and o.subscription == id]

    tree.world.run_until(lambda: bool(found()))
    return found()[0]


def publish(
    tree: Tree, publisher: ClientHost, payloads: list[bytes], topics: tuple[str, ...] = TOPICS
) -> None:
    """Publishes each payload to each topic at QoS 2, and waits until all are acknowledged."""
    before = len(done(publisher))
    for payload in payloads:
        for topic in topics:
            publisher.publish(topic, payload, 2)
    tree.world.run_until(lambda: len(done(publisher)) == before + len(payloads) * len(topics))


def done(publisher: ClientHost) -> list[Published]:
    return [result for result in publisher.results if isinstance(result, Published)]


def heard(*hosts: ClientHost) -> list[tuple[str, bytes]]:
    return [(message.topic, message.payload) for host in hosts for message in host.messages]


def payloads(first: int, count: int = 10) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def assert_all_in_order(received: list[tuple[str, bytes]], sent: list[bytes]) -> None:
    for topic in TOPICS:
        assert [payload for at, payload in received if at == topic] == sent, topic


@pytest.mark.parametrize("how", ["killed", "left"])
@pytest.mark.parametrize("seed", [1, 2])
def test_what_came_while_it_was_away_waits_for_the_next_run(how: str, seed: int) -> None:
    tree = network(seed)
    first = tree.client(session_options=TERMS)
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
    second = tree.client(session_options=TERMS)
    assert subscribed(tree, second).resumed
    publish(tree, publisher, payloads(30))
    tree.world.run_until(lambda: len(heard(first, second)) >= 40 * len(TOPICS))
    tree.world.run(5 * SECOND)
    assert_all_in_order(heard(first, second), payloads(0, 40))


def test_a_queue_for_a_subscription_that_ended_holds_up_the_rest_of_its_session_once() -> None:
    """Soak seed 11679: each of its messages waited for a listener by itself, with all else behind it."""
    tree = network(faults=CLEAR)
    client = ClientHost(tree.world, tree.root.address, TERMS.client, TERMS, credit=1)
    ended = subscribed(tree, client, "garden/c").subscription
    subscribed(tree, client, "garden/d")
    client.stop()
    publish(tree, tree.client("publisher"), payloads(0), ("garden/c", "garden/d"))
    client.go_on()
    client.unsubscribe(ended)
    client.messages.clear()
    tree.world.run(40 * SECOND)
    assert heard(client) == [("garden/d", payload) for payload in payloads(0)]


def test_it_goes_on_from_another_address() -> None:
    tree = network()
    client = tree.client(session_options=TERMS)
    subscribed(tree, client)
    publisher = tree.client("publisher")
    publish(tree, publisher, payloads(0))
    client.roam()
    publish(tree, publisher, payloads(10))
    tree.world.run_until(lambda: len(heard(client)) >= 20 * len(TOPICS))
    assert_all_in_order(heard(client), payloads(0, 20))


def test_a_session_whose_expiry_is_over_is_forgotten() -> None:
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
    assert_all_in_order(heard(second), payloads(2, 2))


def test_a_clean_start_ends_what_was_left_at_every_owner() -> None:
    tree = network()
    first = tree.client(session_options=TERMS)
    subscribed(tree, first, "home/#")
    subscribed(tree, first, "garden/#")
    first.kill()
    second = tree.client(session_options=SessionOptions("lamp", TERMS.session, 300, clean_start=True))
    assert not subscribed(tree, second).resumed
    stored = [s.filter for host in (tree.root, *tree.nodes.values()) for s in host.control.subscribers]
    assert stored == ["#"] * 3
    publish(tree, tree.client("publisher"), payloads(0, 5))
    tree.world.run(SECOND)
    assert_all_in_order(heard(second), payloads(0, 5))


def test_an_owner_that_restarts_has_lost_it_and_the_client_is_told() -> None:
    tree = network(faults=Faults())
    first = tree.client(session_options=TERMS)
    subscribed(tree, first)
    first.kill()
    kitchen = tree.nodes["home/kitchen"]
    kitchen.kill()
    again = tree.nodes["home/kitchen"] = kitchen.restart()
    tree.world.run_until(lambda: tree.serves(again))
    second = tree.client(session_options=TERMS)
    assert not subscribed(tree, second).resumed


def test_a_later_run_takes_over_and_the_former_does_not_fight_back() -> None:
    for seed in range(1, 6):
        tree = network(seed)
        first = tree.client(session_options=TERMS)
        subscribed(tree, first)
        second = tree.client(session_options=TERMS)
        subscribed(tree, second)
        tree.world.run_until(lambda: TakenOver() in first.results)  # noqa: B023 (it is called here)
        tree.world.run(30 * SECOND)
        publish(tree, tree.client("publisher"), payloads(0, 3))
        tree.world.run(5 * SECOND)
        assert TakenOver() not in second.results
        assert heard(first) == []
        assert_all_in_order(heard(second), payloads(0, 3))


# Groups


def test_a_group_shares_and_every_message_comes_once() -> None:
    tree = network()
    members = [tree.client(f"member-{number}") for number in range(4)]
    for member in members:
        subscribed(tree, member, group="g")
    alone = tree.client("alone")
    subscribed(tree, alone)
    publish(tree, tree.client("publisher"), payloads(0, 40))
    tree.world.run(5 * SECOND)
    assert sorted(heard(*members)) == sorted(heard(alone))
    assert max(Counter(heard(*members)).values()) == 1
    shares = [len(heard(member)) for member in members]
    assert min(shares) > 0.1 * sum(shares), shares


def test_what_a_member_had_not_acknowledged_when_it_died_goes_to_another() -> None:
    tree = network(faults=Faults())
    members = [tree.client(f"member-{number}") for number in range(3)]
    for member in members:
        subscribed(tree, member, group="g")
    dead = members[0]
    dead.stop()
    publisher = tree.client("publisher")
    for payload in payloads(0, 30):
        publisher.publish("garden/c", payload, 2)
    tree.world.run_until(lambda: len(done(publisher)) == 30, within=60 * SECOND)
    tree.world.run(30 * SECOND)
    assert sorted(heard(*members[1:])) == sorted(("garden/c", payload) for payload in payloads(0, 30))


@pytest.mark.parametrize("seed", range(1, 6))
def test_what_comes_to_a_member_that_leaves_goes_to_another(seed: int) -> None:
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
    tree.world.run_until(lambda: len(done(publisher)) == 90)
    assert len(set(heard(*members))) == 90


def test_what_waits_for_the_only_member_that_is_kept_is_for_no_other() -> None:
    """What the watchers of the simulation go by: it is acknowledged, and comes to whoever is back first."""
    sent = Sent("p", (1, 1), "a", 1, retain=False, payload=b"", at=5)
    kept, here = (Interest("a", 1, ("a",), 0, "g") for _ in range(2))
    changed: dict[str, int] = {}
    sharing = Sharing(SimpleNamespace(changed=changed), lambda: 9, Losses())  # type: ignore[arg-type]
    sharing.join(1, kept)
    kept.hold("a", 1)
    assert list(sharing.distribute(sent, {1: 6})) == []
    assert list(sharing.lacking(sent, set())) == [], "nobody is there"
    assert list(sharing.check_at_end(set())) == []
    assert list(sharing.lacking(sent, {kept})) == ["$share/g/a"]
    assert len(list(sharing.check_at_end({kept}))) == 1
    sharing.join(2, here)
    here.hold("a", 1)
    assert list(sharing.lacking(sent, {here})) == ["$share/g/a"], "it is chosen before who is away"
    assert list(sharing.check_at_end({here})) == [], "it waits where it was put before that one came"
    kept.end("a")
    assert len(list(sharing.check_at_end({here}))) == 1, "a session that ends gives it up"


@pytest.mark.parametrize("seed", range(1, 6))
def test_what_is_late_for_a_run_answers_nothing_of_the_next_at_the_same_address(seed: int) -> None:
    """As where a client comes back to a gateway, whose members share a socket."""
    tree = Tree.grow(seed)
    world, reader = tree.world, tree.client("reader")
    subscribed(tree, reader, "garden/c")
    first = tree.client(session_options=TERMS)
    address = first.address

    def path(datagram: Datagram) -> Faults | None:
        if datagram.decode().header.session != TERMS.session:
            return CLEAR
        if world.hosts.get(address) is first:
            return Faults(delay_us=SECOND // 5) if datagram.destination == address else CLEAR
        return None if is_cut else CLEAR

    is_cut = True
    world.path = path
    first.publish("garden/c", b"first", 1)
    world.run(SECOND // 20)
    first.kill()
    second = ClientHost(world, tree.root.address, session_options=TERMS, address=address)
    second.publish("garden/c", b"second", 1)
    world.run(SECOND // 2)
    assert heard(reader) == [("garden/c", b"first")]
    assert done(second) == []
    is_cut = False
    world.run_until(lambda: bool(done(second)))
    assert heard(reader) == [("garden/c", b"first"), ("garden/c", b"second")]


# Wills


def will(delay_s: int = 0) -> Will:
    return Will(pb.Publish(topic="home/kitchen/gone", payload=b"gone", qos=pb.QOS_EXACTLY_ONCE), delay_s)


def with_will(tree: Tree, delay_s: int, session_options: SessionOptions = TERMS) -> ClientHost:
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
    assert heard(reader) == []
    tree.world.run(60 * SECOND)
    assert heard(reader) == [GONE]


def test_there_is_none_when_the_client_is_back_in_time() -> None:
    tree = network()
    reader = watcher(tree)
    with_will(tree, 30).kill()
    tree.world.run(20 * SECOND)
    again = with_will(tree, 30)
    tree.world.run(120 * SECOND)
    assert heard(reader) == []
    again.leave()
    tree.world.run(SECOND)  # So that LEAVE comes, however often it is lost.
    again.kill()
    tree.world.run(120 * SECOND)
    assert heard(reader) == [], "a clean close publishes none"


def test_a_client_that_was_cut_off_too_long_is_taken_for_gone_and_may_be_gone_again() -> None:
    tree = network(faults=Faults())
    reader = watcher(tree)
    client = with_will(tree, 0)
    tree.world.path = lambda d: None if client.address in (d.source, d.destination) else Faults()
    tree.world.run(60 * SECOND)
    assert heard(reader) == [GONE]
    tree.world.path = None
    tree.world.run(30 * SECOND)
    client.kill()
    tree.world.run(60 * SECOND)
    assert heard(reader) == [GONE] * 2, "what it registered again is a message of its own"


def test_a_will_moves_with_its_subtree() -> None:
    tree = network()
    reader = watcher(tree)
    client = with_will(tree, 5)
    tree.join("home/kitchen/gone", name="gone")
    tree.world.run(30 * SECOND)
    assert heard(reader) == []
    client.kill()
    tree.world.run(60 * SECOND)
    assert heard(reader) == [GONE]


def test_a_will_stays_with_a_client_whose_owner_restarts() -> None:
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
    assert heard(reader) == [GONE]


def test_nobody_writes_a_nodes_own_status_by_a_will() -> None:
    tree = network(faults=Faults())
    client = tree.client(session_options=TERMS)
    client.set_will(Will(pb.Publish(topic="$SYS/nodes/kitchen/status", payload=b"{}")))
    tree.world.run(SECOND)
    (refused,) = client.results
    assert getattr(refused, "reason", None) == Reason.REASON_NOT_AUTHORIZED


def test_what_died_with_a_member_goes_to_no_other_member() -> None:
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
    tree.world.settle(publisher)
    tree.world.run_until(lambda: len(done(publisher)) == 2)
    first.kill()
    subscribed(tree, second, "garden/c", "g")
    tree.world.run_until(lambda: bool(second.messages))
    tree.world.run(SECOND)
    assert heard(second) == [("garden/c", b"lives")]
    (status,) = (s for s in tree.root.engine.sessions(9) if s.session == second.session)
    assert (status.accepted, status.delivered, status.expired) == (2, 1, 1)


@pytest.mark.parametrize("is_away", [True, False])
def test_a_session_of_which_nothing_is_left_at_an_owner_ends_there_with_the_handover(is_away: bool) -> None:
    """§6.4. It was kept there, empty, until its expiry."""
    tree = network(3, CLEAR)
    lamp, screen, kitchen = (
        tree.client(session_options=TERMS),
        tree.client("screen"),
        tree.nodes["home/kitchen"],
    )
    subscribed(tree, lamp, "home/kitchen/+")
    if is_away:
        lamp.leave()
        tree.world.run(SECOND)
        lamp.kill()
    publish(tree, screen, [b"waits"] if is_away else [], TOPICS[:1])
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
    back = tree.client(session_options=TERMS) if is_away else lamp
    if is_away:
        assert subscribed(tree, back, "home/kitchen/+").resumed
    expected = [b"waits", b"later"] if is_away else [b"later"]
    tree.world.run_until(lambda: [message.payload for message in back.messages] == expected)


def sessions_of(node: NodeHost) -> list[int]:
    """Those that outlive their links."""
    return [status.session for status in node.engine.sessions(10) if is_kept(node, status.session)]


def is_kept(node: NodeHost, session: int) -> bool:
    known = node.control.sessions.get(session)
    return known is not None and known.is_persistent
