"""The end of a subscription (docs/protocol.md §§6.3, 6.5), also while a handover or a failure crosses it,
among scripted nodes."""

from __future__ import annotations

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.results import Subscribed, SubscriptionFailed, Unsubscribed
from hbroker.protocol.subscriptions.client.options import Options
from tests.protocol.client_world import SECOND, World, home, subscribed, subscribed_nodes


def test_unsubscribe_ends_the_subscription_at_every_owner_and_leaves_no_state() -> None:
    world, _, id = subscribed("#")
    world.control.unsubscribe(world.now, id)
    world.result(Unsubscribed)
    assert subscribed_nodes(world, "#") == set()
    assert world.control.poll_timeout() is None


def test_unsubscribe_does_not_wait_for_a_dead_owner() -> None:
    world, nodes, id = subscribed("home/kitchen/#")
    nodes["kitchen"].alive = False
    started = world.now
    world.control.unsubscribe(world.now, id)
    world.result(Unsubscribed)
    assert world.now - started <= 2 * SECOND


def test_a_leaving_group_member_acknowledges_nothing_until_every_owner_has_answered() -> None:
    world = World()
    nodes = home(world)
    id = world.control.subscribe(world.now, "home/+/lights", Options(1), group="g")
    world.result(Subscribed)
    nodes["kitchen"].is_mute = True
    world.control.unsubscribe(world.now, id)
    assert world.leaving[0] == (True, 1), "before the listener is gone"
    world.result(Unsubscribed)
    assert world.leaving[-1] == (True, 0), "the application waits no longer, but one has not answered"
    world.cut_off(nodes["kitchen"])
    assert world.leaving[-1] == (False, 0)


def test_an_unsubscribe_without_a_group_withholds_no_acknowledgement() -> None:
    world, _, id = subscribed("#")
    world.control.unsubscribe(world.now, id)
    world.result(Unsubscribed)
    assert world.leaving == []


def test_a_handover_that_crosses_an_unsubscribe_leaves_no_subscription() -> None:
    world, nodes, id = subscribed("home/kitchen/#")
    oven = world.node("oven", "home/kitchen/oven")
    nodes["kitchen"].install_state(oven)
    world.control.unsubscribe(world.now, id)
    world.result(Unsubscribed)
    world.run(seconds=5)
    assert subscribed_nodes(world, "home/kitchen/#") == set()


def test_a_node_whose_answer_is_missing_when_the_subscription_fails_gets_an_unsubscribe() -> None:
    world = World()
    kitchen = home(world)["kitchen"]
    kitchen.is_mute = True
    world.subscribe("home/kitchen/#")
    assert world.run(lambda: any(isinstance(body, pb.Subscribe) for body in kitchen.told))
    world.root.alive = False
    world.result(SubscriptionFailed)
    world.run(seconds=1)
    assert isinstance(kitchen.told[-1], pb.Unsubscribe)
