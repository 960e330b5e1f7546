"""What an owner keeps whose lease ends while it lives: it was stopped, or its parent was away (§5.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
"""Seconds: within a lease, and past it."""
HOW = pytest.mark.parametrize("how", ["owner stopped", "parent away"])


def subscribe(client: ClientHost, filter: str = TOPIC, qos: int = 1, group: str = "") -> None:
    before = len(client.results)
    client.subscribe(filter, qos=qos, group=group)
    client.world.run_until(lambda: any(isinstance(o, Subscribed) for o in client.results[before:]))


def go_away(client: ClientHost, world: World) -> None:
    client.leave()
    client.kill()
    world.run(SECOND)


def publish(publisher: ClientHost, numbers: range, topic: str = TOPIC, qos: int = 1) -> None:
    """Returns when all are acknowledged."""
    before = len(publisher.results)
    for number in numbers:
        publisher.publish(topic, b"%d" % number, qos=qos)
    publisher.world.run_until(
        lambda: sum(isinstance(o, Published) for o in publisher.results[before:]) == len(numbers)
    )


def interrupt(tree: Tree, how: str, seconds: int = LONG) -> None:
    """Has the owner of `home` without its lease for a while, if that is long enough."""
    if how == "owner stopped":
        tree.nodes["home"].stop()
        tree.world.run(seconds * SECOND)
        tree.nodes["home"].go_on()
    else:
        tree.root.kill()
        tree.world.run(seconds * SECOND)
        tree.root.restart(remembers=True)
    tree.world.run(30 * SECOND)


def numbers(client: ClientHost) -> list[int]:
    return [int(message.payload) for message in client.messages]


def losses(node: NodeHost, of: type = LeaseLost, subtree: str = "home") -> int:
    return sum(isinstance(n, of) and n.subtree == subtree for n in node.events)


def account(node: NodeHost, session: int = LAMP.session) -> Iterator[tuple[int, dict[str, int]]]:
    return ((s.queued, s.dropped) for s in node.engine.sessions(100) if s.session == session)


def assert_all_comes(tree: Tree, filter: str = TOPIC) -> ClientHost:
    """The lamp comes again, and gets the 20 messages that waited for it, in order."""
    again = tree.client("lamp", LAMP)
    subscribe(again, filter)
    tree.world.run(5 * SECOND)
    assert numbers(again) == [*range(20)]
    return again


@pytest.fixture
def tree() -> Tree:
    return Tree.grow(7, ["home"])


@pytest.fixture
def away(tree: Tree) -> Tree:
    """20 messages wait for the lamp."""
    lamp = tree.client("lamp", LAMP)
    subscribe(lamp)
    go_away(lamp, tree.world)
    publish(tree.client(), range(20))
    return tree


# Sessions


@HOW
@pytest.mark.parametrize("seconds", [SHORT, LONG])
def test_what_waits_for_a_session_that_is_away_comes(away: Tree, how: str, seconds: int) -> None:
    interrupt(away, how, seconds)
    assert losses(away.nodes["home"]) == (seconds == LONG), "this is what is tested"
    again = assert_all_comes(away)
    (resumed,) = (o.resumed for o in again.results if isinstance(o, Subscribed))
    assert resumed == (seconds == SHORT or how == "parent away"), "the root served, and knew nothing of it"


@HOW
def test_a_second_loss_changes_nothing(away: Tree, how: str) -> None:
    interrupt(away, how)
    interrupt(away, how)
    assert losses(away.nodes["home"]) == 2
    assert_all_comes(away)


def test_what_came_before_comes_before_what_another_owner_took_meanwhile(away: Tree) -> None:
    """The client resumes its session at the root, which has none of it, and leaves again."""
    world, home = away.world, away.nodes["home"]
    home.stop()
    world.run_until(lambda: losses(away.root, TookBack) > 0)
    visitor = away.client("lamp", LAMP)
    subscribe(visitor)
    go_away(visitor, world)
    publish(away.client(), range(20, 30))
    home.go_on()
    world.run_until(lambda: home.owns(TOPIC))
    publish(away.client(), range(30, 40))
    again = away.client("lamp", LAMP)
    subscribe(again)
    world.run(10 * SECOND)
    assert numbers(again) == [*range(40)]
    assert [o.resumed for o in visitor.results if isinstance(o, Subscribed)] == [False]


def test_a_client_that_is_connected_elsewhere_gets_it_once_its_owner_is_back(away: Tree) -> None:
    world, home = away.world, away.nodes["home"]
    home.stop()
    world.run_until(lambda: losses(away.root, TookBack) > 0)
    again = away.client("lamp", LAMP)
    subscribe(again)
    publish(away.client(), range(20, 30))
    home.go_on()
    world.run(40 * SECOND)
    publish(away.client(), range(30, 40))
    world.run(5 * SECOND)
    assert sorted(numbers(again)) == [*range(40)]


@pytest.mark.parametrize("stays", [False, True])
def test_a_later_run_that_begins_clean_gets_nothing_of_before(away: Tree, stays: bool) -> None:
    world, home = away.world, away.nodes["home"]
    home.stop()
    world.run_until(lambda: losses(away.root, TookBack) > 0)
    visitor = away.client("lamp", replace(LAMP, clean_start=True))
    subscribe(visitor)
    if not stays:
        go_away(visitor, world)
    publish(away.client(), range(20, 30))
    home.go_on()
    world.run(40 * SECOND)
    if not stays:
        visitor = away.client("lamp", LAMP)
        subscribe(visitor)
        world.run(5 * SECOND)
    assert numbers(visitor) == [*range(20, 30)]


def test_one_that_had_begun_clean_before_keeps_it(tree: Tree) -> None:
    world, home = tree.world, tree.nodes["home"]
    lamp = tree.client("lamp", replace(LAMP, clean_start=True))
    subscribe(lamp, "#")
    go_away(lamp, world)
    publish(tree.client(), range(20))
    home.stop()
    world.run_until(lambda: losses(tree.root, TookBack) > 0)
    home.go_on()
    world.run(40 * SECOND)
    assert_all_comes(tree, "#")


@HOW
def test_a_session_lives_no_longer_for_it(tree: Tree, how: str) -> None:
    short = replace(LAMP, expiry_s=30)
    lamp = tree.client("lamp", short)
    subscribe(lamp)
    go_away(lamp, tree.world)
    publish(tree.client(), range(20))
    interrupt(tree, how)
    assert not list(account(tree.nodes["home"]))
    again = tree.client("lamp", short)
    subscribe(again)
    tree.world.run(5 * SECOND)
    assert numbers(again) == []
    assert [o.resumed for o in again.results if isinstance(o, Subscribed)] == [False]


@HOW
def test_a_process_that_restarts_meanwhile_has_lost_it_and_the_client_is_told(away: Tree, how: str) -> None:
    home = away.nodes["home"]
    if how == "owner stopped":
        home.stop()
        away.world.run_until(lambda: losses(away.root, TookBack) > 0)
    else:
        away.root.kill()
        away.world.run_until(lambda: losses(home) > 0)
        away.root.restart(remembers=True)
    home.kill()
    home.restart(remembers=True)
    away.world.run(30 * SECOND)
    again = away.client("lamp", LAMP)
    subscribe(again)
    away.world.run(5 * SECOND)
    assert numbers(again) == []
    assert [o.resumed for o in again.results if isinstance(o, Subscribed)] == [False]


@HOW
@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_connected_session_had_not_answered_comes(tree: Tree, how: str, qos: int) -> None:
    """It is acknowledged, for the subscriber was stalled, and its link ends when the lease has ended."""
    world, home = tree.world, tree.nodes["home"]
    lamp = tree.client("lamp", LAMP)
    subscribe(lamp, qos=qos)
    lamp.stop()
    publish(tree.client(), range(20), qos=qos)
    interrupt(tree, how)
    assert losses(home)
    lamp.go_on()
    world.run(60 * SECOND)
    publish(tree.client(), range(20, 30), qos=qos)
    world.run(10 * SECOND)
    count = Counter(numbers(lamp))
    assert set(count) == {*range(30)}
    if qos == 2:
        assert set(count.values()) == {1}


@HOW
def test_another_run_takes_over_what_waits(tree: Tree, how: str) -> None:
    world = tree.world
    first = tree.client("lamp", LAMP)
    subscribe(first)
    first.stop()
    publish(tree.client(), range(20))
    interrupt(tree, how)
    second = tree.client("lamp", LAMP)
    subscribe(second)
    first.go_on()
    world.run(10 * SECOND)
    assert [*dict.fromkeys(numbers(second))] == [*range(20)]


@HOW
def test_a_group_gets_what_waits_for_its_members(tree: Tree, how: str) -> None:
    world = tree.world
    lamps = [tree.client(session_options.client, session_options) for session_options in (LAMP, OTHER)]
    for lamp in lamps:
        subscribe(lamp, group="g")
    for lamp in lamps:
        go_away(lamp, world)
    publish(tree.client(), range(20))
    interrupt(tree, how)
    again = [tree.client(session_options.client, session_options) for session_options in (LAMP, OTHER)]
    for lamp in again:
        subscribe(lamp, group="g")
    world.run(10 * SECOND)
    assert sorted(numbers(again[0]) + numbers(again[1])) == [*range(20)]


def test_what_is_handed_on_after_it_came_back_goes_along(away: Tree) -> None:
    interrupt(away, "parent away")
    other = away.join("", name="other", wait=False)
    away.world.run(5 * SECOND)
    away.move("home", away.nodes["home"], other)
    away.world.run_until(lambda: other.owns(TOPIC))
    assert [queued for queued, _ in account(other)] == [20]
    assert_all_comes(away)


def test_a_filter_that_matches_a_part_that_another_has_by_then_loses_nothing(tree: Tree) -> None:
    world, home = tree.world, tree.nodes["home"]
    lamp = tree.client("lamp", LAMP)
    subscribe(lamp, "home/#")
    go_away(lamp, world)
    publish(tree.client(), range(20))
    home.stop()
    world.run_until(lambda: losses(tree.root, TookBack) > 0)
    kitchen = tree.join("home/kitchen", wait=False)
    world.run_until(lambda: kitchen.owns("home/kitchen/x"))
    home.go_on()
    world.run_until(lambda: home.owns(TOPIC))
    assert_all_comes(tree, "home/#")


def test_a_part_that_another_has_by_then_is_kept_as_long_as_its_session(tree: Tree) -> None:
    """Nobody serves it here again: what waits comes when the client has a reason to come."""
    world, home = tree.world, tree.nodes["home"]
    lamp = tree.client("lamp", LAMP)
    subscribe(lamp, "home/kitchen/x")
    subscribe(lamp)
    go_away(lamp, world)
    publish(tree.client(), range(20), "home/kitchen/x")
    home.stop()
    world.run_until(lambda: losses(tree.root, TookBack) > 0)
    kitchen = tree.join("home/kitchen", wait=False)
    world.run_until(lambda: kitchen.owns("home/kitchen/x"))
    home.go_on()
    world.run_until(lambda: home.owns(TOPIC))
    assert [queued for queued, _ in account(home)] == [20]
    again = tree.client("lamp", LAMP)
    subscribe(again)
    world.run(5 * SECOND)
    again.subscribe("home/kitchen/x", qos=1)
    world.run(10 * SECOND)
    assert numbers(again) == [*range(20)]


def test_nothing_is_left_of_what_never_was_kept(tree: Tree) -> None:
    """A session that is not persistent makes its subscriptions again, elsewhere."""
    subscribe(tree.client("fleeting"))
    tree.root.kill()
    tree.world.run(LONG * SECOND)
    assert not [s for s in tree.nodes["home"].control.subscribers if s.filter == TOPIC]


# Retained messages


@HOW
@pytest.mark.parametrize("seconds", [SHORT, LONG])
def test_what_is_retained_stays(tree: Tree, how: str, seconds: int) -> None:
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


@HOW
@pytest.mark.parametrize("delay_s", [90, 30], ids=["due later", "due meanwhile"])
@pytest.mark.parametrize("seconds", [SHORT, LONG])
def test_a_will_of_one_that_is_gone_is_published_once(
    tree: Tree, how: str, delay_s: int, seconds: int
) -> None:
    watcher, lamp = make_will(tree, replace(GONE, delay_s=delay_s))
    lamp.kill()
    tree.world.run(20 * SECOND)
    interrupt(tree, how, seconds)
    tree.world.run(170 * SECOND)
    assert [m.payload for m in watcher.messages] == [b"gone"]


def test_a_will_is_published_of_one_that_goes_while_nobody_serves(tree: Tree) -> None:
    watcher, lamp = make_will(tree, replace(GONE, delay_s=0))
    tree.root.kill()
    tree.world.run_until(lambda: losses(tree.nodes["home"]) > 0)
    lamp.kill()
    tree.world.run(20 * SECOND)
    assert not watcher.messages
    tree.root.restart(remembers=True)
    tree.world.run(60 * SECOND)
    assert [m.payload for m in watcher.messages] == [b"gone"]


def test_there_is_no_will_of_one_that_stays(tree: Tree) -> None:
    watcher, lamp = make_will(tree, replace(GONE, delay_s=0))
    interrupt(tree, "parent away")
    tree.world.run(60 * SECOND)
    assert not watcher.messages
    lamp.kill()
    tree.world.run(60 * SECOND)
    assert [m.payload for m in watcher.messages] == [b"gone"]


@pytest.mark.parametrize("ends_well", [True, False])
def test_the_owner_of_before_publishes_none_that_another_owner_has_seen_end(
    tree: Tree, ends_well: bool
) -> None:
    """It was taken to be gone, came back to the root, and left that well, or had its will published."""
    world, home = tree.world, tree.nodes["home"]
    watcher, lamp = make_will(tree)
    lamp.kill()
    world.run(20 * SECOND)
    home.stop()
    world.run_until(lambda: losses(tree.root, TookBack) > 0)
    again = tree.client("lamp", LAMP)
    again.set_will(replace(GONE, delay_s=0))
    world.run_until(lambda: any(isinstance(o, WillSet) for o in again.results))
    if ends_well:
        again.leave()
        world.run(SECOND)
    again.kill()
    world.run(40 * SECOND)
    home.go_on()
    world.run(150 * SECOND)
    assert [m.payload for m in watcher.messages] == ([] if ends_well else [b"gone"])
