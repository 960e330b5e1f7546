"""The client's control as a whole (docs/protocol.md §§2.3, 5.2, 6): nothing from the network raises."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._native import ControlEvent, PublishedEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import body_of, pack
from hbroker.protocol.resolution.resolver import TRANSITIONS, Event, State
from hbroker.protocol.results import Published, Resolved, Subscribed
from tests.protocol.client_world import World, home


def test_start_resolves_the_root_and_caches_its_cuts() -> None:
    world = World()
    kitchen = home(world)["kitchen"]
    lookup_id = world.control.start(world.now)
    assert world.result(Resolved).lookup_id == lookup_id
    assert world.zone("home/kitchen/oven") == (kitchen.address, False)
    assert world.zone("garden") == (world.root.address, True)


def test_published_results_keep_their_order() -> None:
    world = World()
    for sequence, count in [(0, 1), (1, 3), (4, 1)]:
        world.event(PublishedEvent(sequence, "a", 0, count))
    assert world.results == [Published(sequence, "a", 0) for sequence in range(5)]


def test_leave_ends_every_session() -> None:
    world = World()
    nodes = home(world)
    world.subscribe("#")
    world.result(Subscribed)
    world.control.leave()
    world.run(seconds=1)
    assert not any(node.subscriptions for node in nodes.values())


def test_every_event_and_state_of_a_lookup_is_in_its_table() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)
    assert {state for state, _ in TRANSITIONS} | set(TRANSITIONS.values()) == set(State)


_addresses = st.sampled_from([b"", b"\x0a\0\0\1", b"\xff" * 16, b"123"])
_topics = st.sampled_from(["", "home", "home/kitchen", "$SYS", "a/b", "home/kitchen/#"])
_nodes = st.sampled_from(["", "root", "kitchen", "cams", "forger"])
_reasons = st.integers(-1, 40)


@st.composite
def _cuts(draw: st.DrawFn) -> pb.Cut:
    address = pb.Address(ip=draw(_addresses), port=draw(st.sampled_from([0, 7000, 7001, 7003, 70_000])))
    return pb.Cut(subtree=draw(_topics), node=draw(_nodes), address=address, epoch=draw(st.integers(0, 3)))


@st.composite
def _bodies(draw: st.DrawFn, request: int) -> bytes:
    cuts = draw(st.lists(_cuts(), max_size=3))
    zone = pb.Zone(subtree=draw(_topics), scope=draw(_topics), cuts=cuts)
    reason = draw(_reasons)
    kind = draw(st.sampled_from(["accept", "referral", "suback", "challenge", "noise"]))
    if kind == "accept":
        body: pb.PubAccept | pb.Referral | pb.SubAck = pb.PubAccept(
            request=request, node=draw(_nodes), zone=zone, ttl_s=draw(st.integers(0, 2**32 - 1))
        )
    elif kind == "referral":
        body = pb.Referral(request=request, node=draw(_nodes), zone=zone, next=draw(_cuts()))
    elif kind == "suback":
        body = pb.SubAck(request=request, node=draw(_nodes), filter=draw(_topics), passed_to=cuts)
        body.responsible, body.active = draw(st.booleans()), draw(st.booleans())
        body.part, body.parts = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    elif kind == "challenge":
        return pack(
            pb.Challenge(token=draw(st.binary(max_size=80)), lifetime_s=draw(st.integers(0, 2**32 - 1)))
        )
    else:
        return draw(st.binary(max_size=40))
    if not isinstance(body, pb.Referral):
        body.MergeFromString(bytes((16, reason % 128)))  # field 2, also with a reason that no version has
    return pack(body)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_no_packet_raises_whatever_it_contains_and_whenever_it_arrives(
    seed: int, data: st.DataObject
) -> None:
    world = World(seed)
    nodes = home(world)
    links: list[int | None] = [None]
    world.subscribe("home/kitchen/#")
    world.resolve("home/outside/x", trace=True)
    world.publish_waits_for("home/bedroom/y")
    for _ in range(data.draw(st.integers(1, 15))):
        steps = data.draw(st.integers(0, 6))
        world.run(is_past(world, world.now + steps * 700), seconds=1)
        links = [None, *world.links.values()]
        asked = [getattr(body_of(packet), "request", 0) for _, packet, _ in world.sent]
        confirmations = list(world.control._subscriptions.owners._subscribe_requests._owners)
        request = data.draw(st.sampled_from([0, 1, *asked, *confirmations]))
        source = data.draw(st.sampled_from([*nodes.values()])).address
        packet = data.draw(_bodies(request))
        world.event(ControlEvent(data.draw(st.sampled_from(links)), source, packet, False))
    world.run(seconds=30)
    due = world.control.poll_timeout()
    assert due is None or due > world.now - 1


def is_past(world: World, at: int) -> Callable[[], bool]:
    """Whether the time `at` is over."""
    return lambda: world.now > at
