"""The knowledge about nodes that clients behind one address share (docs/protocol.md §6.1,
`hbroker.protocol.resolution.caches`). It saves requests. However wrong it is, a subscription is
complete only when every owner has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Address, cut_of
from hbroker.protocol.resolution.caches import OwnerCache, ResolverCaches
from hbroker.protocol.results import Subscribed, WillSet
from hbroker.protocol.timers import ZONE_TTL
from hbroker.protocol.wills.client_will import Will
from tests.protocol.client_world import SECOND, World, home, subscribed_nodes
from tests.protocol.fake_network import Faults

A: Address = ("10.0.0.1", 1)
B: Address = ("10.0.0.1", 2)
NOBODY: Address = ("10.0.0.1", 3)


def cache_with(*known: tuple[str, str, Address]) -> OwnerCache:
    owner_cache = OwnerCache()
    for subtree, node, address in known:
        owner_cache.learn(0, node, address, [subtree], [], is_root=True)
    return owner_cache


@pytest.mark.parametrize(
    ("filter", "node"),
    [
        ("a", "a"),
        ("a/b", "b"),
        ("a/b/c/d", "b"),
        ("a/b/+", "b"),
        ("a/b/c/#", "b"),
        ("a/c/#", "a"),
        ("a/+/x", None),
        ("a/#", None),
        ("#", None),
        ("ab", None),
        ("b", None),
        ("", None),
    ],
)
def test_the_sole_holder_of_a_filter_is_known_only_within_its_subtree(filter: str, node: str | None) -> None:
    found = cache_with(("a", "a", A), ("a/b", "b", B)).sole_owner(1, filter)
    assert (None if found is None else found.node) == node


def test_the_holder_of_the_root_is_not_taken_for_the_holder_of_sys_topics() -> None:
    owner_cache = cache_with(("", "root", A))
    assert owner_cache.sole_owner(1, "x") is not None
    assert owner_cache.sole_owner(1, "$SYS/other/uptime") is None


def test_an_entry_expires_and_a_newer_one_replaces_it() -> None:
    owner_cache = cache_with(("a", "a", A))
    assert owner_cache.sole_owner(ZONE_TTL, "a/x") is None
    assert len(owner_cache) == 0
    owner_cache.learn(0, "a", A, ["a"], [cut_of(("a/b", "b", B, 3))], is_root=True)
    assert owner_cache.sole_owner(1, "a/#") is None, "another node has a part"
    owner_cache.learn(1, "a", A, [], [cut_of(("a/b", "c", A, 4))])
    found = owner_cache.sole_owner(2, "a/b/x")
    assert found is not None
    assert found.node == "c"
    owner_cache.forget(A)
    assert (len(owner_cache), owner_cache.sole_owner(3, "a/x")) == (0, None)
    owner_cache.learn(4, "a", B, ["a"], [], is_root=True)
    assert owner_cache.sole_owner(5, "a/#") is not None, "and nothing is left of what was below"


def test_a_node_is_believed_only_for_the_subtree_for_which_it_was_named() -> None:
    owner_cache = cache_with(("", "root", NOBODY), ("a", "a", A), ("b", "b", B))
    owner_cache.learn(1, "b", B, ["b", "a", ""], [cut_of(("a", "b", B, 9)), cut_of(("a/x", "b", B, 9))])
    for filter, address in (("a/x/y", A), ("b/y", B), ("c", NOBODY)):
        found = owner_cache.sole_owner(2, filter)
        assert found is not None
        assert found.address == address
    owner_cache.learn(3, "b", B, [], [cut_of(("b/c", "a", A, 1)), cut_of(("b", "root", NOBODY, 2))])
    for filter, address in (("b/c/y", A), ("b/y", NOBODY)):
        found = owner_cache.sole_owner(4, filter)
        assert found is not None
        assert found.address == address


def test_the_cache_is_bounded_and_a_cache_without_room_learns_nothing() -> None:
    owner_cache = OwnerCache(10)
    for n in range(100):
        owner_cache.learn(0, "a", A if n % 3 else B, [f"a/{n}"], [], is_root=True)
    assert len(owner_cache) == 10
    assert owner_cache.sole_owner(1, "a/99") is not None
    owner_cache.forget(A)
    owner_cache.forget(B)
    assert not owner_cache._holders
    assert not owner_cache._at
    assert not owner_cache._below
    none = OwnerCache(0)
    none.learn(0, "a", A, ["a"], [], is_root=True)
    assert none.sole_owner(1, "a") is None


def test_a_client_subscribes_at_the_known_owner_without_a_discovery() -> None:
    caches = ResolverCaches(owner_cache=OwnerCache())
    world = World(caches=caches)
    nodes = home(world)
    world.subscribe("home/kitchen/lamp")
    world.result(Subscribed)
    asked = sum(node.asked.total() for node in world.nodes.values())
    assert asked
    world.subscribe("home/kitchen/oven/+")
    done = world.result(Subscribed)
    assert done.owners == ("kitchen",)
    assert "home/kitchen/oven/+" in nodes["kitchen"].subscriptions
    assert sum(node.asked.total() for node in world.nodes.values()) == asked


def test_a_known_owner_that_is_dead_costs_some_seconds_once() -> None:
    caches = ResolverCaches(owner_cache=cache_with(("home/kitchen", "kitchen", NOBODY)))
    world = World(caches=caches)
    nodes = home(world)
    world.subscribe("home/kitchen/lamp")
    world.result(Subscribed, seconds=5)
    assert "home/kitchen/lamp" in nodes["kitchen"].subscriptions
    before = world.now
    world.subscribe("home/kitchen/oven")
    world.result(Subscribed)
    assert world.now - before < SECOND // 10


SUBTREES = [
    "",
    "home",
    "home/kitchen",
    "home/outside",
    "home/outside/securitycams",
    "home/bedroom",
    "elsewhere",
]
NODES = ["root", "kitchen", "livingroom", "bedroom", "outside", "cams", "nobody"]


@given(
    seed=st.integers(0, 2**32),
    loss=st.floats(0, 0.3),
    late=st.floats(0, 0.3),
    filter=st.sampled_from(
        ["home/#", "home/+/lights", "home/kitchen/#", "home/outside/#", "home/outside/securitycams/x", "x"]
    ),
    hints=st.lists(st.tuples(st.sampled_from(SUBTREES), st.sampled_from(NODES)), max_size=4),
)
def test_a_complete_subscription_is_at_every_owner_whatever_the_cache_says(
    seed: int, loss: float, late: float, filter: str, hints: list[tuple[str, str]]
) -> None:
    caches = ResolverCaches(owner_cache=OwnerCache())
    world = World(seed, Faults(loss, 0.1, late), caches=caches)
    nodes = home(world)
    for subtree, name in hints:
        address = nodes[name].address if name in nodes else NOBODY
        caches.owner_cache.learn(world.now, name, address, [subtree], [], is_root=True)
    world.subscribe(filter, timeout=300 * SECOND)
    world.result(Subscribed, seconds=310)
    owners = {node.name for node in world.nodes.values() if node.owns_match(filter)}
    assert subscribed_nodes(world, filter) >= owners


def test_a_will_goes_to_the_owner_even_if_the_cache_names_another_node() -> None:
    caches = ResolverCaches(owner_cache=OwnerCache())
    world = World(caches=caches)
    nodes = home(world)
    caches.owner_cache.learn(
        world.now, "bedroom", nodes["bedroom"].address, ["home/kitchen"], [], is_root=True
    )
    nodes["bedroom"].will_reason = pb.REASON_NOT_RESPONSIBLE
    world.control.set_will(world.now, Will(pb.Publish(topic="home/kitchen/state", payload=b"gone")))
    assert world.result(WillSet).owner == "kitchen"
    assert any(isinstance(told, pb.Will) for told in nodes["kitchen"].told)
    world.subscribe("home/kitchen/lamp")
    world.result(Subscribed)
    asked = sum(node.asked.total() for node in world.nodes.values())
    other = World(caches=caches)
    home(other)
    other.control.set_will(other.now, Will(pb.Publish(topic="home/kitchen/other", payload=b"gone")))
    assert other.result(WillSet).owner == "kitchen"
    assert sum(node.asked.total() for node in other.nodes.values()) == 0 < asked
