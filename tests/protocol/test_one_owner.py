"""The promise, as a property.

Whatever joins, leaves, dies, restarts or is cut off, and whatever of the requests outside of a session is
lost, doubled or late: no topic ever has two owners that would take a message for it, and epochs only rise.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocol.fakes import Faults
from tests.protocol.world import ROOT, World

SUBTREES = ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "e/f/g/h"]
TOPICS = [*SUBTREES, "a/b/c/x", "a/x", "e/f/g", "other", *(f"$SYS/nodes/n{i}/status" for i in range(7))]
NODES = [f"n{i}" for i in range(len(SUBTREES))]

nodes = st.sampled_from(NODES)
steps = st.one_of(
    st.tuples(st.sampled_from(["start", "kill", "restart", "leave", "part"]), nodes),
    st.tuples(st.just("advance"), st.sampled_from([0.05, 0.3, 1.0, 4.0, 9.0, 14.2, 16.5])),
    st.tuples(st.sampled_from(["heal", "restart_root"]), st.none()),
)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), steps=st.lists(steps, max_size=30), loss=st.sampled_from([0.0, 0.3]))
def test_no_topic_has_two_owners_and_epochs_only_rise(
    seed: int, steps: list[tuple[str, object]], loss: float
) -> None:
    world = World(seed, Faults(loss=loss, duplication=0.2, late=0.2))
    world.start_root()

    def hold_the_promise() -> None:
        for topic in TOPICS:
            owners = world.owners(topic)
            assert len(owners) <= 1, f"{topic} is served by {owners} at {world.network.now}"
        assert not world.network.epochs_fell

    world.network.on_step = hold_the_promise
    for step, argument in [*steps, ("heal", None), ("advance", 1.0)]:
        take(world, step, argument)

    for name in NODES:
        if name in world.nodes and not world.nodes[name].core.alive:
            world.restart(name)
    world.advance(60)
    for topic in TOPICS:
        assert len(world.owners(topic)) == 1, topic


def take(world: World, step: str, argument: object) -> None:
    match step, argument:
        case "advance", float(seconds):
            world.advance(seconds)
        case "heal", _:
            world.network.heal()
        case "restart_root", _:
            world.restart("root")
        case "start", str(name) if name not in world.nodes:
            world.start_node(name, SUBTREES[NODES.index(name)])
        case "restart", str(name) if name in world.nodes:
            world.restart(name)
        case "kill", str(name) if name in world.nodes and world.nodes[name].core.alive:
            world.kill(name)
        case "leave", str(name) if name in world.nodes and world.nodes[name].core.alive:
            world.leave(name)
        case "part", str(name) if name in world.nodes:
            world.network.part(ROOT, world.nodes[name].settings.listen)
