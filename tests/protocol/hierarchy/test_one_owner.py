"""The main invariant, as a property.

Nodes join, leave, die, restart and are cut off. Requests outside of sessions are lost, duplicated and
delayed. Whatever happens, no topic ever has two owners that would accept a message for it, and epochs only
rise.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.protocol.fake_network import Faults
from tests.protocol.native import NativeNetwork
from tests.protocol.world import World

SUBTREES = ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "e/f/g/h", "a", "e/f"]
"""By node. Two of the subtrees have two claimants each."""
TOPICS = [
    *dict.fromkeys(SUBTREES),
    "a/b/c/x",
    "a/x",
    "e/f/g",
    "other",
    *(f"$SYS/nodes/n{i}/status" for i in range(9)),
]
NODES = [f"n{i}" for i in range(len(SUBTREES))]

nodes = st.sampled_from(NODES)
waits = st.sampled_from([0.0, 0.05, 0.3, 1.0, 4.0, 9.0, 14.2, 16.5, 20.0])
steps = st.tuples(
    st.sampled_from(["start", "kill", "restart", "leave", "part", "part", "heal", "restart_root"]),
    nodes,
    st.sampled_from(["root", *NODES]),
    waits,
)


@settings(max_examples=settings().max_examples // 3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    first=st.lists(nodes, unique=True),
    steps=st.lists(steps, max_size=12),
    loss=st.sampled_from([0.0, 0.3]),
)
@example(seed=0, first=["n0"], steps=[("part", "n0", "root", 16.5)], loss=0.0)
@example(seed=0, first=["n0", "n1"], steps=[("part", "n0", "root", 16.5)], loss=0.0)
@example(seed=0, first=["n0", "n1"], steps=[("restart_root", "n0", "root", 0.0)], loss=0.0)
@example(seed=0, first=["n0", "n7"], steps=[], loss=0.0)
@example(
    seed=10886014,
    first=["n0", "n1", "n2", "n3", "n7", "n4"],
    steps=[("restart", "n0", "root", 0.0), ("leave", "n0", "root", 0.0)],
    loss=0.0,
)
def test_no_topic_has_two_owners_and_epochs_only_rise(
    seed: int, first: list[str], steps: list[tuple[str, str, str, float]], loss: float
) -> None:
    check_run(World(seed, Faults(loss=loss, duplication=0.2, late=0.2)), first, steps)


@settings(max_examples=settings().max_examples // 12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    first=st.lists(nodes, unique=True),
    steps=st.lists(steps, max_size=6),
    loss=st.sampled_from([0.0, 0.3]),
)
@example(seed=0, first=["n0", "n1"], steps=[("part", "n0", "root", 16.5)], loss=0.0)
@example(seed=0, first=["n0", "n1"], steps=[("restart_root", "n0", "root", 0.0)], loss=0.0)
def test_no_topic_has_two_owners_with_the_native_core(
    seed: int, first: list[str], steps: list[tuple[str, str, str, float]], loss: float
) -> None:
    check_run(World(seed, Faults(loss=loss, duplication=0.2, late=0.2), NativeNetwork), first, steps)


def check_run(world: World, first: list[str], steps: list[tuple[str, str, str, float]]) -> None:
    world.start_root()

    def check_owners() -> None:
        for topic in TOPICS:
            owners = world.owners(topic)
            assert len(owners) <= 1, f"{topic} is served by {owners} at {world.network.now}"
        assert not world.network.epochs_fell

    world.network.on_step = check_owners
    for name in sorted(first, key=NODES.index):
        apply_step(world, "start", name, "root")
        world.advance(0.4)
    for step, name, other, wait in steps:
        apply_step(world, step, name, other)
        world.advance(wait)

    world.network.heal()
    for name in NODES:
        if name in world.nodes and not world.nodes[name].core.alive:
            world.restart(name)
    world.advance(60)
    for topic in TOPICS:
        assert len(world.owners(topic)) == 1, topic


def apply_step(world: World, step: str, name: str, other: str) -> None:
    match step:
        case "heal":
            world.network.heal()
        case "restart_root":
            world.restart("root")
        case "start" if name not in world.nodes:
            world.start_node(name, SUBTREES[NODES.index(name)])
        case "restart" if name in world.nodes:
            world.restart(name)
        case "kill" if name in world.nodes and world.nodes[name].core.alive:
            world.kill(name)
        case "leave" if name in world.nodes and world.nodes[name].core.alive:
            world.leave(name)
        case "part" if name in world.nodes and other in world.nodes and name != other:
            world.network.part(world.nodes[name].settings.listen, world.nodes[other].settings.listen)


@pytest.mark.parametrize("delay_ms", [0.5 * n for n in range(1, 30)])
def test_a_node_that_leaves_during_a_handover_makes_no_second_owner(delay_ms: float) -> None:
    world = World(1)
    world.start_root()
    world.start_node("a", "a")
    world.advance(1)

    def check_owners() -> None:
        assert len(world.owners("a/b/x")) <= 1, world.owners("a/b/x")

    world.network.on_step = check_owners
    world.start_node("b", "a/b")
    world.advance(delay_ms / 1000)
    world.leave("a")
    world.advance(60)
    assert world.owners("a/b/x") == ["b"]
    assert world.owners("a/x") == ["root"]
