"""A node that joins after the subscribers gets the subscriptions that touch its subtree, and no others
(§5.4)."""

from __future__ import annotations

from hbroker._native import topic_matches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.results import Published, Subscribed
from hbroker.sim.network import ClientHost, Datagram
from hbroker.sim.network.paths import CLEAR
from tests.network.networks import Tree

SUBSCRIPTIONS = 1_000
SUBTREE = "home/kitchen"
INSIDE = "home/kitchen/oven/temperature"


def filters(count: int) -> list[str]:
    """Distinct filters. Seven of every 20 touch `home/kitchen`."""
    kinds = (
        "home/kitchen/oven/{n}",
        "home/kitchen/{n}/#",
        "home/+/oven/{n}",
        "+/kitchen/lamp/{n}",
        "home/kitchen/oven/temperature/{n}/#",
        "home/kitchen/+/{n}",
        "home/+/+/{n}",
        "home/kitchenette/{n}",
        "home/bedroom/{n}/#",
        "garden/{n}",
        "garden/+/{n}",
        "home/hall/{n}",
        "$SYS/{n}",
        "office/kitchen/{n}",
        "home/{n}",
        "kitchen/{n}/#",
        "home/outside/{n}",
        "+/bedroom/{n}",
        "home/bedroom/+/{n}",
        "other/{n}",
    )
    return [kinds[n % len(kinds)].format(n=n) for n in range(count)]


def subscribed_tree(seed: int) -> tuple[Tree, list[ClientHost]]:
    """A root alone, and ten clients that share the subscriptions."""
    tree = Tree.grow(seed)
    hosts = [tree.client(f"client-{n}") for n in range(10)]
    for number, filter in enumerate(filters(SUBSCRIPTIONS)):
        hosts[number % len(hosts)].subscribe(filter, qos=1)
    tree.world.run_until(lambda: sum(len(host.results) for host in hosts) == SUBSCRIPTIONS)
    assert all(isinstance(result, Subscribed) for host in hosts for result in host.results)
    assert tree.root.engine.counters()["subscriptions"] == SUBSCRIPTIONS
    return tree, hosts


def touches(filter: str) -> bool:
    """An independent check: each filter has more levels than the subtree, or does not match its levels."""
    levels = filter.split("/")
    fits = (level in ("+", wanted) for level, wanted in zip(levels, ("home", "kitchen"), strict=False))
    return all(fits) and len(levels) > 2


def test_a_new_owner_gets_exactly_the_subscriptions_that_touch_its_subtree() -> None:
    tree, _ = subscribed_tree(1)
    expected = [filter for filter in filters(SUBSCRIPTIONS) if touches(filter)]
    assert 200 < len(expected) < 500
    kitchen = tree.join(SUBTREE)
    assert kitchen.engine.counters()["subscriptions"] == len(expected)
    stays = [f for f in filters(SUBSCRIPTIONS) if not touches(f) or f.startswith("+/") or "home/+/" in f]
    tree.world.run(1_000_000)  # the parent drops the others, and the subscribers answer their new owner
    assert (
        len(kitchen.control.subscription_store) == kitchen.engine.counters()["subscriptions"] == len(expected)
    )
    assert tree.root.engine.counters()["subscriptions"] == len(stays)


def test_a_new_owner_that_dies_before_it_serves_gets_the_same_subscriptions_after_its_restart() -> None:
    """The parent has stopped serving the subtree, and the dead node has not opened the sessions."""
    tree, _ = subscribed_tree(3)
    kitchen = tree.join(SUBTREE, wait=False)

    def kill_before_it_serves(datagram: Datagram) -> None:
        transfers = [p.transfer for p in datagram.decode().packets if p.transfer.subtree == SUBTREE]
        if any(transfer.phase == pb.TRANSFER_PHASE_COMMIT for transfer in transfers):
            tree.world.on_datagram = None
            kitchen.kill()

    tree.world.on_datagram = kill_before_it_serves
    tree.world.run_until(lambda: tree.world.on_datagram is None)
    assert tree.root.control.jurisdiction.delegation_of(SUBTREE) is not None
    kitchen = kitchen.restart()
    tree.world.run_until(lambda: tree.serves(kitchen))
    held = sorted(subscription.filter for subscription in kitchen.control.subscription_store)
    assert held == sorted(filter for filter in filters(SUBSCRIPTIONS) if touches(filter))


def test_a_subscription_that_ends_during_the_handover_is_not_kept() -> None:
    """The new owner has made the subscription, and does not serve yet. No other node would end it."""
    tree = Tree.grow(4)
    client = tree.client("client")
    subscriptions = [client.subscribe(filter, qos=1) for filter in ("home/+/oven", "home/kitchen/lamp")]
    tree.world.run_until(lambda: len(client.results) == len(subscriptions))
    records = tree.watch_for(lambda transfer: transfer.subtree == SUBTREE and transfer.last)
    kitchen = tree.join(SUBTREE, wait=False)
    tree.world.run_until(lambda: bool(records))
    client.unsubscribe(subscriptions[0])
    tree.world.run_until(lambda: tree.serves(kitchen))
    tree.world.run(1_000_000)
    assert [subscription.filter for subscription in kitchen.control.subscription_store] == [
        "home/kitchen/lamp"
    ]
    assert kitchen.engine.counters()["subscriptions"] == 1


def test_a_subscription_for_another_subtree_of_the_node_survives_a_handover_that_fails() -> None:
    """The node owns another subtree that the filter matches, and has the subscription for that one."""
    tree = Tree.grow(5, ["home/bedroom"])
    client = tree.client("client")
    client.subscribe("home/+/oven", qos=1)
    tree.world.run_until(lambda: bool(client.results))
    bedroom = tree.nodes["home/bedroom"]
    records = tree.watch_for(lambda transfer: transfer.subtree == SUBTREE and transfer.last)
    tree.order(bedroom, pb.ORDER_KIND_CLAIM, SUBTREE, wait=False)
    tree.world.run_until(lambda: bool(records))
    ends = {tree.root.address, bedroom.address}
    tree.world.path = lambda d: None if {d.source, d.destination} == ends else CLEAR
    claim = bedroom.control.jurisdiction.grant_of
    tree.world.run_until(lambda: claim(SUBTREE) is not None)
    tree.world.run_until(lambda: claim(SUBTREE) is None)
    assert claim("home/bedroom") is not None, "its lease lasts longer than the handover"
    assert [subscription.filter for subscription in bedroom.control.subscription_store] == ["home/+/oven"]


def test_the_parent_stops_serving_and_publishers_are_redirected_without_a_duplicate() -> None:
    tree, hosts = subscribed_tree(2)
    world = tree.world
    listener = tree.client("listener")
    listener.subscribe("home/kitchen/#", qos=1)
    world.run_until(lambda: bool(listener.results))
    publisher = tree.client("publisher")
    publisher.publish(INSIDE, b"before", qos=1)
    world.run_until(lambda: bool(publisher.results))
    kitchen = tree.join(SUBTREE)
    before = tree.root.engine.counters()
    for number in range(100):
        publisher.publish(INSIDE, str(number).encode(), qos=number % 3)
    qos_1_and_2 = 1 + sum(number % 3 > 0 for number in range(100))
    world.run_until(lambda: len(publisher.results) == qos_1_and_2)
    world.run(2_000_000)
    after = tree.root.engine.counters()
    assert all(isinstance(o, Published) and o.reason == 0 for o in publisher.results)
    assert after["messages_in"] == before["messages_in"], "the parent serves it no more"
    assert after["drop.not_responsible"] > 0
    payloads = [message.payload for message in listener.messages]
    acknowledged = [b"before", *(str(n).encode() for n in range(100) if n % 3 > 0)]
    assert [payload for payload in payloads if payload in acknowledged] == acknowledged, "once, and in order"
    assert len(payloads) == len(set(payloads)), "nothing is sent twice"
    assert kitchen.engine.counters()["messages_in"] >= qos_1_and_2 - 1
    assert tree.between_brokers() == []
    others = [message.topic for host in hosts for message in host.messages]
    assert not any(topic_matches("home/kitchen/#", topic) for topic in others)
