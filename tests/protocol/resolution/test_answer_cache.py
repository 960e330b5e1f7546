"""The cache of owners' answers that several clients share (docs/protocol.md §5.2, ADR 18): they ask less,
and a wrong answer misleads none of them for long."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._native import UnresolvedEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Address, cut_of
from hbroker.protocol.resolution.caches import FRESH, AnswerCache, ResolverCaches, ZoneAnswer
from tests.protocol.client_world import SECOND, Node, World, home

A: Address = ("10.0.0.7", 1)
B: Address = ("10.0.0.7", 2)
NOBODY: Address = ("10.0.0.9", 9)


def answer(scope: str, owner: Address = A, cuts: dict[str, Address] | None = None) -> ZoneAnswer:
    told = [cut_of((subtree, "x", address, 1)) for subtree, address in (cuts or {}).items()]
    return ZoneAnswer(pb.Zone(subtree=scope, scope=scope, cuts=told), owner, b"token", 300 * SECOND)


def questions(nodes: dict[str, Node]) -> int:
    return sum(node.asked["PubConnect"] for node in nodes.values())


def sibling(caches: ResolverCaches, now: int = 1) -> tuple[World, dict[str, Node]]:
    """A client that shares this knowledge, in a network of the same nodes."""
    world = World(caches=caches)
    world.now = now
    return world, {**home(world), "root": world.root}


# The cache


def test_the_answer_with_the_longest_scope_counts_unless_it_names_a_cut_around_the_topic() -> None:
    answer_cache = AnswerCache()
    answer_cache.put(0, outer := answer("", A, {"home/kitchen": B}))
    answer_cache.put(0, inner := answer("home/garden", B, {"home/garden/shed": A}))
    assert answer_cache.find(1, "home") is outer
    assert answer_cache.find(1, "home/kitchen/oven") is None
    assert answer_cache.find(1, "home/garden/gate") is inner
    assert answer_cache.find(1, "home/garden/shed/door") is None, "whatever the one around says"
    answer_cache.discard(outer)
    answer_cache.discard(outer)
    assert answer_cache.find(1, "home") is None
    answer_cache.put(2, newer := answer("home/garden"))
    answer_cache.discard(inner)
    assert answer_cache.find(2, "home/garden") is newer


def test_an_answer_is_shared_for_a_few_seconds_and_never_beyond_its_ttl() -> None:
    answer_cache = AnswerCache()
    answer_cache.put(10, answer("a"))
    answer_cache.put(10, answer("b")._replace(until=20))
    assert answer_cache.find(10 + FRESH - 1, "a") is not None
    assert answer_cache.find(10 + FRESH, "a") is None
    assert answer_cache.find(20, "b") is None


def test_the_cache_is_bounded_and_a_single_client_has_none() -> None:
    answer_cache = AnswerCache(3)
    for number in range(10):
        answer_cache.put(number, answer(f"a/{number}"))
    assert [number for number in range(10) if answer_cache.find(10, f"a/{number}")] == [7, 8, 9]
    alone = AnswerCache(0)
    alone.put(0, answer("a"))
    assert alone.find(1, "a") is None


# Clients that share the cache


def test_a_client_uses_the_fresh_answer_to_another_client_without_a_request() -> None:
    caches = ResolverCaches.shared()
    first, nodes = sibling(caches)
    first.publish_waits_for("home/kitchen/oven")
    assert first.run(lambda: not first.waiting)
    second, others = sibling(caches, first.now)
    second.publish_waits_for("home/kitchen/lamp")
    assert not second.waiting
    assert second.zone("home/kitchen/lamp") == (nodes["kitchen"].address, True)
    assert questions(others) == 0 < questions(nodes)


def test_a_client_asks_for_itself_when_the_shared_answer_is_old() -> None:
    caches = ResolverCaches.shared()
    first, _ = sibling(caches)
    first.publish_waits_for("home/kitchen/oven")
    assert first.run(lambda: not first.waiting)
    second, others = sibling(caches, first.now + FRESH)
    second.publish_waits_for("home/kitchen/lamp")
    assert second.waiting
    assert second.run(lambda: not second.waiting)
    assert questions(others) > 0


def test_a_client_that_resolves_a_topic_again_does_not_get_the_shared_answer_again() -> None:
    """The link to the owner ended, or the owner refused, so its zone was wrong."""
    caches = ResolverCaches.shared()
    first, nodes = sibling(caches)
    caches.answer_cache.put(first.now, answer("home/kitchen", NOBODY))
    first.publish_waits_for("home/kitchen/oven")
    assert first.zone("home/kitchen/oven") == (NOBODY, True)
    first.forget_zones(NOBODY)
    first.publish_waits_for("home/kitchen/oven")
    assert first.run(lambda: not first.waiting)
    assert first.zone("home/kitchen/oven") == (nodes["kitchen"].address, True)
    second, _ = sibling(caches, first.now)
    second.publish_waits_for("home/kitchen/oven")
    assert second.zone("home/kitchen/oven") == (nodes["kitchen"].address, True)


def test_the_owner_that_a_refusal_named_counts_more_than_a_shared_answer() -> None:
    caches = ResolverCaches.shared()
    world, nodes = sibling(caches)
    caches.answer_cache.put(world.now, answer("home", NOBODY))
    world.waiting.add("home/kitchen/oven")
    world.event(UnresolvedEvent("home/kitchen/oven", nodes["kitchen"].address))
    assert world.run(lambda: not world.waiting)
    assert world.zone("home/kitchen/oven") == (nodes["kitchen"].address, True)
    assert nodes["root"].asked["PubConnect"] == 0


def test_many_clients_send_a_slow_node_one_request_each_and_no_message_fails() -> None:
    """Each client that starts in the first moment asks once. A client that has waited finds the answer to
    another, and repeats nothing."""
    caches = ResolverCaches.shared()
    crowd = [sibling(caches) for _ in range(40)]
    for world, nodes in crowd:
        world.publish_waits_for("home/kitchen/oven")
        nodes["root"].service_time = 7 * SECOND  # longer than every pause between tries
    first, nodes = crowd[0]
    nodes["root"].service_time = SECOND // 10
    assert first.run(lambda: not first.waiting, seconds=2)
    for world, nodes in crowd[1:]:
        assert world.run(lambda world=world: not world.waiting, seconds=1)  # type: ignore[misc]
        assert not world.rejected
        assert questions(nodes) == 2  # one was challenged, and then sent again


@settings(deadline=None)
@given(
    topic=st.sampled_from(["home/kitchen/a", "home/outside/b", "home/outside/securitycams/c", "elsewhere/d"]),
    wrong=st.lists(
        st.tuples(
            st.sampled_from(["", "home", "home/kitchen", "home/outside", "home/outside/securitycams"]),
            st.sampled_from(["root", "kitchen", "bedroom", "outside", "nobody"]),
        ),
        max_size=5,
    ),
)
def test_the_owner_is_found_whatever_answers_are_shared(topic: str, wrong: list[tuple[str, str]]) -> None:
    caches = ResolverCaches.shared()
    world, nodes = sibling(caches)
    owner = max(
        (node for node in nodes.values() if not node.subtree or topic.startswith(node.subtree + "/")),
        key=lambda node: len(node.subtree),
    )
    for scope, name in wrong:
        address = nodes[name].address if name in nodes else NOBODY
        caches.answer_cache.put(world.now, answer(scope, address))
    for _ in range(len(wrong) + 1):
        world.publish_waits_for(topic)
        assert world.run(lambda: not world.waiting, seconds=9)
        found = world.zone(topic)
        assert found is not None
        if found[0] == owner.address:
            break
        world.forget_zones(found[0])  # as the core does when the owner refuses or the link ends
    assert world.zone(topic) == (owner.address, True)
    assert not world.rejected
