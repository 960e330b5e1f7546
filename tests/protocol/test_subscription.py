"""Subscriptions (docs/protocol.md §6) among scripted nodes: complete means that every owner has it,
whatever happens."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import site, subscription
from hbroker.protocol.outcome import Subscribed, SubscriptionFailed, Unsubscribed
from hbroker.protocol.packets import address_of, body_of, cut_of, pack
from hbroker.protocol.subscription import Options
from tests.protocol.client_world import SECOND, Node, World, home
from tests.protocol.fake_network import Faults


def holders(world: World, filter: str) -> set[str]:
    return {node.name for node in world.nodes.values() if filter in node.subscriptions}


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
def test_complete_names_exactly_the_owners(filter: str, owners: tuple[str, ...]) -> None:
    world = World()
    home(world)
    id = world.subscribe(filter)
    assert world.listening == {id: filter}
    done = world.outcome(Subscribed)
    assert done.subscription == id
    assert set(owners) <= set(done.owners)
    assert holders(world, filter) == set(done.owners)


def test_owners_whose_answers_do_not_arrive_are_asked_directly() -> None:
    world = World(behind_nat=True)
    nodes = home(world)
    world.subscribe("#", qos=1)
    assert len(world.outcome(Subscribed).owners) == 6
    modes = [body_of(packet).mode for address, packet, _ in world.sent if address == nodes["cams"].address]
    assert modes
    assert set(modes) == {pb.MODE_REFERRAL}


def test_it_is_not_complete_while_an_owner_is_silent() -> None:
    world = World()
    nodes = home(world)
    nodes["cams"].alive = False
    world.subscribe("home/#")
    failed = world.outcome(SubscriptionFailed)
    assert not failed.answered
    assert failed.tried == ("cams (10.0.0.1:7005)",)
    assert world.listening == {}
    world.run(seconds=60)
    assert holders(world, "home/#") == set(), "what was made is ended again"
    assert world.control.poll_timeout() is None


def test_it_completes_as_soon_as_the_silent_owner_is_back() -> None:
    world = World()
    nodes = home(world)
    nodes["cams"].alive = False
    world.subscribe("home/#", patience=30 * SECOND)
    world.run(seconds=6)
    nodes["cams"].alive = True
    assert "cams" in world.outcome(Subscribed, seconds=8).owners


def test_an_owner_that_joins_late_is_part_of_it() -> None:
    world = World()
    nodes = home(world)
    world.subscribe("home/kitchen/#", qos=1)
    world.outcome(Subscribed)
    oven = world.node("oven", "home/kitchen/oven")
    nodes["kitchen"].take_over(oven)
    world.run(seconds=5)
    assert oven.asked == {}, "a subscriber need do nothing"
    world.cut_off(oven)
    assert world.run(lambda: "home/kitchen/#" in oven.subscriptions, seconds=5)


def test_an_owner_that_joins_while_it_is_made_is_not_missed() -> None:
    for seed in range(200):
        world = World(seed)
        nodes = home(world)
        world.subscribe("home/kitchen/#")
        oven = world.node("oven", "home/kitchen/oven")
        world.later(partial(nodes["kitchen"].take_over, oven), world.random.randint(0, 12_000))
        world.outcome(Subscribed)
        world.run(partial(getattr, oven, "subscriptions"), seconds=3)
        assert oven.subscriptions, seed


def test_an_answer_older_than_a_delegation_does_not_stand_for_it() -> None:
    """§6.1: a node of two subtrees answered before it had the inner one; its second answer is lost."""
    world = World()
    outer = world.node("twice", "home", world.root)
    middle = world.node("middle", "home/hall", outer)
    inner = Node(world, "twice", "home/hall/cupboard", outer.address, alive=False)
    middle.children.append(inner)
    owner = world.node("owner", "home/hall/cupboard/box", inner)

    def take_in() -> None:
        outer.children.append(owner)
        outer.besides.append(inner.subtree)

    world.later(take_in, 2 * SECOND)
    world.subscribe("home/hall/cupboard/box/#", patience=20 * SECOND)
    assert world.outcome(Subscribed).owners == ("owner",)


def test_an_owner_that_inherits_it_meanwhile_is_asked_in_the_name_of_who_joined() -> None:
    for seed in range(100):
        world = World(seed)
        nodes = home(world)
        world.subscribe("home/kitchen/#")
        world.outcome(Subscribed)
        oven = world.node("oven", "home/kitchen/oven")
        named: list[int] = []

        def move(giver: Node = nodes["kitchen"], taker: Node = oven, named: list[int] = named) -> None:
            giver.take_over(taker)
            named.append(taker.subscriptions["home/kitchen/#"].listener)

        world.later(move, world.random.randint(0, 4_000))
        later = world.subscribe("home/kitchen/#")
        world.outcome(Subscribed)
        world.run(seconds=3)
        named += [body.listener for body in oven.told if isinstance(body, pb.Subscribe)]
        assert later in named, seed


def test_an_owner_that_gave_everything_away_is_dropped() -> None:
    world = World()
    nodes = home(world)
    world.subscribe("home/kitchen/oven/#")
    world.outcome(Subscribed)
    oven = world.node("oven", "home/kitchen/oven")
    nodes["kitchen"].take_over(oven)
    world.run(seconds=3)
    world.cut_off(nodes["kitchen"])
    before = nodes["kitchen"].asked.total()
    world.run(seconds=20)
    assert nodes["kitchen"].asked.total() == before
    assert holders(world, "home/kitchen/oven/#") == {"oven"}


def test_a_lost_session_is_made_again_with_the_same_node() -> None:
    world = World()
    nodes = home(world)
    world.subscribe("home/kitchen/#", qos=2)
    world.outcome(Subscribed)
    discoveries = nodes["root"].asked["Subscribe"]
    world.cut_off(nodes["kitchen"])
    assert world.run(lambda: nodes["kitchen"].subscriptions, seconds=1)
    assert nodes["kitchen"].subscriptions["home/kitchen/#"].qos == pb.QOS_EXACTLY_ONCE
    assert nodes["root"].asked["Subscribe"] == discoveries


def test_a_subtree_that_moved_while_its_owner_was_dead_is_found_again() -> None:
    world = World()
    nodes = home(world)
    world.subscribe("home/kitchen/#")
    world.outcome(Subscribed)
    nodes["kitchen"].alive = False
    world.root.children.remove(nodes["kitchen"])
    heir = world.node("heir", "home/kitchen", world.root)
    world.cut_off(nodes["kitchen"])
    assert world.run(lambda: heir.subscriptions, seconds=20)
    assert not [o for o in world.outcomes if isinstance(o, SubscriptionFailed)]


def test_whoever_lost_a_subtree_within_anothers_is_not_taken_for_the_one_that_passed_it_on() -> None:
    """§6.3: it names its own cut around the one that it lost, whose node had named it before."""
    world = World()
    outer = world.node("twice", "home", world.root)
    middle = world.node("middle", "home/hall", outer)
    inner = world.nodes[outer.address] = Node(world, "twice", "home/hall/lamp", outer.address)
    inner.besides.append(outer.subtree)
    middle.children.append(inner)
    world.subscribe("home/hall/lamp")
    assert world.outcome(Subscribed).owners == ("twice",)
    middle.children.remove(inner)
    world.nodes[outer.address] = outer
    world.cut_off(outer)
    assert world.run(lambda: middle.subscriptions, seconds=5)


def test_whoever_takes_a_subtree_back_is_asked_until_it_has() -> None:
    """§6.3: its owner lost it, says so, and stays responsible for something else; the parent is later."""
    world = World()
    parent = world.node("parent", "home", world.root)
    owner = world.node("owner", "home/hall", parent)
    world.subscribe("home/hall/#")
    assert world.outcome(Subscribed).owners == ("owner",)
    news = owner.suback(pb.Subscribe(filter="home/hall/#"), [])
    news.active = True
    news.held.clear()
    news.passed_to.append(cut_of(("home/hall", "parent", parent.address, owner.epoch + 1)))
    world.deliver(owner, news)
    world.later(partial(parent.children.remove, owner), 2 * SECOND)
    assert world.run(lambda: parent.subscriptions, seconds=8)


def test_who_has_lost_what_it_is_named_for_is_not_heard_for_it_whatever_else_it_owns() -> None:
    """§6.1: the root names it until the lease ends; only then does it name who is below (seed 3118)."""
    world = World()
    loser = world.node("loser", "home/hall/lamp", world.root)
    named = Node(world, "loser", "home", loser.address, alive=False)
    below = world.node("below", "home/kitchen")
    world.root.children.append(named)

    def take_back() -> None:
        world.root.children.remove(named)
        world.root.children.append(below)

    world.later(take_back, 4 * SECOND)
    world.subscribe("home/#", patience=20 * SECOND)
    world.run(seconds=3)
    assert not world.outcomes
    assert holders(world, "home/#") == {"loser"}, "what it has otherwise comes meanwhile"
    assert world.outcome(Subscribed).owners == ("below", "loser", "root")


def test_who_stays_active_without_what_it_was_named_for_is_found_out() -> None:
    """§6.3: the link was down when it lost that, so that its news did not come."""
    world = World()
    owner = world.node("owner", "home/hall", world.root)
    owner.besides.append("home/attic")
    also = Node(world, "owner", "home/attic", owner.address, alive=False)
    world.root.children.append(also)
    world.subscribe("home/+/x")
    assert world.outcome(Subscribed).owners == ("owner", "root")
    owner.besides.clear()
    heir = world.node("heir", "home/attic", world.root)
    world.root.children.remove(also)
    world.cut_off(owner)
    assert world.run(lambda: heir.subscriptions, seconds=10)


def test_who_hands_back_one_subtree_after_the_other_causes_no_discovery() -> None:
    world = World()
    parent = world.node("parent", "home", world.root)
    owner = world.node("owner", "home/hall", parent)
    owner.besides.append("home/attic")
    also = Node(world, "owner", "home/attic", owner.address, alive=False)
    parent.children.append(also)
    world.subscribe("home/+/x")
    assert world.outcome(Subscribed).owners == ("owner", "parent")
    discoveries = world.root.asked["Subscribe"]
    for part, rest in (owner, ["home/attic"]), (also, []):
        parent.children.remove(part)
        for node, held in (owner, rest), (parent, ["home", part.subtree]):
            news = node.suback(pb.Subscribe(filter="home/+/x"), [])
            news.held[:] = held
            news.active = bool(held)
            if node is owner:
                cut = part.subtree, "parent", parent.address, part.epoch + 1
                news.passed_to.append(cut_of(cut))
            world.deliver(node, news)
    world.run(seconds=10)
    assert world.root.asked["Subscribe"] == discoveries
    world.subscribe("home/+/x")
    assert world.outcome(Subscribed).owners == ("parent",)


def test_a_node_at_the_address_of_another_does_not_answer_for_it() -> None:
    world = World()
    gone = world.node("gone", "home", world.root)
    world.nodes[gone.address] = Node(world, "other", "garden", gone.address)
    gone.alive = False
    world.subscribe("home/#", patience=20 * SECOND)
    world.run(seconds=3)
    assert not world.outcomes
    world.root.children.remove(gone)
    assert world.outcome(Subscribed).owners == ("root",)


def test_clients_that_lose_one_owner_do_not_return_at_once() -> None:
    returns = []
    for seed in range(40):
        world = World(seed)
        nodes = home(world)
        world.subscribe("home/kitchen/#")
        world.outcome(Subscribed)
        world.run(seconds=1)
        lost_at = world.now
        world.cut_off(nodes["kitchen"])
        world.run(partial(getattr, nodes["kitchen"], "subscriptions"), seconds=5)
        returns.append(world.now - lost_at)
    assert max(returns) - min(returns) > SECOND // 20


def test_one_filter_twice_is_one_subscription_of_the_network() -> None:
    world = World()
    nodes = home(world)
    first = world.subscribe("home/kitchen/#", qos=0)
    second = world.subscribe("home/kitchen/#", qos=1)
    assert {world.outcome(Subscribed).subscription for _ in range(2)} == {first, second}
    assert nodes["kitchen"].subscriptions["home/kitchen/#"].qos == 1
    assert len(world.listening) == 2
    third = world.subscribe("home/kitchen/#", qos=2)
    assert world.outcome(Subscribed).subscription == third
    assert nodes["kitchen"].subscriptions["home/kitchen/#"].qos == 2
    for id, wanted in ((third, 1), (first, 1)):
        world.control.unsubscribe(world.now, id)
        assert world.outcome(Unsubscribed).subscription == id
        world.run(seconds=1)
        assert nodes["kitchen"].subscriptions["home/kitchen/#"].qos == wanted, "what those want that stay"
    world.control.unsubscribe(world.now, second)
    assert world.outcome(Unsubscribed).subscription == second
    assert holders(world, "home/kitchen/#") == set()
    assert world.listening == {}


def test_unsubscribe_ends_it_at_every_owner_and_leaves_nothing_behind() -> None:
    world = World()
    home(world)
    id = world.subscribe("#")
    world.outcome(Subscribed)
    world.control.unsubscribe(world.now, id)
    world.outcome(Unsubscribed)
    assert holders(world, "#") == set()
    assert world.control.poll_timeout() is None


def test_unsubscribe_does_not_wait_for_the_dead() -> None:
    world = World()
    nodes = home(world)
    id = world.subscribe("home/kitchen/#")
    world.outcome(Subscribed)
    nodes["kitchen"].alive = False
    started = world.now
    world.control.unsubscribe(world.now, id)
    world.outcome(Unsubscribed)
    assert world.now - started <= 2 * SECOND


def test_a_member_that_leaves_answers_for_nothing_until_every_owner_has_heard() -> None:
    world = World()
    nodes = home(world)
    id = world.control.subscribe(world.now, "home/+/lights", Options(1), group="g")
    world.outcome(Subscribed)
    nodes["kitchen"].is_mute = True
    world.control.unsubscribe(world.now, id)
    assert world.leaving[0] == (True, 1), "before the listener is gone"
    world.outcome(Unsubscribed)
    assert world.leaving[-1] == (True, 0), "the application waits no longer, but one has not answered"
    world.cut_off(nodes["kitchen"])
    assert world.leaving[-1] == (False, 0)


def test_an_end_that_is_not_of_a_group_withholds_nothing() -> None:
    world = World()
    home(world)
    id = world.subscribe("#")
    world.outcome(Subscribed)
    world.control.unsubscribe(world.now, id)
    world.outcome(Unsubscribed)
    assert world.leaving == []


def test_a_handover_that_crosses_an_unsubscribe_leaves_no_orphan() -> None:
    world = World()
    nodes = home(world)
    id = world.subscribe("home/kitchen/#")
    world.outcome(Subscribed)
    oven = world.node("oven", "home/kitchen/oven")
    nodes["kitchen"].take_over(oven)
    world.control.unsubscribe(world.now, id)
    world.outcome(Unsubscribed)
    world.run(seconds=5)
    assert holders(world, "home/kitchen/#") == set()


def test_a_node_whose_answer_did_not_come_before_all_began_anew_is_told_of_the_end() -> None:
    world = World()
    kitchen = home(world)["kitchen"]
    kitchen.is_mute = True
    world.subscribe("home/kitchen/#")
    assert world.run(lambda: any(isinstance(body, pb.Subscribe) for body in kitchen.told))
    world.root.alive = False
    world.outcome(SubscriptionFailed)
    world.run(seconds=1)
    assert isinstance(kitchen.told[-1], pb.Unsubscribe)


def test_a_refusal_is_told_with_its_reason() -> None:
    world = World()
    home(world)["kitchen"].reason = pb.REASON_NOT_AUTHORIZED
    world.subscribe("home/kitchen/#")
    failed = world.outcome(SubscriptionFailed)
    assert failed.answered
    assert failed.reason == pb.REASON_NOT_AUTHORIZED


def test_a_node_that_is_starting_is_waited_for() -> None:
    world = World()
    kitchen = home(world)["kitchen"]
    kitchen.reason = pb.REASON_NOT_SERVING
    world.subscribe("home/kitchen/#")
    world.run(seconds=2)
    kitchen.reason = 0
    assert world.outcome(Subscribed, seconds=8).owners == ("kitchen",)


def test_forged_answers_neither_complete_nor_divert_it() -> None:
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
    assert isinstance(world.outcome(SubscriptionFailed), SubscriptionFailed)


def test_malformed_news_in_a_session_are_dropped() -> None:
    world = World()
    nodes = home(world)
    world.subscribe("home/kitchen/#")
    world.outcome(Subscribed)
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
    assert holders(world, "home/kitchen/#") == {"kitchen"}


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
def test_complete_means_that_every_owner_has_it(
    seed: int, loss: float, duplication: float, late: float, nat: bool, filter: str, joins_after: int
) -> None:
    world = World(seed, Faults(loss, duplication, late), behind_nat=nat)
    nodes = home(world)
    joined: list[Node] = []

    def join() -> None:
        joined.append(world.node("porch", "home/outside/porch"))
        nodes["outside"].take_over(joined[0])

    world.later(join, joins_after)
    id = world.subscribe(filter, patience=300 * SECOND)
    world.outcome(Subscribed, seconds=310)
    owners = {node.name for node in nodes.values() if node.owns_match(filter)}
    missing = owners - holders(world, filter)
    assert not missing
    world.run(seconds=10)
    everyone = [*nodes.values(), *joined]
    assert holders(world, filter) >= {node.name for node in everyone if node.owns_match(filter)}
    world.control.unsubscribe(world.now, id)
    world.outcome(Unsubscribed)
    world.run(seconds=60)
    assert holders(world, filter) == set()
    assert world.control.poll_timeout() is None, "nothing is left behind"


def test_a_thousand_rounds_leave_no_state_behind() -> None:
    world = World(7, Faults(0.05, 0.1, 0.05))
    home(world)
    for n in range(1_000):
        id = world.subscribe(f"home/kitchen/{n}")
        world.outcome(Subscribed)
        world.control.unsubscribe(world.now, id)
        world.outcome(Unsubscribed)
    world.run(seconds=60)
    assert world.control.poll_timeout() is None
    assert len(world.control._subscriber._by_key) == len(world.control._subscriber._confirmations._sites) == 0
    assert len(world.control._subscriber._questions) == len(world.control._subscriber._by_link) == 0


@pytest.mark.parametrize("machine", [site, subscription])
def test_every_state_can_be_reached_and_every_event_happens(machine: object) -> None:
    table = machine.TRANSITIONS  # type: ignore[attr-defined]
    assert {event for _, event in table} == set(machine.Event)  # type: ignore[attr-defined]
    mentioned = {state for state, _ in table} | set(table.values())
    assert mentioned == set(machine.State)  # type: ignore[attr-defined]


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
    world.outcome(SubscriptionFailed)
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == sorted(gaps)
    assert len(gaps) in (4, 5)
