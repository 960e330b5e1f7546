"""Subscriptions (docs/protocol.md §6) among scripted nodes: a subscription is complete only when every
owner has it."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import address_of, body_of, pack
from hbroker.protocol.resolution.caches import ResolverCaches
from hbroker.protocol.results import Subscribed, SubscriptionFailed, Unsubscribed
from hbroker.protocol.state_machine import Symbol
from hbroker.protocol.subscriptions.client.subscription import (
    OWNER,
    SUBSCRIPTION,
    OwnerEvent,
    OwnerState,
    SubscriptionEvent,
    SubscriptionState,
)
from tests.protocol.client_world import SECOND, Node, World, home, subscribed, subscribed_nodes
from tests.protocol.fake_network import Faults


@pytest.mark.parametrize(
    ("filter", "owners"),
    [
        ("home/outside/securitycams/#", ("cams",)),
        ("home/outside/securitycams/front", ("cams",)),
        ("home/kitchen/+/state", ("kitchen",)),
        ("home/+/lights", ("bedroom", "kitchen", "livingroom", "outside", "root")),
        ("#", ("bedroom", "cams", "kitchen", "livingroom", "outside", "root")),
    ],
)
def test_a_complete_subscription_names_exactly_its_owners(filter: str, owners: tuple[str, ...]) -> None:
    world = World()
    home(world)
    id = world.subscribe(filter)
    assert world.listening == {id: filter}
    done = world.result(Subscribed)
    assert done.subscription == id
    assert set(owners) <= set(done.owners)
    assert subscribed_nodes(world, filter) == set(done.owners)


def test_owners_whose_answers_do_not_arrive_are_asked_directly() -> None:
    world = World(behind_nat=True)
    nodes = home(world)
    world.subscribe("#", qos=1)
    assert len(world.result(Subscribed).owners) == 6
    modes = [body_of(packet).mode for address, packet, _ in world.sent if address == nodes["cams"].address]
    assert modes
    assert set(modes) == {pb.MODE_REFERRAL}


def test_a_subscription_fails_while_an_owner_is_silent() -> None:
    world = World()
    nodes = home(world)
    nodes["cams"].alive = False
    world.subscribe("home/#")
    failed = world.result(SubscriptionFailed)
    assert not failed.answered
    assert failed.tried == ("cams (10.0.0.1:7005)",)
    assert world.listening == {}
    world.run(seconds=60)
    assert subscribed_nodes(world, "home/#") == set(), "what was made is ended again"
    assert world.control.poll_timeout() is None


def test_a_subscription_is_complete_as_soon_as_the_silent_owner_is_back() -> None:
    world = World()
    nodes = home(world)
    nodes["cams"].alive = False
    world.subscribe("home/#", timeout=30 * SECOND)
    world.run(seconds=6)
    nodes["cams"].alive = True
    assert "cams" in world.result(Subscribed, seconds=8).owners


def test_a_subscription_moves_to_an_owner_that_joins_later() -> None:
    world, nodes, _ = subscribed("home/kitchen/#", qos=1)
    oven = world.node("oven", "home/kitchen/oven")
    nodes["kitchen"].install_state(oven)
    world.run(seconds=5)
    assert oven.asked == {}, "a subscriber need do nothing"
    world.cut_off(oven)
    assert world.run(lambda: "home/kitchen/#" in oven.subscriptions, seconds=5)


def test_an_owner_that_joins_during_the_discovery_is_not_missed() -> None:
    for seed in range(200):
        world = World(seed)
        nodes = home(world)
        world.subscribe("home/kitchen/#")
        oven = world.node("oven", "home/kitchen/oven")
        world.later(partial(nodes["kitchen"].install_state, oven), world.random.randint(0, 12_000))
        world.result(Subscribed)
        world.run(partial(getattr, oven, "subscriptions"), seconds=3)
        assert oven.subscriptions, seed


def test_an_answer_that_is_older_than_a_delegation_does_not_stand_for_it() -> None:
    """§6.1: a node of two subtrees answered before it held the inner one. Its second answer is lost."""
    world = World()
    outer = world.node("twice", "home", world.root)
    middle = world.node("middle", "home/hall", outer)
    inner = Node(world, "twice", "home/hall/cupboard", outer.address, alive=False)
    middle.children.append(inner)
    owner = world.node("owner", "home/hall/cupboard/box", inner)

    def take_in() -> None:
        outer.children.append(owner)
        outer.other_subtrees.append(inner.subtree)

    world.later(take_in, 2 * SECOND)
    world.subscribe("home/hall/cupboard/box/#", timeout=20 * SECOND)
    assert world.result(Subscribed).owners == ("owner",)


@pytest.mark.parametrize("filter", ["home/outside/securitycams/front", "home/outside/#"])
@pytest.mark.parametrize("is_named", [True, False])
def test_an_unsolicited_suback_of_a_node_that_has_not_answered_does_not_tell_its_cuts(
    filter: str, is_named: bool
) -> None:
    """§6.2: the node got its subtree back, with the subscription, and still holds older cuts (seed 9876)."""
    world = World()
    nodes = home(world)
    outside = nodes["outside"]
    outside.alive = False
    world.root.service_time = 0 if is_named else SECOND // 10
    news = outside.suback(pb.Subscribe(filter=filter), [])
    news.active = news.responsible
    world.later(partial(world.deliver, outside, news), SECOND // 20)
    world.later(partial(setattr, outside, "alive", True), SECOND)
    world.subscribe(filter)
    assert "cams" in world.result(Subscribed).owners


def test_an_unsolicited_suback_of_a_node_that_answered_handover_does_not_replace_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """§6.2: the node was asked while its subtree was on the way to it, together with the cuts below (seed
    1807)."""
    world = World()
    outside = home(world)["outside"]
    children, outside.children = outside.children, []

    def defer(packet: bytes) -> None:
        body = body_of(packet)
        assert isinstance(body, pb.Subscribe)
        monkeypatch.undo()
        answer = outside.suback(body, [])
        answer.reason = pb.REASON_HANDOVER
        world.deliver(outside, answer)
        world.later(partial(serve, body), SECOND // 100)

    def serve(body: pb.Subscribe) -> None:
        outside.children = children
        news = outside.suback(pb.Subscribe(filter=body.filter), [])
        news.active = True
        world.deliver(outside, news)

    monkeypatch.setattr(outside, "receive_in_session", defer)
    world.subscribe("home/outside/#")
    assert world.result(Subscribed).owners == ("cams", "outside")


def test_an_unsolicited_suback_that_crosses_a_subscribe_does_not_answer_it() -> None:
    """§6.2: as above, for a client that knew the node from the shared cache."""
    caches = ResolverCaches.shared()
    world = World(caches=caches)
    outside = home(world)["outside"]
    caches.owner_cache.learn(world.now, "outside", outside.address, ["home/outside"], [], is_root=True)
    news = outside.suback(pb.Subscribe(filter="home/outside/securitycams/front"), [])
    world.deliver(outside, news)
    world.subscribe("home/outside/securitycams/front")
    assert world.result(Subscribed).owners == ("cams",)


def test_the_target_of_a_handover_is_asked_for_the_cuts_that_its_source_has_not_named() -> None:
    world = World()
    nodes = home(world)
    outside, kitchen = nodes["outside"], nodes["kitchen"]
    outside.alive = False
    world.subscribe("home/+/#", timeout=30 * SECOND)
    assert world.run(lambda: "home/+/#" in kitchen.subscriptions, seconds=5)
    kitchen.other_subtrees.append("home/outside")
    kitchen.children.append(nodes["cams"])
    report = kitchen.suback(pb.Subscribe(filter="home/+/#"), [])
    report.active = True
    world.deliver(kitchen, report)
    outside.subtree = "elsewhere"
    outside.children = [Node(world, "kitchen", "home/outside", kitchen.address, epoch=2)]
    outside.alive = True
    assert "cams" in world.result(Subscribed).owners


def test_a_node_that_sends_an_unsolicited_suback_over_a_new_link_is_asked_for_its_cuts() -> None:
    world = World()
    kitchen = home(world)["kitchen"]
    world.subscribe("home/kitchen/#")
    world.result(Subscribed)
    oven = world.node("oven", "home/kitchen/oven", kitchen)  # while the session has no link there
    del world.links[kitchen.address]
    report = kitchen.suback(pb.Subscribe(filter="home/kitchen/#"), [])
    report.active = True
    world.deliver(kitchen, report)
    assert world.run(lambda: "home/kitchen/#" in oven.subscriptions, seconds=30)


def test_the_target_of_a_handover_is_asked_in_the_name_of_the_listener_that_joined_meanwhile() -> None:
    for seed in range(100):
        world, nodes, _ = subscribed("home/kitchen/#", seed=seed)
        oven = world.node("oven", "home/kitchen/oven")
        named: list[int] = []

        def move(source: Node = nodes["kitchen"], target: Node = oven, named: list[int] = named) -> None:
            source.install_state(target)
            named.append(target.subscriptions["home/kitchen/#"].listener)

        world.later(move, world.random.randint(0, 4_000))
        later = world.subscribe("home/kitchen/#")
        world.result(Subscribed)
        world.run(seconds=3)
        named += [body.listener for body in oven.told if isinstance(body, pb.Subscribe)]
        assert later in named, seed


def test_another_node_at_the_address_of_a_named_one_does_not_answer_for_it() -> None:
    world = World()
    gone = world.node("gone", "home", world.root)
    world.nodes[gone.address] = Node(world, "other", "garden", gone.address)
    gone.alive = False
    world.subscribe("home/#", timeout=20 * SECOND)
    world.run(seconds=3)
    assert not world.results
    world.root.children.remove(gone)
    assert world.result(Subscribed).owners == ("root",)


def test_listeners_of_one_filter_share_one_subscription_with_the_highest_qos() -> None:
    world = World()
    nodes = home(world)
    first = world.subscribe("home/kitchen/#", qos=0)
    second = world.subscribe("home/kitchen/#", qos=1)
    assert {world.result(Subscribed).subscription for _ in range(2)} == {first, second}
    assert nodes["kitchen"].subscriptions["home/kitchen/#"].qos == 1
    assert len(world.listening) == 2
    third = world.subscribe("home/kitchen/#", qos=2)
    assert world.result(Subscribed).subscription == third
    assert nodes["kitchen"].subscriptions["home/kitchen/#"].qos == 2
    for id, wanted in ((third, 1), (first, 1)):
        world.control.unsubscribe(world.now, id)
        assert world.result(Unsubscribed).subscription == id
        world.run(seconds=1)
        assert nodes["kitchen"].subscriptions["home/kitchen/#"].qos == wanted, "what those want that stay"
    world.control.unsubscribe(world.now, second)
    assert world.result(Unsubscribed).subscription == second
    assert subscribed_nodes(world, "home/kitchen/#") == set()
    assert world.listening == {}


def test_a_refusal_is_reported_with_its_reason() -> None:
    world = World()
    home(world)["kitchen"].reason = pb.REASON_NOT_AUTHORIZED
    world.subscribe("home/kitchen/#")
    failed = world.result(SubscriptionFailed)
    assert failed.answered
    assert failed.reason == pb.REASON_NOT_AUTHORIZED


def test_a_subscription_waits_for_a_node_that_does_not_serve_yet() -> None:
    world = World()
    kitchen = home(world)["kitchen"]
    kitchen.reason = pb.REASON_NOT_SERVING
    world.subscribe("home/kitchen/#")
    world.run(seconds=2)
    kitchen.reason = 0
    assert world.result(Subscribed, seconds=8).owners == ("kitchen",)


def test_forged_answers_neither_complete_a_subscription_nor_divert_it() -> None:
    world = World()
    world.root.alive = False
    world.subscribe("a/#")
    forger = ("6.6.6.6", 666)
    for request in (0, 1, 2**64 - 1):
        cut = pb.Cut(subtree="a", node="forger", address=address_of(forger), epoch=9)
        forged = pb.SubAck(request=request, node="forger", filter="a/#", responsible=True, active=True)
        forged.address.CopyFrom(address_of(forger))
        forged.passed_to.append(cut)
        world.event(ControlEvent(None, forger, pack(forged), False))
    assert world.links == {}
    assert isinstance(world.result(SubscriptionFailed), SubscriptionFailed)


def test_a_malformed_unsolicited_suback_is_dropped() -> None:
    world, nodes, _ = subscribed("home/kitchen/#")
    link = world.links[nodes["kitchen"].address]
    for packet in (
        b"",
        b"\xff\xff\xff",
        pack(pb.SubAck(filter="home/kitchen/#")),
        pack(pb.SubAck(filter="home/kitchen/#", node="x", passed_to=[pb.Cut(node="y")])),
        pack(pb.SubAck(request=77, filter="home/kitchen/#", active=True)),
        pack(pb.SubAck(filter="never/asked", node="x", active=False)),
    ):
        world.event(ControlEvent(link, nodes["kitchen"].address, packet, False))
    world.run(seconds=30)
    assert subscribed_nodes(world, "home/kitchen/#") == {"kitchen"}


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    loss=st.floats(0, 0.3),
    duplication=st.floats(0, 0.5),
    late=st.floats(0, 0.3),
    nat=st.booleans(),
    filter=st.sampled_from(["#", "home/#", "home/+/lights", "home/outside/#", "home/outside/securitycams/x"]),
    joins_after=st.integers(0, 40_000),
)
def test_a_complete_subscription_is_at_every_owner_despite_loss_duplication_and_delay(
    seed: int, loss: float, duplication: float, late: float, nat: bool, filter: str, joins_after: int
) -> None:
    world = World(seed, Faults(loss, duplication, late), behind_nat=nat)
    nodes = home(world)
    joined: list[Node] = []

    def join() -> None:
        joined.append(world.node("porch", "home/outside/porch"))
        nodes["outside"].install_state(joined[0])

    world.later(join, joins_after)
    id = world.subscribe(filter, timeout=300 * SECOND)
    world.result(Subscribed, seconds=310)
    owners = {node.name for node in nodes.values() if node.owns_match(filter)}
    missing = owners - subscribed_nodes(world, filter)
    assert not missing
    world.run(seconds=10)
    everyone = [*nodes.values(), *joined]
    assert subscribed_nodes(world, filter) >= {node.name for node in everyone if node.owns_match(filter)}
    world.control.unsubscribe(world.now, id)
    world.result(Unsubscribed)
    world.run(seconds=60)
    assert subscribed_nodes(world, filter) == set()
    assert world.control.poll_timeout() is None, "nothing is left behind"


def test_a_thousand_subscriptions_and_their_ends_leave_no_state() -> None:
    world = World(7, Faults(0.05, 0.1, 0.05))
    home(world)
    for n in range(1_000):
        id = world.subscribe(f"home/kitchen/{n}")
        world.result(Subscribed)
        world.control.unsubscribe(world.now, id)
        world.result(Unsubscribed)
    world.run(seconds=60)
    assert world.control.poll_timeout() is None
    subscriber = world.control._subscriptions
    sites = subscriber.owners
    assert len(subscriber._by_key) == len(sites._subscribe_requests._owners) == 0
    assert len(sites._discovery_requests) == len(sites._by_link) == 0


@pytest.mark.parametrize(
    ("table", "states", "events"),
    [(OWNER, OwnerState, OwnerEvent), (SUBSCRIPTION, SubscriptionState, SubscriptionEvent)],
)
def test_every_state_and_event_is_in_the_transition_table(
    table: dict[tuple[Symbol, Symbol], Symbol], states: type[Symbol], events: type[Symbol]
) -> None:
    assert {event for _, event in table} == set(events)
    mentioned = {state for state, _ in table} | set(table.values())
    assert mentioned == set(states)


def test_the_pauses_between_tries_grow() -> None:
    world = World()
    world.root.alive = False
    times: list[int] = []
    send_to = world.send_to

    def timed(*args: object) -> None:
        times.append(world.now)
        send_to(*args)  # type: ignore[arg-type]

    world.send_to = timed  # type: ignore[method-assign,assignment]
    world.subscribe("a/#")
    world.result(SubscriptionFailed)
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == sorted(gaps)
    assert len(gaps) in (4, 5)
