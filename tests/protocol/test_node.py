"""Which packets a node accepts, drops and answers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, Limits
from hbroker.protocol.events import PolicyLowered
from hbroker.protocol.hierarchy.child.claim_states import CLAIM_TRANSITIONS, ClaimEvent, ClaimState
from hbroker.protocol.hierarchy.parent.delegation import DELEGATION, DelegationState
from hbroker.protocol.packets import Body, Reason, address_of, pack
from hbroker.protocol.requester import MOST_HOPS
from hbroker.protocol.state_machine import ImpossibleTransition, StateMachine
from tests.protocol.world import ROOT, World

VICTIM = ("10.9.9.9", 9)


def three_level_network() -> World:
    world = World()
    world.start_root()
    world.start_node("home", "home")
    world.advance(0.5)
    world.start_node("kitchen", "home/kitchen")
    world.advance(0.5)
    return world


def drops(world: World, name: str) -> dict[str, int]:
    found = world.nodes[name].node.status(world.network.now)["drops"]
    assert isinstance(found, dict)
    return found


def test_the_origin_in_a_clients_request_is_ignored() -> None:
    world = three_level_network()
    victim = world.client("victim")
    forged = pb.Origin(address=address_of(victim.core.address), hops=1)
    asked = pb.PubConnect(topic="home/kitchen/x", origin=forged)
    assert len(world.ask("mallory", asked)) == 1
    told = pb.Subscribe(filter="home/#", origin=forged)
    assert world.tell("mallory", ROOT, told)
    assert not victim.heard


def test_a_request_from_a_parent_is_served_only_within_the_subtrees_that_it_granted() -> None:
    world = three_level_network()
    home = world.nodes["home"]
    (parent,) = {g.link for g in home.node.jurisdiction.grants}
    origin = pb.Origin(address=address_of(world.client("alice").core.address), hops=1)
    packet = pack(pb.PubConnect(request=1, topic="garden/gate", origin=origin))
    home.node.handle_event(world.network.now, ControlEvent(parent, ROOT, packet, False))
    world.advance(1)
    (answer,) = world.client("alice").answers(1)
    assert isinstance(answer, pb.PubAccept)
    assert answer.reason == Reason.REASON_NOT_SERVING


@pytest.mark.parametrize(
    "body",
    [
        pb.PubConnect(topic="home/kitchen/x"),
        pb.Subscribe(filter="#"),
        pb.Join(node="x", subtree="home/kitchen/x"),
    ],
    ids=["pubconnect", "subscribe", "join"],
)
def test_a_request_with_the_maximum_hops_is_not_forwarded(
    body: pb.PubConnect | pb.Subscribe | pb.Join,
) -> None:
    world = three_level_network()
    home = world.nodes["home"]
    parent = home.node.jurisdiction.grants[0].link
    origin = pb.Origin(address=address_of(VICTIM), hops=MOST_HOPS)
    body.origin.CopyFrom(origin)
    if isinstance(body, pb.Join):
        body.address.CopyFrom(address_of(VICTIM))
    home.node.handle_event(world.network.now, ControlEvent(parent, ROOT, pack(body), False))
    assert drops(world, "home") == {"too_many_hops": 1}


bodies = st.one_of(
    st.builds(
        pb.JoinAck, request=st.integers(0, 3), subtree=st.sampled_from(["", "home"]), epoch=st.integers(0, 9)
    ),
    st.builds(
        pb.Transfer,
        subtree=st.sampled_from(["", "home", "home/kitchen", "x"]),
        epoch=st.integers(0, 2**64 - 1),
        phase=st.sampled_from([0, 1, 2, 3]),
        last=st.booleans(),
    ),
    st.builds(pb.Leave, subtree=st.sampled_from(["", "home", "home/kitchen"]), epoch=st.integers(0, 9)),
    st.builds(pb.SubAck, filter=st.text(max_size=5)),
    st.builds(
        pb.Join, node=st.text(max_size=3), subtree=st.text(max_size=5), epoch=st.integers(0, 2**64 - 1)
    ),
    st.builds(pb.Subscribe, filter=st.text(max_size=5), qos=st.sampled_from([0, 1, 2])),
    st.builds(pb.PubConnect, topic=st.text(max_size=5)),
    st.builds(pb.Unsubscribe, filter=st.text(max_size=5)),
    st.builds(pb.Challenge, token=st.binary(max_size=5)),
)


@settings(max_examples=200, deadline=None)
@given(packets=st.lists(st.tuples(st.one_of(bodies.map(pack), st.binary(max_size=20)), st.integers(0, 12))))
def test_no_packet_of_a_stranger_raises_or_moves_a_subtree(packets: list[tuple[bytes, int]]) -> None:
    world = three_level_network()
    before = [(r.core.grants.copy(), r.core.cuts.copy()) for r in world.nodes.values()]
    home = world.nodes["home"]
    for packet, link in packets:
        stranger = ControlEvent(link + 1_000 if link else None, VICTIM, packet, True)
        home.node.handle_event(world.network.now, stranger)
    world.advance(1)
    assert before == [(r.core.grants, r.core.cuts) for r in world.nodes.values()]


def test_a_subscription_to_the_status_brings_a_fresh_status() -> None:
    world = three_level_network()
    world.subscribe("alice", "home/kitchen/#")
    world.subscribe("bob", "$SYS/nodes/kitchen/#")
    kitchen = world.nodes["kitchen"].core
    status = json.loads(pb.Publish.FromString(kitchen.messages["$SYS/nodes/kitchen/status"]).payload)
    assert (status["name"], status["parent"], status["subscriptions"]) == ("kitchen", "home", 1)
    world.subscribe("alice", "home/kitchen/x/#")
    world.advance(10.1)
    status = json.loads(pb.Publish.FromString(kitchen.messages["$SYS/nodes/kitchen/status"]).payload)
    assert status["subscriptions"] == 3


def test_retained_messages_are_sent_as_the_retain_handling_says() -> None:
    world = three_level_network()
    home = world.nodes["home"]
    for value, sent in (("SEND", 1), ("SEND_IF_NEW", 1), ("DO_NOT_SEND", 1), ("SEND", 2)):
        request = pb.Subscribe(filter="home/x", retain_handling=f"RETAIN_HANDLING_{value}")
        world.tell("alice", home.settings.listen, request)
        assert len(home.core.retained_sent) == sent, value


def test_a_child_of_a_parent_under_fence_is_under_fence_too() -> None:
    world = three_level_network()
    world.start_node("oven", "home/kitchen/oven", LeasePolicy.SERVE)
    world.advance(2)
    assert world.owners("home/kitchen/oven") == ["oven"]
    assert PolicyLowered("home/kitchen/oven", "kitchen") in world.events("oven")
    world.network.part(world.nodes["kitchen"].settings.listen, world.nodes["oven"].settings.listen)
    world.advance(20)
    assert world.owners("home/kitchen/oven") == ["kitchen"]


def test_a_lease_never_ends_after_the_parents_own() -> None:
    world = three_level_network()
    world.advance(47.3)
    (own,) = [g for g in world.nodes["home"].node.jurisdiction.grants if g.subtree == "home"]
    (cut,) = world.nodes["home"].node.jurisdiction.delegations
    assert own.until is not None
    assert cut.until <= own.until


def test_a_node_delegates_no_more_than_its_limit_and_keeps_its_children() -> None:
    world = World()
    world.start_root(limits=Limits(delegations=3))
    world.start_node("home", "home")
    world.advance(0.5)
    for subtree in ("garden", "garden/shed", "street", "town"):
        claim = pb.Join(node="mallory", subtree=subtree, address=address_of(VICTIM))
        world.tell("mallory", ROOT, claim)
    last = pb.Join(node="mallory", subtree="sea", address=address_of(VICTIM))
    (answer,) = world.tell("mallory", ROOT, last)
    assert isinstance(answer, pb.JoinAck)
    assert answer.reason == Reason.REASON_QUOTA_EXCEEDED
    world.restart("home")
    world.advance(20)
    assert world.owners("home/x") == ["home"]


def test_nobody_serves_a_subtree_until_the_handover_commits() -> None:
    world = World()
    world.start_root()
    world.advance(0.1)
    seen: set[tuple[str, ...]] = set()
    world.network.on_step = lambda: seen.add(tuple(world.owners("a")))
    world.start_node("a", "a")
    world.advance(1)
    assert seen == {("root",), (), ("a",)}


def test_a_subscription_that_was_answered_active_moves_with_a_handover_whenever_it_was_made() -> None:
    refused = 0
    for step in range(60):
        world = three_level_network()
        kitchen = world.nodes["kitchen"].settings.listen
        world.tell("alice", kitchen, pb.Subscribe(filter="home/kitchen/other"))
        world.leave("kitchen")
        world.advance(step * 0.002)
        (answer,) = world.tell("alice", kitchen, pb.Subscribe(filter="home/kitchen/#"))
        assert isinstance(answer, pb.SubAck)
        assert world.owners("home/kitchen/x") == ["home"]
        assert not answer.active or "home" in world.storing("home/kitchen/#"), step
        refused += answer.reason == Reason.REASON_HANDOVER
    assert refused


def test_every_state_but_the_last_has_a_transition() -> None:
    left: set[object] = {state for state, _ in (*CLAIM_TRANSITIONS, *DELEGATION)}
    assert set(ClaimState) - left == {ClaimState.STOPPED}
    assert set(DelegationState) - left == {DelegationState.GONE}


def test_an_impossible_transition_raises() -> None:
    state_machine = StateMachine(CLAIM_TRANSITIONS, ClaimState.STOPPED)
    assert not state_machine.accepts(ClaimEvent.GRANTED)
    with pytest.raises(ImpossibleTransition):
        state_machine.handle(ClaimEvent.GRANTED)


def test_the_owner_answers_a_look_up_directly() -> None:
    world = three_level_network()
    answers: list[Body] = world.ask("alice", pb.PubConnect(topic="home/kitchen/oven"))
    (answer,) = answers
    assert isinstance(answer, pb.PubAccept)
    assert (answer.node, answer.hops) == ("kitchen", 2)
    assert answer.token
