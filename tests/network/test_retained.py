"""Retained messages arrive once, and only at the listener that requested them, wherever their topics move
(§7.6)."""

from __future__ import annotations

from collections import Counter

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.results import Published, Subscribed
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.sim.network import ClientHost, NodeHost
from hbroker.sim.network.paths import CLEAR, Faults
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
    """A network of five nodes, a retained message at three of its owners, and a client."""
    tree = Tree.grow(seed, HOME, CLEAR if faults is None else faults)
    publisher = tree.client("publisher")
    for topic in TOPICS:
        publisher.publish(topic, b"kept", qos=1, retain=True)
    tree.world.run_until(lambda: sum(isinstance(o, Published) for o in publisher.results) == len(TOPICS))
    return tree, tree.client("reader", session_options)


def wait_until_complete(tree: Tree, client: ClientHost, *subscriptions: int) -> None:
    """Waits until these subscriptions are complete and every message has arrived."""
    tree.world.run_until(
        lambda: set(subscriptions) <= {o.subscription for o in client.results if isinstance(o, Subscribed)}
    )
    tree.world.run(SECOND)


def received_retained(client: ClientHost) -> Counter[tuple[tuple[int, ...], str]]:
    """The subscriptions for which each message arrived, and how often, since the last call."""
    messages, client.messages = client.messages, []
    assert all(message.retained for message in messages)
    return Counter((tuple(message.subscriptions), message.topic) for message in messages)


def once(*subscriptions: int, topics: tuple[str, ...] = TOPICS) -> Counter[tuple[tuple[int, ...], str]]:
    """Every topic's message, once for each of these subscriptions."""
    return Counter(((each,), topic) for each in subscriptions for topic in topics)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_second_subscription_to_a_filter_gets_the_retained_messages_alone(qos: int) -> None:
    tree, client = with_retained(1)
    first = client.subscribe("home/#", qos=qos)
    wait_until_complete(tree, client, first)
    assert received_retained(client) == once(first)
    second = client.subscribe("home/#", qos=qos)
    wait_until_complete(tree, client, second)
    assert received_retained(client) == once(second)


def test_an_overlapping_subscription_does_not_get_the_retained_messages_of_another() -> None:
    tree, client = with_retained(2)
    wide = client.subscribe("#", qos=1)
    wait_until_complete(tree, client, wide)
    client.messages.clear()
    narrow = client.subscribe("home/kitchen/+", qos=2)
    wait_until_complete(tree, client, narrow)
    assert received_retained(client) == once(narrow, topics=TOPICS[:1])


@pytest.mark.parametrize("seed", range(3, 9))
def test_simultaneous_subscriptions_get_the_retained_messages_once_each(seed: int) -> None:
    tree, client = with_retained(seed, LOSSY)
    subscriptions = [client.subscribe("home/#", qos=1) for _ in range(3)]
    tree.world.run(tree.world.random.randrange(20_000))
    subscriptions += [client.subscribe(filter, qos=1) for filter in ("home/#", "#", "home/#")]
    client.unsubscribe(subscriptions.pop(0))
    wait_until_complete(tree, client, *subscriptions)
    got = received_retained(client)
    for each in subscriptions:
        assert {topic: got[(each,), topic] for topic in TOPICS} == dict.fromkeys(TOPICS, 1), seed


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_owner_that_is_asked_again_while_another_is_silent_sends_no_retained_message_twice(
    qos: int,
) -> None:
    tree, client = with_retained(9)
    silent = tree.nodes["home/bedroom"]
    silent.stop()
    wanted = client.subscribe("home/#", qos=qos)
    kitchen = tree.nodes["home/kitchen"]
    asked = kitchen.engine.counters()["messages_out"]
    tree.world.run_until(lambda: kitchen.engine.counters()["messages_out"] >= asked + 2)
    silent.resume()
    wait_until_complete(tree, client, wanted)
    assert received_retained(client) == once(wanted)


@pytest.mark.parametrize(
    ("handling", "on_a_new_filter", "on_a_known_one"),
    [(SEND, True, True), (SEND_IF_NEW, True, False), (DO_NOT_SEND, False, False)],
)
def test_each_subscription_has_its_own_retain_handling(
    handling: int, on_a_new_filter: bool, on_a_known_one: bool
) -> None:
    tree, client = with_retained(10)
    first = client.subscribe("home/#", qos=1, retain_handling=handling)
    wait_until_complete(tree, client, first)
    assert received_retained(client) == (once(first) if on_a_new_filter else Counter())
    other = client.subscribe("home/#", qos=1)
    wait_until_complete(tree, client, other)
    assert received_retained(client) == once(other)
    again = client.subscribe("home/#", qos=2, retain_handling=handling)
    wait_until_complete(tree, client, again)
    assert received_retained(client) == (once(again) if on_a_known_one else Counter())


def test_retained_messages_for_one_listener_stay_its_own_when_the_subtree_moves() -> None:
    session_options = SessionOptions("reader", expiry_s=600)
    tree, client = with_retained(11, session_options=session_options)
    wide, first = client.subscribe("#", qos=1), client.subscribe("home/kitchen/oven", qos=1)
    wait_until_complete(tree, client, wide, first)
    client.messages.clear()
    second = client.subscribe("home/kitchen/oven", qos=1)
    kitchen = tree.nodes["home/kitchen"]
    sent = kitchen.engine.counters()["messages_out"]
    client.stop()  # while its SUBSCRIBE is on the way
    tree.world.run_until(lambda: kitchen.engine.counters()["messages_out"] > sent)
    oven = tree.join("home/kitchen/oven")
    client.resume()
    wait_until_complete(tree, client, second)
    assert oven.owns(TOPICS[0])
    assert set(received_retained(client)) == {((second,), TOPICS[0])}


def test_retained_messages_for_an_earlier_run_go_to_the_current_listeners() -> None:
    session_options = SessionOptions("reader", expiry_s=600, session=77)
    tree, client = with_retained(12, session_options=session_options)
    wait_until_complete(tree, client, client.subscribe("home/#", qos=1, retain_handling=DO_NOT_SEND))
    sent = tree.root.engine.counters()["messages_out"]
    client.subscribe("home/#", qos=1)
    client.stop()
    tree.world.run_until(lambda: tree.root.engine.counters()["messages_out"] > sent)
    client.kill()
    again = tree.client("reader", session_options)
    later = again.subscribe("home/#", qos=1, retain_handling=DO_NOT_SEND)
    wait_until_complete(tree, again, later)
    assert received_retained(again) == once(later)


def test_a_node_that_hands_back_a_part_of_its_subtree_keeps_the_retained_messages_there() -> None:
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
    wait_until_complete(tree, reader, reader.subscribe("home/bedroom/+", qos=1))
    assert [message.payload for message in reader.messages] == [b"kept"]


def with_many(seed: int, rooms: tuple[str, ...], each: int) -> tuple[Tree, ClientHost, list[str]]:
    """A node that retains `each` messages for each room, a client, and the topics."""
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
    """Stops a client while the retained messages are being sent to it."""
    tree.world.run_until(lambda: node.engine.counters()["replays"] == 1)
    client.stop()
    tree.world.run(SECOND // 10)
    assert node.engine.counters()["replays"] == 1


@pytest.mark.parametrize("qos", [0, 1])
def test_an_unfinished_replay_moves_with_its_subtree(qos: int) -> None:
    tree, client, topics = with_many(41, ("bedroom", "kitchen", "porch"), 6_000)
    home = tree.nodes["home"]
    wanted = client.subscribe("home/#", qos=qos)
    stop_within(tree, client, home)
    kitchen = tree.join("home/kitchen")
    assert (home.engine.counters()["replays"], kitchen.engine.counters()["replays"]) == (1, 1)
    client.resume()
    wait_until_complete(tree, client, wanted)
    tree.world.run(5 * SECOND)
    assert received_retained(client) == once(wanted, topics=tuple(topics))
    assert sum(node.engine.counters()["replays"] for node in (home, kitchen)) == 0


def test_an_unfinished_replay_comes_back_with_its_subtree() -> None:
    tree, client, topics = with_many(42, ("bedroom", "kitchen", "porch"), 6_000)
    home = tree.nodes["home"]
    wanted = client.subscribe("home/#", qos=1)
    stop_within(tree, client, home)
    kitchen = tree.join("home/kitchen")
    tree.leave(kitchen)
    assert home.engine.counters()["replays"] == 2, "of all, and of what came back"
    client.resume()
    wait_until_complete(tree, client, wanted)
    tree.world.run(5 * SECOND)
    assert received_retained(client) == once(wanted, topics=tuple(topics))
    assert home.engine.counters()["replays"] == 0


def test_a_replay_ends_with_its_subscription() -> None:
    tree, client, topics = with_many(43, ("bedroom",), 12_000)
    home = tree.nodes["home"]
    wanted = client.subscribe("home/#", qos=1)
    stop_within(tree, client, home)
    client.resume()
    client.unsubscribe(wanted)
    tree.world.run_until(lambda: home.engine.counters()["replays"] == 0)
    tree.world.run(SECOND)
    assert len(client.messages) < len(topics)
