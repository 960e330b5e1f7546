"""The state that an owner keeps when its lease ends while it lives: it was stopped, or its parent was down
(§5.6)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.events import LeaseLost, TookBack
from hbroker.protocol.results import Published, Subscribed, WillSet
from hbroker.protocol.sessions.options import SessionOptions, session_id
from hbroker.protocol.wills.client_will import Will
from hbroker.sim.network import ClientHost, NodeHost, World
from tests.network.networks import Tree

SECOND = 1_000_000
TOPIC = "home/x"
LAMP = SessionOptions("lamp", session_id("lamp"), expiry_s=3_600)
OTHER = SessionOptions("other", session_id("other"), expiry_s=3_600)
SHORT, LONG = 5, 40
"""Seconds: shorter than a lease, and longer than one."""
BOTH_WAYS = pytest.mark.parametrize("how", ["owner stopped", "parent down"])


def subscribe(client: ClientHost, filter: str = TOPIC, qos: int = 1, group: str = "") -> None:
    before = len(client.results)
    client.subscribe(filter, qos=qos, group=group)
    client.world.run_until(lambda: any(isinstance(o, Subscribed) for o in client.results[before:]))


def disconnect(client: ClientHost, world: World) -> None:
    client.leave()
    client.kill()
    world.run(SECOND)


def publish(publisher: ClientHost, numbers: range, topic: str = TOPIC, qos: int = 1) -> None:
    """Publishes, and waits until all messages are acknowledged."""
    before = len(publisher.results)
    for number in numbers:
        publisher.publish(topic, b"%d" % number, qos=qos)
    publisher.world.run_until(
        lambda: sum(isinstance(o, Published) for o in publisher.results[before:]) == len(numbers)
    )


def interrupt(tree: Tree, how: str, seconds: int = LONG) -> None:
    """Interrupts the renewals of `home` for this long. Its lease ends if that is long enough."""
    if how == "owner stopped":
        tree.nodes["home"].stop()
        tree.world.run(seconds * SECOND)
        tree.nodes["home"].resume()
    else:
        tree.root.kill()
        tree.world.run(seconds * SECOND)
        tree.root.restart(remembers=True)
    tree.world.run(30 * SECOND)


def numbers(client: ClientHost) -> list[int]:
    return [int(message.payload) for message in client.messages]


def event_count(node: NodeHost, of: type = LeaseLost) -> int:
    return sum(isinstance(n, of) and n.subtree == "home" for n in node.events)


def queued_at(node: NodeHost) -> list[int]:
    """How many messages are queued for the lamp; empty: the node does not know it."""
    return [s.queued for s in node.engine.sessions(100) if s.session == LAMP.session]


def queue_messages(tree: Tree, session_options: SessionOptions = LAMP, filter: str = TOPIC) -> None:
    """The lamp subscribes and disconnects, and 20 messages are published."""
    lamp = tree.client("lamp", session_options)
    subscribe(lamp, filter)
    disconnect(lamp, tree.world)
    publish(tree.client(), range(20))


def stop_owner(tree: Tree) -> NodeHost:
    """Stops the owner of `home` until the root has taken the subtree back."""
    home = tree.nodes["home"]
    home.stop()
    tree.world.run_until(lambda: event_count(tree.root, TookBack) > 0)
    return home


def assert_all_comes(tree: Tree, filter: str = TOPIC) -> ClientHost:
    """The lamp connects again, and receives the 20 queued messages in order."""
    again = tree.client("lamp", LAMP)
    subscribe(again, filter)
    tree.world.run(5 * SECOND)
    assert numbers(again) == [*range(20)]
    return again


@pytest.fixture
def tree() -> Tree:
    return Tree.grow(7, ["home"])


@pytest.fixture
def queued_tree(tree: Tree) -> Tree:
    """A network in which 20 messages are queued for the lamp."""
    queue_messages(tree)
    return tree


# Sessions


@BOTH_WAYS
@pytest.mark.parametrize("seconds", [SHORT, LONG])
def test_messages_queued_for_an_offline_session_arrive_after_the_lease_ended(
    queued_tree: Tree, how: str, seconds: int
) -> None:
    interrupt(queued_tree, how, seconds)
    assert event_count(queued_tree.nodes["home"]) == (seconds == LONG), "this is what is tested"
    again = assert_all_comes(queued_tree)
    (resumed,) = (o.resumed for o in again.results if isinstance(o, Subscribed))
    assert resumed == (seconds == SHORT or how == "parent down"), "the root served, and knew nothing of it"


@BOTH_WAYS
def test_a_second_end_of_the_lease_loses_nothing(queued_tree: Tree, how: str) -> None:
    interrupt(queued_tree, how)
    interrupt(queued_tree, how)
    assert event_count(queued_tree.nodes["home"]) == 2
    assert_all_comes(queued_tree)


def test_earlier_messages_arrive_before_those_that_another_owner_accepted_meanwhile(
    queued_tree: Tree,
) -> None:
    """The client resumes its session at the root, which has none of the messages, and leaves again."""
    world, home = queued_tree.world, stop_owner(queued_tree)
    visitor = queued_tree.client("lamp", LAMP)
    subscribe(visitor)
    disconnect(visitor, world)
    publish(queued_tree.client(), range(20, 30))
    home.resume()
    world.run_until(lambda: home.owns(TOPIC))
    publish(queued_tree.client(), range(30, 40))
    again = queued_tree.client("lamp", LAMP)
    subscribe(again)
    world.run(10 * SECOND)
    assert numbers(again) == [*range(40)]
    assert [o.resumed for o in visitor.results if isinstance(o, Subscribed)] == [False]


def test_a_client_that_is_connected_to_another_owner_gets_the_messages_once_the_owner_is_back(
    queued_tree: Tree,
) -> None:
    world, home = queued_tree.world, stop_owner(queued_tree)
    again = queued_tree.client("lamp", LAMP)
    subscribe(again)
    publish(queued_tree.client(), range(20, 30))
    home.resume()
    world.run(40 * SECOND)
    publish(queued_tree.client(), range(30, 40))
    world.run(5 * SECOND)
    assert sorted(numbers(again)) == [*range(40)]


@pytest.mark.parametrize("stays", [False, True])
def test_a_later_run_with_a_clean_start_gets_no_earlier_messages(queued_tree: Tree, stays: bool) -> None:
    world, home = queued_tree.world, stop_owner(queued_tree)
    visitor = queued_tree.client("lamp", replace(LAMP, clean_start=True))
    subscribe(visitor)
    if not stays:
        disconnect(visitor, world)
    publish(queued_tree.client(), range(20, 30))
    home.resume()
    world.run(40 * SECOND)
    if not stays:
        visitor = queued_tree.client("lamp", LAMP)
        subscribe(visitor)
        world.run(5 * SECOND)
    assert numbers(visitor) == [*range(20, 30)]


def test_a_session_that_began_with_a_clean_start_keeps_its_messages(tree: Tree) -> None:
    queue_messages(tree, replace(LAMP, clean_start=True), "#")
    stop_owner(tree).resume()
    tree.world.run(40 * SECOND)
    assert_all_comes(tree, "#")


@BOTH_WAYS
def test_the_session_expires_in_time_although_the_lease_ended(tree: Tree, how: str) -> None:
    short = replace(LAMP, expiry_s=30)
    queue_messages(tree, short)
    interrupt(tree, how)
    assert not queued_at(tree.nodes["home"])
    again = tree.client("lamp", short)
    subscribe(again)
    tree.world.run(5 * SECOND)
    assert numbers(again) == []
    assert [o.resumed for o in again.results if isinstance(o, Subscribed)] == [False]


@BOTH_WAYS
def test_an_owner_that_restarts_after_its_lease_ended_has_lost_the_messages_and_the_client_is_told(
    queued_tree: Tree, how: str
) -> None:
    home = queued_tree.nodes["home"]
    if how == "owner stopped":
        stop_owner(queued_tree)
    else:
        queued_tree.root.kill()
        queued_tree.world.run_until(lambda: event_count(home) > 0)
        queued_tree.root.restart(remembers=True)
    home.kill()
    home.restart(remembers=True)
    queued_tree.world.run(30 * SECOND)
    again = queued_tree.client("lamp", LAMP)
    subscribe(again)
    queued_tree.world.run(5 * SECOND)
    assert numbers(again) == []
    assert [o.resumed for o in again.results if isinstance(o, Subscribed)] == [False]


@BOTH_WAYS
@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_of_a_connected_session_arrive(tree: Tree, how: str, qos: int) -> None:
    """The publishers have their acknowledgements, because the subscriber was stalled. The subscriber's
    link ends with the lease."""
    world, home = tree.world, tree.nodes["home"]
    lamp = tree.client("lamp", LAMP)
    subscribe(lamp, qos=qos)
    lamp.stop()
    publish(tree.client(), range(20), qos=qos)
    interrupt(tree, how)
    assert event_count(home)
    lamp.resume()
    world.run(60 * SECOND)
    publish(tree.client(), range(20, 30), qos=qos)
    world.run(10 * SECOND)
    count = Counter(numbers(lamp))
    assert set(count) == {*range(30)}
    if qos == 2:
        assert set(count.values()) == {1}


@BOTH_WAYS
def test_another_run_takes_the_queued_messages_over(tree: Tree, how: str) -> None:
    world = tree.world
    first = tree.client("lamp", LAMP)
    subscribe(first)
    first.stop()
    publish(tree.client(), range(20))
    interrupt(tree, how)
    second = tree.client("lamp", LAMP)
    subscribe(second)
    first.resume()
    world.run(10 * SECOND)
    assert [*dict.fromkeys(numbers(second))] == [*range(20)]


@BOTH_WAYS
def test_the_members_of_a_group_get_the_queued_messages(tree: Tree, how: str) -> None:
    world = tree.world
    lamps = [tree.client(session_options.client, session_options) for session_options in (LAMP, OTHER)]
    for lamp in lamps:
        subscribe(lamp, group="g")
    for lamp in lamps:
        disconnect(lamp, world)
    publish(tree.client(), range(20))
    interrupt(tree, how)
    again = [tree.client(session_options.client, session_options) for session_options in (LAMP, OTHER)]
    for lamp in again:
        subscribe(lamp, group="g")
    world.run(10 * SECOND)
    assert sorted(numbers(again[0]) + numbers(again[1])) == [*range(20)]


def test_messages_that_came_back_go_along_with_the_next_handover(queued_tree: Tree) -> None:
    interrupt(queued_tree, "parent down")
    other = queued_tree.join("", name="other", wait=False)
    queued_tree.world.run(5 * SECOND)
    queued_tree.move("home", queued_tree.nodes["home"], other)
    queued_tree.world.run_until(lambda: other.owns(TOPIC))
    assert queued_at(other) == [20]
    assert_all_comes(queued_tree)


def test_a_filter_that_matches_a_part_with_another_owner_loses_no_message(tree: Tree) -> None:
    queue_messages(tree, filter="home/#")
    world, home = tree.world, stop_owner(tree)
    kitchen = tree.join("home/kitchen", wait=False)
    world.run_until(lambda: kitchen.owns("home/kitchen/x"))
    home.resume()
    world.run_until(lambda: home.owns(TOPIC))
    assert_all_comes(tree, "home/#")


def test_messages_of_a_part_with_another_owner_are_kept_as_long_as_the_session(tree: Tree) -> None:
    """The node does not own that part again. The messages arrive when the client has a reason to connect
    to the node."""
    world = tree.world
    lamp = tree.client("lamp", LAMP)
    subscribe(lamp, "home/kitchen/x")
    subscribe(lamp)
    disconnect(lamp, world)
    publish(tree.client(), range(20), "home/kitchen/x")
    home = stop_owner(tree)
    kitchen = tree.join("home/kitchen", wait=False)
    world.run_until(lambda: kitchen.owns("home/kitchen/x"))
    home.resume()
    world.run_until(lambda: home.owns(TOPIC))
    assert queued_at(home) == [20]
    again = tree.client("lamp", LAMP)
    subscribe(again)
    world.run(5 * SECOND)
    again.subscribe("home/kitchen/x", qos=1)
    world.run(10 * SECOND)
    assert numbers(again) == [*range(20)]


def test_the_subscription_of_a_session_that_is_not_persistent_is_not_kept(tree: Tree) -> None:
    """Such a session makes its subscriptions again, at another node."""
    subscribe(tree.client("fleeting"))
    tree.root.kill()
    tree.world.run(LONG * SECOND)
    assert not [s for s in tree.nodes["home"].control.subscription_store if s.filter == TOPIC]


# Retained messages


@BOTH_WAYS
@pytest.mark.parametrize("seconds", [SHORT, LONG])
def test_retained_messages_are_kept(tree: Tree, how: str, seconds: int) -> None:
    publisher = tree.client()
    publisher.publish(TOPIC, b"kept", qos=1, retain=True)
    tree.world.run_until(lambda: any(isinstance(o, Published) for o in publisher.results))
    interrupt(tree, how, seconds)
    reader = tree.client()
    subscribe(reader)
    tree.world.run(10 * SECOND)
    assert [m.payload for m in reader.messages] == [b"kept"]


# Wills

GONE = Will(pb.Publish(topic="home/gone", payload=b"gone", qos=pb.QOS_AT_LEAST_ONCE), 90)


def make_will(tree: Tree, will: Will = GONE) -> tuple[ClientHost, ClientHost]:
    """A watcher, and a client with a will."""
    watcher, lamp = tree.client(), tree.client("lamp", LAMP)
    subscribe(watcher, "home/gone")
    subscribe(lamp)
    lamp.set_will(will)
    tree.world.run_until(lambda: any(isinstance(o, WillSet) for o in lamp.results))
    return watcher, lamp


@BOTH_WAYS
@pytest.mark.parametrize("delay_s", [90, 30], ids=["due later", "due meanwhile"])
@pytest.mark.parametrize("seconds", [SHORT, LONG])
def test_the_will_of_a_lost_client_is_published_once(
    tree: Tree, how: str, delay_s: int, seconds: int
) -> None:
    watcher, lamp = make_will(tree, replace(GONE, delay_s=delay_s))
    lamp.kill()
    tree.world.run(20 * SECOND)
    interrupt(tree, how, seconds)
    tree.world.run(170 * SECOND)
    assert [m.payload for m in watcher.messages] == [b"gone"]


def test_the_will_of_a_client_that_is_lost_while_nobody_serves_is_published(tree: Tree) -> None:
    watcher, lamp = make_will(tree, replace(GONE, delay_s=0))
    tree.root.kill()
    tree.world.run_until(lambda: event_count(tree.nodes["home"]) > 0)
    lamp.kill()
    tree.world.run(20 * SECOND)
    assert not watcher.messages
    tree.root.restart(remembers=True)
    tree.world.run(60 * SECOND)
    assert [m.payload for m in watcher.messages] == [b"gone"]


def test_the_will_of_a_client_that_stays_is_not_published(tree: Tree) -> None:
    watcher, lamp = make_will(tree, replace(GONE, delay_s=0))
    interrupt(tree, "parent down")
    tree.world.run(60 * SECOND)
    assert not watcher.messages
    lamp.kill()
    tree.world.run(60 * SECOND)
    assert [m.payload for m in watcher.messages] == [b"gone"]


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_will_that_another_owner_published_or_withdrew_is_not_published_again(
    tree: Tree, ends_well: bool
) -> None:
    """The client seemed lost, came back to the root, and either disconnected there or had its will
    published."""
    world = tree.world
    watcher, lamp = make_will(tree)
    lamp.kill()
    world.run(20 * SECOND)
    home = stop_owner(tree)
    again = tree.client("lamp", LAMP)
    again.set_will(replace(GONE, delay_s=0))
    world.run_until(lambda: any(isinstance(o, WillSet) for o in again.results))
    if ends_well:
        again.leave()
        world.run(SECOND)
    again.kill()
    world.run(40 * SECOND)
    home.resume()
    world.run(150 * SECOND)
    assert [m.payload for m in watcher.messages] == ([] if ends_well else [b"gone"])
