"""A subscription is complete when subscribe returns (§6): a message that is published afterwards arrives,
whoever owns its topic."""

from __future__ import annotations

import pytest

from hbroker._native import topic_matches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.results import Subscribed
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.sim.network import CLEAR, ClientHost, Datagram, Faults
from tests.network.networks import HOME, Tree

ROUNDS_PER_SEED = 100
FAULTY = Faults(loss=0.05, delay_us=500, jitter_us=2_000, reordering=0.05, duplication=0.05)
_DATA = {"publish", "puback"}


def only_control_is_faulty(datagram: Datagram) -> Faults:
    """Faults only for datagrams that carry no message, because the set-up is tested here and not the
    delivery."""
    return CLEAR if _DATA & set(datagram.kinds()) else FAULTY


@pytest.mark.parametrize("seed", range(10))
def test_a_message_published_after_subscribe_returned_arrives(seed: int) -> None:
    tree = Tree.grow(seed, HOME)
    world = tree.world
    world.path = only_control_is_faulty
    publisher = tree.client("publisher")
    topics = [f"{subtree}/device/state" for subtree in HOME] + ["garden/device/state", "home/hall/light"]
    for number in range(ROUNDS_PER_SEED):
        topic = world.random.choice(topics)
        subscriber = tree.client(f"subscriber-{number}")
        subscribe(subscriber, world.random.choice([topic, "#", "+/#", f"{topic.rsplit('/', 1)[0]}/+"]))
        publisher.publish(topic, str(number).encode(), qos=1)
        await_message(subscriber)
        world.run(50_000)
        assert [(m.topic, m.payload) for m in subscriber.messages] == [(topic, str(number).encode())]
        world.remove(subscriber)
    assert tree.between_brokers() == []


@pytest.mark.parametrize("topic", ["/home", "/home/kitchen/oven", "home//kitchen", "home/", "//home/kitchen"])
def test_topics_with_empty_levels_are_those_of_no_node_but_the_one_around_them(topic: str) -> None:
    tree = Tree.grow(23, ["home", "home/kitchen"])
    for filter in (topic, topic + "/#", "#"):
        subscriber = tree.client(filter)
        subscribe(subscriber, filter)
        tree.client("publisher").publish(topic, b"x", qos=1)
        await_message(subscriber)
        tree.world.remove(subscriber)


def test_an_owner_that_gets_the_subscription_by_a_handover_is_still_asked_for_its_cuts() -> None:
    """The owner is dead when it is asked. Later its parent hands it the subscription. No other node knows
    its cuts."""
    tree = Tree.grow(21, ["home", "home/kitchen"])
    home, kitchen = tree.nodes["home"], tree.nodes["home/kitchen"]
    home.kill()
    subscriber = tree.client("subscriber")
    subscription = subscriber.subscribe("#", qos=1)
    tree.world.run_until(lambda: len(tree.root.control.subscription_store) == 1)
    home = home.restart(remembers=True)
    tree.world.run_until(lambda: bool(subscriber.results))
    assert subscriber.results[0] == Subscribed(subscription, ("home", "kitchen", "root"))
    assert [len(node.control.subscription_store) for node in (home, kitchen)] == [1, 1]


@pytest.mark.parametrize("filter", ["#", "home/kitchen/#", "home/kitchen/oven/+"])
def test_a_subscription_that_a_parent_took_for_a_forgotten_child_reaches_all_owners_below(
    filter: str,
) -> None:
    tree = Tree.grow(22, ["home", "home/kitchen", "home/kitchen/oven"])
    home, kitchen, oven = tree.nodes.values()
    home.kill()
    home = home.restart(remembers=False)
    subscriber = tree.client("subscriber")
    subscription = subscriber.subscribe(filter, qos=1)
    tree.world.run_until(lambda: bool(subscriber.results))
    assert isinstance(result := subscriber.results[0], Subscribed)
    assert result.subscription == subscription
    assert "kitchen" not in result.owners, "nobody knows of it yet"
    tree.world.run(10_000_000)
    wanted = [topic_matches(filter, topic) for topic in ("home/kitchen/lamp", "home/kitchen/oven/light")]
    assert [bool(len(node.control.subscription_store)) for node in (kitchen, oven)] == wanted


def test_a_new_run_of_a_subscriber_learns_of_a_child_that_its_parent_forgot() -> None:
    """The child has the session, with a link to the earlier run. So the child's SUBACK goes to that link."""
    tree = Tree.grow(24, ["home", "home/kitchen"])
    home, session_options = tree.nodes["home"], SessionOptions("subscriber", session=77, expiry_s=60)
    before = tree.client("subscriber", session_options)
    subscribe(before, "#")
    before.kill()
    home.kill()
    home.restart(remembers=False)
    subscriber = tree.client("subscriber", session_options)
    assert "kitchen" not in subscribe(subscriber, "#").owners, "nobody knows of it yet"
    tree.world.run(10_000_000)
    tree.client("publisher").publish("home/kitchen/lamp", b"on", qos=1)
    await_message(subscriber)


def test_a_subscriber_that_moved_asks_the_new_owner_that_has_its_old_address() -> None:
    """The new owner was handed the old address of the subscriber, and had answered before that it owned
    nothing."""
    tree = Tree.grow(23, ["home/kitchen"])
    subscriber = tree.client("subscriber")
    subscribe(subscriber, "home/kitchen/oven")
    subscriber.world.move(subscriber)
    tree.world.run(5_000_000)
    tree.leave(tree.nodes["home/kitchen"])
    tree.world.run(1_000_000)
    publisher = tree.client("publisher")
    publisher.publish("home/kitchen/oven", b"on", qos=1)
    tree.world.run(1_000_000)
    assert [message.payload for message in subscriber.messages] == [b"on"]


def test_a_child_that_hands_back_accepts_no_subscription_that_the_parent_would_miss() -> None:
    tree = Tree.grow(25, ["home/kitchen"])
    world, kitchen = tree.world, tree.nodes["home/kitchen"]
    committed = tree.watch_for(lambda transfer: transfer.phase == pb.TRANSFER_PHASE_COMMIT)
    up = kitchen.address, tree.root.address
    world.path = lambda datagram: (
        None if committed and (datagram.source, datagram.destination) == up else CLEAR
    )
    kitchen.leave()
    world.run_until(lambda: bool(committed))
    subscriber = tree.client("subscriber")
    subscriber.subscribe("home/kitchen/oven", qos=1)
    world.run(1_000_000)
    assert not subscriber.results
    world.path = None
    world.run_until(lambda: bool(subscriber.results))
    assert tree.root.owns("home/kitchen/oven")
    assert [subscription.filter for subscription in tree.root.control.subscription_store] == [
        "home/kitchen/oven"
    ]


def await_message(host: ClientHost) -> None:
    """Waits for the first message."""
    host.world.run_until(lambda: bool(host.messages), within=30_000_000)


def test_the_subscription_fails_if_all_subacks_are_lost() -> None:
    """Shows that the faults of the first test can do harm."""
    tree = Tree.grow(1, HOME)
    tree.world.path = lambda datagram: None if "suback" in datagram.kinds() else CLEAR
    subscriber = tree.client()
    subscriber.subscribe("home/#")
    with pytest.raises(TimeoutError):
        tree.world.run_until(lambda: bool(subscriber.results), within=5_000_000)


def subscribe(host: ClientHost, filter: str, qos: int = 1) -> Subscribed:
    """Subscribes, and waits until the subscription is complete."""
    subscription = host.subscribe(filter, qos)
    host.world.run_until(lambda: bool(host.results), within=60_000_000)
    result = host.results.pop()
    assert isinstance(result, Subscribed), pb.Reason.Name(getattr(result, "reason", 0))
    assert result.subscription == subscription
    return result
