"""What is retained comes to the listener that asked, alone and once, wherever its topics move (§7.6)."""

from __future__ import annotations

from collections import Counter

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.results import Published, Subscribed
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.sim.network import ClientHost, NodeHost
from hbroker.sim.network.paths import Faults
from tests.network.networks import HOME, Tree

SECOND = 1_000_000
SEND, SEND_IF_NEW, DO_NOT_SEND = (
    pb.RETAIN_HANDLING_SEND,
    pb.RETAIN_HANDLING_SEND_IF_NEW,
    pb.RETAIN_HANDLING_DO_NOT_SEND,
)
TOPICS = ("home/kitchen/oven", "home/bedroom/lamp", "home/door")
LOSSY = Faults(loss=0.1)


def with_retained(
    seed: int, faults: Faults | None = None, session_options: SessionOptions | None = None
) -> tuple[Tree, ClientHost]:
    """The house, a retained message at three of its owners, and a client."""
    tree = Tree.grow(seed, HOME, *([] if faults is None else [faults]))
    publisher = tree.client("publisher")
    for topic in TOPICS:
        publisher.publish(topic, b"kept", qos=1, retain=True)
    tree.world.run_until(lambda: sum(isinstance(o, Published) for o in publisher.results) == len(TOPICS))
    return tree, tree.client("reader", session_options)


def complete(tree: Tree, client: ClientHost, *subscriptions: int) -> None:
    """Waits until these are complete, and everything has come."""
    tree.world.run_until(
        lambda: set(subscriptions) <= {o.subscription for o in client.results if isinstance(o, Subscribed)}
    )
    tree.world.run(SECOND)


def taken(client: ClientHost) -> Counter[tuple[tuple[int, ...], str]]:
    """For whom each message came, and how often, since this was last asked."""
    messages, client.messages = client.messages, []
    assert all(message.retained for message in messages)
    return Counter((tuple(message.subscriptions), message.topic) for message in messages)


def once(*subscriptions: int, topics: tuple[str, ...] = TOPICS) -> Counter[tuple[tuple[int, ...], str]]:
    """Every topic's message once for each of these subscriptions alone."""
    return Counter(((each,), topic) for each in subscriptions for topic in topics)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_second_subscription_to_a_filter_gets_it_alone(qos: int) -> None:
    tree, client = with_retained(1)
    first = client.subscribe("home/#", qos=qos)
    complete(tree, client, first)
    assert taken(client) == once(first)
    second = client.subscribe("home/#", qos=qos)
    complete(tree, client, second)
    assert taken(client) == once(second)


def test_one_whose_filter_overlaps_gets_nothing_of_it() -> None:
    tree, client = with_retained(2)
    wide = client.subscribe("#", qos=1)
    complete(tree, client, wide)
    client.messages.clear()
    narrow = client.subscribe("home/kitchen/+", qos=2)
    complete(tree, client, narrow)
    assert taken(client) == once(narrow, topics=TOPICS[:1])


@pytest.mark.parametrize("seed", range(3, 9))
def test_subscriptions_that_are_made_at_once_get_it_once_each(seed: int) -> None:
    tree, client = with_retained(seed, LOSSY)
    made = [client.subscribe("home/#", qos=1) for _ in range(3)]
    tree.world.run(tree.world.random.randrange(20_000))
    made += [client.subscribe(filter, qos=1) for filter in ("home/#", "#", "home/#")]
    client.unsubscribe(made.pop(0))
    complete(tree, client, *made)
    got = taken(client)
    for each in made:
        assert {topic: got[(each,), topic] for topic in TOPICS} == dict.fromkeys(TOPICS, 1), seed


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_who_is_asked_again_while_another_owner_is_silent_tells_nothing_twice(qos: int) -> None:
    tree, client = with_retained(9)
    silent = tree.nodes["home/bedroom"]
    silent.stop()
    wanted = client.subscribe("home/#", qos=qos)
    kitchen = tree.nodes["home/kitchen"]
    asked = kitchen.engine.counters()["messages_out"]
    tree.world.run_until(lambda: kitchen.engine.counters()["messages_out"] >= asked + 2)
    silent.go_on()
    complete(tree, client, wanted)
    assert taken(client) == once(wanted)


@pytest.mark.parametrize(
    ("handling", "on_a_new_filter", "on_a_known_one"),
    [(SEND, True, True), (SEND_IF_NEW, True, False), (DO_NOT_SEND, False, False)],
)
def test_each_subscription_has_a_handling_of_its_own(
    handling: int, on_a_new_filter: bool, on_a_known_one: bool
) -> None:
    tree, client = with_retained(10)
    first = client.subscribe("home/#", qos=1, retain_handling=handling)
    complete(tree, client, first)
    assert taken(client) == (once(first) if on_a_new_filter else Counter())
    other = client.subscribe("home/#", qos=1)
    complete(tree, client, other)
    assert taken(client) == once(other)
    again = client.subscribe("home/#", qos=2, retain_handling=handling)
    complete(tree, client, again)
    assert taken(client) == (once(again) if on_a_known_one else Counter())


def test_what_waits_for_a_listener_stays_its_own_when_the_subtree_moves() -> None:
    session_options = SessionOptions("reader", expiry_s=600)
    tree, client = with_retained(11, session_options=session_options)
    wide, first = client.subscribe("#", qos=1), client.subscribe("home/kitchen/oven", qos=1)
    complete(tree, client, wide, first)
    client.messages.clear()
    second = client.subscribe("home/kitchen/oven", qos=1)
    kitchen = tree.nodes["home/kitchen"]
    sent = kitchen.engine.counters()["messages_out"]
    client.stop()  # With its SUBSCRIBE on the way.
    tree.world.run_until(lambda: kitchen.engine.counters()["messages_out"] > sent)
    oven = tree.join("home/kitchen/oven")
    client.go_on()
    complete(tree, client, second)
    assert oven.owns(TOPICS[0])
    assert set(taken(client)) == {((second,), TOPICS[0])}


def test_an_earlier_runs_are_for_whoever_listens_now() -> None:
    session_options = SessionOptions("reader", expiry_s=600, session=77)
    tree, client = with_retained(12, session_options=session_options)
    complete(tree, client, client.subscribe("home/#", qos=1, retain_handling=DO_NOT_SEND))
    sent = tree.root.engine.counters()["messages_out"]
    client.subscribe("home/#", qos=1)
    client.stop()
    tree.world.run_until(lambda: tree.root.engine.counters()["messages_out"] > sent)
    client.kill()
    again = tree.client("reader", session_options)
    later = again.subscribe("home/#", qos=1, retain_handling=DO_NOT_SEND)
    complete(tree, again, later)
    assert taken(again) == once(later)


def test_a_node_that_hands_back_a_part_of_what_it_owns_keeps_what_is_retained_there() -> None:
    tree = Tree.grow(31, ["home", "home/bedroom"])
    home, bedroom = tree.nodes.values()
    tree.move("home", home, bedroom)
    publisher = tree.client("publisher")
    publisher.publish("home/bedroom/lamp", b"kept", qos=1, retain=True)
    tree.world.run_until(lambda: any(isinstance(o, Published) for o in publisher.results))
    tree.order(bedroom, pb.ORDER_KIND_HAND_BACK, "home/bedroom")
    assert bedroom.owns("home/bedroom/lamp")
    assert not tree.root.engine.retained("home/bedroom", [])
    reader = tree.client("reader")
    complete(tree, reader, reader.subscribe("home/bedroom/+", qos=1))
    assert [message.payload for message in reader.messages] == [b"kept"]


def with_many(seed: int, rooms: tuple[str, ...], each: int) -> tuple[Tree, ClientHost, list[str]]:
    """A node that keeps so many messages for each room of the house, a client, and the topics."""
    tree = Tree.grow(seed, ["home"])
    topics = [f"home/{room}/{number}" for room in rooms for number in range(each)]
    messages = [
        pb.Publish(
            topic=topic,
            payload=b"kept" * 150,
            publisher=1,
            sequence=number,
            qos="QOS_AT_LEAST_ONCE",
            retain=True,
        )
        for number, topic in enumerate(topics, start=1)
    ]
    assert tree.nodes["home"].engine.take_retained([message.SerializeToString() for message in messages]) == 0
    return tree, tree.client("reader", SessionOptions("reader", expiry_s=600)), topics


def stop_within(tree: Tree, client: ClientHost, node: NodeHost) -> None:
    """Stops a client when a part of what is retained is on its way to it."""
    tree.world.run_until(lambda: node.engine.counters()["replays"] == 1)
    client.stop()
    tree.world.run(SECOND // 10)
    assert node.engine.counters()["replays"] == 1


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_left_of_a_replay_goes_where_its_subtree_goes(qos: int) -> None:
    tree, client, topics = with_many(41, ("bedroom", "kitchen", "porch"), 6_000)
    home = tree.nodes["home"]
    wanted = client.subscribe("home/#", qos=qos)
    stop_within(tree, client, home)
    kitchen = tree.join("home/kitchen")
    assert (home.engine.counters()["replays"], kitchen.engine.counters()["replays"]) == (1, 1)
    client.go_on()
    complete(tree, client, wanted)
    tree.world.run(5 * SECOND)
    assert taken(client) == once(wanted, topics=tuple(topics))
    assert sum(node.engine.counters()["replays"] for node in (home, kitchen)) == 0


def test_what_is_left_of_a_replay_comes_back_with_its_subtree() -> None:
    tree, client, topics = with_many(42, ("bedroom", "kitchen", "porch"), 6_000)
    home = tree.nodes["home"]
    wanted = client.subscribe("home/#", qos=1)
    stop_within(tree, client, home)
    kitchen = tree.join("home/kitchen")
    tree.leave(kitchen)
    assert home.engine.counters()["replays"] == 2, "of all, and of what came back"
    client.go_on()
    complete(tree, client, wanted)
    tree.world.run(5 * SECOND)
    assert taken(client) == once(wanted, topics=tuple(topics))
    assert home.engine.counters()["replays"] == 0


def test_a_replay_ends_where_its_subscription_does() -> None:
    tree, client, topics = with_many(43, ("bedroom",), 12_000)
    home = tree.nodes["home"]
    wanted = client.subscribe("home/#", qos=1)
    stop_within(tree, client, home)
    client.go_on()
    client.unsubscribe(wanted)
    tree.world.run_until(lambda: home.engine.counters()["replays"] == 0)
    tree.world.run(SECOND)
    assert len(client.messages) < len(topics)
