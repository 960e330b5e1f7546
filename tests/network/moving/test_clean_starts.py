"""A client begins its session anew (`clean_start`) while subtrees move: what earlier runs left ends, and
nothing that this run has made (§6.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hbroker.protocol.results import Published, Subscribed
from hbroker.protocol.sessions.options import SessionOptions, session_id
from hbroker.protocol.timers import SECOND
from hbroker.sim.network import ClientHost, NodeHost
from tests.network.networks import Tree

LAMP = SessionOptions("lamp", session_id("lamp"), expiry_s=3_600)
CLEAN = replace(LAMP, clean_start=True)


def subscribe(client: ClientHost, filter: str, *, wait: bool = True) -> None:
    before = len(client.results)
    client.subscribe(filter, qos=1)
    if wait:
        client.world.run_until(lambda: any(isinstance(o, Subscribed) for o in client.results[before:]))


def disconnect(client: ClientHost) -> None:
    client.leave()
    client.kill()
    client.world.run(SECOND)


def publish(tree: Tree, topic: str, *payloads: bytes) -> None:
    """Publishes at QoS 1, and waits until all is acknowledged."""
    publisher = tree.client()
    for payload in payloads:
        publisher.publish(topic, payload, qos=1)
    tree.world.run_until(lambda: sum(isinstance(o, Published) for o in publisher.results) == len(payloads))


def filters(node: NodeHost) -> set[str]:
    return {s.filter for s in node.control.subscription_store if s.session == LAMP.session}


def payloads(client: ClientHost) -> list[bytes]:
    return [message.payload for message in client.messages]


def test_a_clean_start_ends_nothing_that_this_run_made_and_a_handover_has_brought() -> None:
    """The client hears of the new owner by the SUBACKs of both subscriptions at once. It still awaits answers
    for `#`, so it sends SUBSCRIBE for that, with `clean_start` (seed 899)."""
    tree = Tree.grow(1, ["garden"])
    tree.nodes["garden"].kill()
    lamp = tree.client("lamp", CLEAN)
    subscribe(lamp, "#", wait=False)
    tree.world.run(SECOND)
    subscribe(lamp, "home/+")
    assert filters(tree.root) == {"#", "home/+"}
    home = tree.join("home")
    tree.world.run(5 * SECOND)
    assert filters(home) == {"#", "home/+"}
    publish(tree, "home/x", b"1")
    tree.world.run(SECOND)
    assert payloads(lamp) == [b"1"]


@pytest.mark.parametrize("moves", [1, 2])
@pytest.mark.parametrize("stays", [False, True])
def test_a_clean_start_keeps_the_messages_of_this_run_that_a_handover_has_brought(
    moves: int, stays: bool
) -> None:
    """A handover brings an offline session of this run. Its client has a new link and says `cleaned` at the
    source, or it says `clean_start` at the new owner for the first time."""
    tree = Tree.grow(2, ["garden", "office"])
    lamp = tree.client("lamp", CLEAN)
    subscribe(lamp, "home/x")
    garden = tree.nodes["garden"]
    if not stays:
        lamp.stop()
        tree.world.run(20 * SECOND)
        publish(tree, "home/x", b"1", b"2")
    holder = tree.join("home")
    for target in [garden, tree.nodes["office"]][:moves]:
        tree.move("home", holder, target)
        holder = target
    tree.world.run(SECOND)
    if not stays:
        lamp.resume()
    subscribe(lamp, "#")
    tree.world.run(10 * SECOND)
    assert filters(holder) == {"#", "home/x"}
    publish(tree, "home/x", b"3")
    tree.world.run(SECOND)
    assert payloads(lamp) == ([b"3"] if stays else [b"1", b"2", b"3"])


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_session_of_an_earlier_run_ends_where_a_handover_brings_the_session_that_was_begun_anew(
    is_connected: bool,
) -> None:
    tree = Tree.grow(3, ["garden", "home"])
    garden, home = tree.nodes["garden"], tree.nodes["home"]
    former = tree.client("lamp", LAMP)
    subscribe(former, "garden/x")
    disconnect(former)
    publish(tree, "garden/x", b"former")
    lamp = tree.client("lamp", CLEAN)
    subscribe(lamp, "home/x")
    if not is_connected:
        disconnect(lamp)
        publish(tree, "home/x", b"1")
    tree.move("home", home, garden)
    tree.world.run(5 * SECOND)
    if not is_connected:
        lamp = tree.client("lamp", LAMP)
        subscribe(lamp, "home/x")
    subscribe(lamp, "garden/y")
    publish(tree, "home/x", b"2")
    tree.world.run(5 * SECOND)
    assert filters(garden) == {"home/x", "garden/y"}
    assert payloads(lamp) == ([b"2"] if is_connected else [b"1", b"2"])


def test_a_session_that_a_later_run_has_resumed_since_goes_on() -> None:
    tree = Tree.grow(4, ["garden", "home"])
    garden, home = tree.nodes["garden"], tree.nodes["home"]
    begun = tree.client("lamp", CLEAN)
    subscribe(begun, "home/x")
    disconnect(begun)
    later = tree.client("lamp", LAMP)
    subscribe(later, "garden/x")
    disconnect(later)
    publish(tree, "garden/x", b"1")
    tree.move("home", home, garden)
    tree.world.run(5 * SECOND)
    assert filters(garden) == {"home/x", "garden/x"}
    last = tree.client("lamp", LAMP)
    subscribe(last, "garden/x")
    tree.world.run(SECOND)
    assert payloads(last) == [b"1"]
