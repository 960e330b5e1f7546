"""Resolution (docs/protocol.md §§4.1, 5.2, 5.3) among scripted nodes: clients find the owner, with few
requests, and only by true answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import address_of, body_of, pack
from hbroker.protocol.results import Resolved, ResolveFailed
from tests.protocol.client_world import SECOND, Node, World, home
from tests.protocol.fake_network import Faults

CAM = "home/outside/securitycams/front"


def test_an_owner_three_levels_down_is_found() -> None:
    world = World()
    cams = home(world)["cams"]
    lookup_id = world.resolve(CAM)
    done = world.result(Resolved)
    assert (done.lookup_id, done.resolution.owner, done.resolution.address) == (
        lookup_id,
        "cams",
        cams.address,
    )
    assert done.resolution.scope == "home/outside/securitycams"
    assert world.zone(CAM) == (cams.address, True)


def test_requests_are_padded_and_carry_no_origin() -> None:
    world = World()
    home(world)
    world.resolve(CAM)
    world.result(Resolved)
    assert {pad for _, _, pad in world.sent} == {512}
    assert not any(body_of(packet).HasField("origin") for _, packet, _ in world.sent)


def test_a_trace_names_every_hop_in_order() -> None:
    world = World()
    home(world)
    world.resolve(CAM, trace=True)
    trace = world.result(Resolved).resolution.trace
    assert [(hop.node, hop.packet) for hop in trace] == [
        ("root", "REFERRAL"),
        ("outside", "REFERRAL"),
        ("cams", "PUBACCEPT"),
    ]
    assert all(hop.time_ms > 0 for hop in trace)


def test_behind_a_nat_the_first_look_up_uses_referral_and_the_next_one_does_so_at_once() -> None:
    world = World(behind_nat=True)
    nodes = home(world)
    world.resolve(CAM)
    assert world.result(Resolved).resolution.owner == "cams"
    started = world.now
    world.resolve("home/kitchen/oven")
    assert world.result(Resolved).resolution.owner == "kitchen"
    assert world.now - started < SECOND // 5, "the second look-up must not wait for recursive tries"
    assert nodes["kitchen"].asked["PubConnect"] >= 1


def test_a_look_up_below_a_known_cut_begins_at_the_node_of_the_cut() -> None:
    world = World()
    nodes = home(world)
    world.control.start(world.now)
    world.result(Resolved)
    before = nodes["root"].asked["PubConnect"]
    world.publish_waits_for("home/kitchen/oven/temperature")
    assert world.run(lambda: not world.waiting)
    assert nodes["root"].asked["PubConnect"] == before
    assert nodes["kitchen"].asked["PubConnect"] == 2  # one was challenged, and then answered


def _thousand() -> list[str]:
    rooms = ("home/kitchen", "home/livingroom", "home/bedroom", "home/outside", "home/outside/securitycams")
    return [f"{rooms[n % 5]}/{n}" for n in range(1_000)]


@pytest.mark.parametrize("primed", [True, False])
def test_look_ups_of_a_thousand_topics_in_five_zones_send_the_root_at_most_five_requests(
    primed: bool,
) -> None:
    world = World()
    nodes = home(world)
    if primed:
        world.control.start(world.now)
        world.result(Resolved)
    before = nodes["root"].asked["PubConnect"]
    for topic in _thousand():
        world.publish_waits_for(topic)
    assert world.run(lambda: not world.waiting)
    assert not world.rejected
    assert nodes["root"].asked["PubConnect"] - before <= (0 if primed else 6)  # one more: the challenge
    assert sum(node.asked["PubConnect"] for node in nodes.values()) < 25


def test_a_dead_owner_does_not_delay_other_topics() -> None:
    world = World()
    nodes = home(world)
    nodes["kitchen"].alive = False
    for topic in ["home/kitchen/a", "home/kitchen/b", "home/bedroom/a", "home/livingroom/a"]:
        world.publish_waits_for(topic)
    assert world.run(lambda: world.waiting == {"home/kitchen/a", "home/kitchen/b"}, seconds=3)
    assert world.run(lambda: not world.waiting, seconds=30)
    assert world.rejected == dict.fromkeys(["home/kitchen/a", "home/kitchen/b"], pb.REASON_OWNER_UNREACHABLE)


def test_a_look_up_that_waits_finds_the_owner_when_its_node_is_back() -> None:
    world = World()
    nodes = home(world)
    nodes["outside"].alive = False
    world.publish_waits_for(CAM)
    world.run(seconds=3)
    nodes["outside"].alive = True
    assert world.run(lambda: not world.waiting, seconds=7)
    assert not world.rejected


def test_an_owner_that_the_root_has_named_is_found_while_the_root_is_dead() -> None:
    world = World()
    nodes = home(world)
    nodes["kitchen"].alive = False
    world.publish_waits_for("home/kitchen/oven")
    world.run(seconds=2)
    nodes["root"].alive, nodes["kitchen"].alive = False, True
    assert world.run(lambda: not world.waiting, seconds=5)
    assert not world.rejected


def test_an_owner_without_a_session_to_the_root_is_found() -> None:
    """As after a restart of the root: the owner serves on, and the root knows it from its file."""
    world = World()
    home(world)
    world.root.is_alone = True
    world.publish_waits_for("home/kitchen/oven")
    assert world.run(lambda: not world.waiting, seconds=1)
    assert not world.rejected


def test_a_node_that_is_named_as_the_owner_before_it_serves_is_asked_with_pauses() -> None:
    """The root names the node, because it was the owner before its restart. The node answers that it is
    not responsible yet."""
    world = World()
    nodes = home(world)
    nodes["kitchen"].reason = pb.REASON_NOT_RESPONSIBLE
    world.control.start(world.now)
    world.result(Resolved)
    world.publish_waits_for("home/kitchen/oven")
    world.run(seconds=8)
    assert nodes["kitchen"].asked["PubConnect"] < 24
    nodes["kitchen"].reason = 0
    assert world.run(lambda: not world.waiting, seconds=1.25), "no pause is longer, with its jitter"
    assert not world.rejected


def test_an_owner_that_answers_slower_than_every_pause_between_tries_is_found() -> None:
    """Its answers arrive for tries that the client gave up long before."""
    world = World()
    nodes = home(world)
    nodes["root"].service_time = 4 * SECOND
    world.publish_waits_for("home/kitchen/oven")
    assert world.run(lambda: not world.waiting, seconds=10)
    assert not world.rejected
    assert world.zone("home/kitchen/oven") == (nodes["kitchen"].address, True)


def test_an_owner_behind_slow_nodes_is_found_by_referral() -> None:
    world = World(behind_nat=True)
    nodes = home(world)
    for name in ("root", "outside", "cams"):
        nodes[name].service_time = 2 * SECOND
    world.control.resolve(world.now, CAM, timeout=300 * SECOND)
    assert world.result(Resolved, seconds=300).resolution.owner == "cams"


def test_a_failure_is_cached_for_its_ttl() -> None:
    world = World()
    nodes = home(world)
    nodes["kitchen"].reason = pb.REASON_NOT_AUTHORIZED
    world.publish_waits_for("home/kitchen/x")
    assert world.run(lambda: "home/kitchen/x" in world.rejected)
    asked = len(world.sent)
    world.publish_waits_for("home/kitchen/x")
    assert len(world.sent) == asked
    assert world.rejected["home/kitchen/x"] == pb.REASON_NOT_AUTHORIZED
    nodes["kitchen"].reason = 0
    world.now += 2 * SECOND
    world.publish_waits_for("home/kitchen/x")
    assert world.run(lambda: not world.waiting)
    assert len(world.sent) > asked


def test_a_stale_cut_sends_the_look_up_back_to_the_root() -> None:
    world = World()
    nodes = home(world)
    world.control.start(world.now)
    world.result(Resolved)
    nodes["kitchen"].subtree = "elsewhere"
    world.root.children.remove(nodes["kitchen"])
    world.publish_waits_for("home/kitchen/oven")
    assert world.run(lambda: not world.waiting, seconds=2)
    assert world.zone("home/kitchen/oven") == (world.root.address, True)


def test_a_look_up_without_any_answer_fails_and_names_the_nodes_that_were_asked() -> None:
    world = World()
    world.root.alive = False
    started = world.now
    world.resolve("a/b")
    failed = world.result(ResolveFailed)
    assert not failed.answered
    assert failed.tried == ("10.0.0.1:7000",)
    assert world.now - started == 10 * SECOND


def test_unrequested_answers_change_nothing() -> None:
    world = World()
    home(world)
    world.root.alive = False
    world.resolve(CAM)
    world.publish_waits_for("home/kitchen/oven")
    forger = ("6.6.6.6", 666)
    for request in (0, 1, 2**64 - 1):
        zone = pb.Zone(scope="home", subtree="home")
        accept = pb.PubAccept(request=request, node="forger", address=address_of(forger), zone=zone, ttl_s=60)
        referral = pb.Referral(request=request, node="forger", zone=zone)
        referral.next.CopyFrom(pb.Cut(subtree="home", node="forger", address=address_of(forger)))
        for body in (
            accept,
            referral,
            pb.Challenge(token=b"x" * 21, lifetime_s=1),
            pb.SubAck(request=request),
        ):
            world.event(ControlEvent(None, forger, pack(body), False))
    assert not world.zones
    assert all(address != forger for address, _, _ in world.sent)


def test_the_challenges_that_one_look_up_answers_are_bounded() -> None:
    world = World()
    world.root.alive = False
    world.resolve("a/b")
    for n in range(1_000):
        challenge = pack(pb.Challenge(token=n.to_bytes(4), lifetime_s=9))
        world.event(ControlEvent(None, world.root.address, challenge, False))
    assert len(world.sent) == 4


@pytest.mark.parametrize("duplication", [0, 1])
def test_a_loop_of_referrals_ends(duplication: float) -> None:
    """With duplication, a referral also arrives at a look-up that pauses because of the one before."""
    world = World(faults=Faults(duplication=duplication))
    a = world.node("a", "home", world.root)
    b = world.node("b", "home/kitchen", a)
    b.children.append(Node(world, "a", "home", a.address))
    b.below = lambda topic: b.children[0]  # type: ignore[method-assign]
    world.resolve("home/kitchen/oven", trace=True)
    assert not world.result(ResolveFailed).answered
    assert len(world.sent) < 100 * (1 + duplication)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    loss=st.floats(0, 0.25),
    duplication=st.floats(0, 0.5),
    late=st.floats(0, 0.3),
    nat=st.booleans(),
)
def test_the_owner_is_found_despite_loss_duplication_and_delay(
    seed: int, loss: float, duplication: float, late: float, nat: bool
) -> None:
    world = World(seed, Faults(loss, duplication, late), behind_nat=nat)
    nodes = home(world)
    lookup_id = world.control.resolve(world.now, CAM, timeout=120 * SECOND)
    done = world.result(Resolved, seconds=130)
    assert (done.lookup_id, done.resolution.address) == (lookup_id, nodes["cams"].address)
    world.run(seconds=200)
    assert world.control.poll_timeout() is None, "nothing is left behind"
