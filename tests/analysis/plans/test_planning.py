"""Plans are compared with their own predictions, with their bound, and with the optimum of small trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker.spark_analysis.plans.planning import TOLERANCE, Network, Node, Plan, largest_over_mean, plan

LEVELS = ("a", "b", "c")


def network_of(own: Mapping[str, float], nodes: tuple[Node, ...]) -> Network:
    """A network whose topics have these loads of their own."""
    named = {*own, *(subtree for node in nodes for subtree in node.subtrees), ""}
    names = {above for name in named for above in upwards(name)}
    loads = {name: sum(load for topic, load in own.items() if within(topic, name)) for name in names}
    return Network(nodes, loads)


def upwards(subtree: str) -> Iterator[str]:
    yield subtree
    while subtree:
        subtree = subtree.rpartition("/")[0]
        yield subtree


def within(topic: str, subtree: str) -> bool:
    return not subtree or topic == subtree or topic.startswith(subtree + "/")


def carried(own: Mapping[str, float], claims: Mapping[str, str]) -> dict[str, float]:
    """The load of each node, computed topic by topic. `claims`: the node of each subtree."""
    found = dict.fromkeys(claims.values(), 0.0)
    for topic, load in own.items():
        found[next(claims[above] for above in upwards(topic) if above in claims)] += load
    return found


def claims_of(nodes: tuple[Node, ...]) -> dict[str, str]:
    return {subtree: node.name for node in nodes for subtree in node.subtrees}


TOPICS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, float], tuple[Node, ...]]:
    """Loads of topics, and nodes with random subtrees."""
    own = draw(st.dictionaries(TOPICS, st.integers(0, 100).map(float), min_size=1, max_size=25))
    subtrees = draw(st.lists(TOPICS, min_size=1, max_size=8, unique=True))
    count = draw(st.integers(1, len(subtrees)))
    capacities = draw(st.lists(st.sampled_from([1.0, 1.0, 2.0]), min_size=count + 1, max_size=count + 1))
    nodes = [Node("root", ("",), capacities[0])]
    for i in range(count):
        nodes.append(Node(f"n{i}", tuple(subtrees[i::count]), capacities[i + 1]))
    return own, tuple(nodes)


@settings(max_examples=100)
@given(cases())
def test_the_loads_after_a_plan_are_those_that_it_predicts(
    case: tuple[dict[str, float], tuple[Node, ...]],
) -> None:
    own, nodes = case
    found = plan(network_of(own, nodes))
    assert found.before == pytest.approx(carried(own, claims_of(nodes)), abs=1e-6)
    assert found.after == pytest.approx(carried(own, claims_of(found.nodes)), abs=1e-6)
    assert found.nodes[0].subtrees == ("",), "the root is given nothing"
    assert all(node.subtrees for node in found.nodes), "every node keeps something"
    claims = claims_of(nodes)
    for move in found.moves:
        if move.is_merged:
            del claims[move.subtree]
        else:
            claims[move.subtree] = move.target
    assert carried(own, claims) == pytest.approx(found.after, abs=1e-6), "the moves lead there"
    capacity = {node.name: node.capacity for node in nodes}
    assert largest(found.after, capacity) <= largest(found.before, capacity) + 1e-6, "never worse"


def largest(loads: Mapping[str, float], capacity: Mapping[str, float]) -> float:
    return max(load / capacity[name] for name, load in loads.items())


@settings(max_examples=100)
@given(cases())
def test_a_plan_keeps_its_bound(case: tuple[dict[str, float], tuple[Node, ...]]) -> None:
    own, nodes = case
    nodes = tuple(Node(node.name, node.subtrees) for node in nodes)
    found = plan(network_of(own, nodes))
    total, most = sum(own.values()), max(own.values())
    of_takers = total / (len(nodes) - 1)
    assert max(found.after.values()) <= (1 + TOLERANCE) * (of_takers + most * 1.011) * 1.001 + 1e-6


def best(own: Mapping[str, float], nodes: tuple[Node, ...]) -> float:
    """The smallest possible largest load, over every assignment of prefixes to nodes."""
    root = {"": next(node.name for node in nodes if node.is_root)}
    prefixes = sorted({above for topic in own for above in upwards(topic)} - {""})
    takers = [None, *(node.name for node in nodes if not node.is_root)]
    found = float("inf")
    for choice in product(takers, repeat=len(prefixes)):
        claims = root | {prefix: name for prefix, name in zip(prefixes, choice, strict=True) if name}
        found = min(found, max(carried(own, claims).values()))
    return found


def test_plans_of_small_trees_are_close_to_the_optimum() -> None:
    random = Random(7)
    ratios = []
    for _ in range(60):
        topics = sorted({"/".join(random.choices(LEVELS[:2], k=random.randint(1, 3))) for _ in range(5)})[:4]
        own = {topic: float(random.randint(1, 50)) for topic in topics}
        nodes = (Node("root", ("",)), Node("one", ("x",)), Node("two", ("y",)))
        found: Plan = plan(network_of(own, nodes), tolerance=0.0)
        ratios.append(max(found.after.values()) / best(own, nodes))
    assert min(ratios) >= 1 - 1e-9, "nothing is better than the best"
    assert max(ratios) <= 1.34
    assert mean(ratios) <= 1.03


def test_a_room_with_most_of_the_traffic_is_split() -> None:
    own = {f"home/kitchen/{device}": 10.0 for device in range(8)}
    own |= {"home/bedroom/lamp": 10.0, "home/hall/lamp": 10.0}
    nodes = (
        Node("root", ("",)),
        Node("kitchen", ("home/kitchen",)),
        Node("bedroom", ("home/bedroom",)),
    )
    found = plan(network_of(own, nodes))
    assert largest_over_mean(found.before, nodes) == pytest.approx(2.4)
    assert largest_over_mean(found.after, nodes) < 1.25
    assert len(found.moves) <= 7, "one opens the kitchen; each of the others takes ten of a hundred"


def test_nothing_is_moved_for_a_tiny_gain() -> None:
    """Two cameras have nearly all of the load. One of them is moved, and its new owner gives up nothing."""
    own = {f"home/cams/{camera}/{leaf}": load for camera in "ab" for leaf, load in LEAVES.items()}
    own |= {"home/bed/lamp": 17.0, "home/hall/lamp": 30.0}
    nodes = (Node("root", ("",)), Node("cams", ("home/cams",)), Node("bed", ("home/bed",)))
    (move,) = plan(network_of(own, nodes)).moves
    assert (move.subtree, move.source, move.target) == ("home/cams/a", "cams", "bed")


LEAVES = {"frame": 2_000.0, "status": 2.0}
"""The topics of a camera. The camera is moved as a whole, and not just its frames."""


def test_a_balanced_network_is_not_changed() -> None:
    own = {"a/x": 10.0, "b/x": 10.2, "c": 9.9}
    nodes = (Node("root", ("",)), Node("one", ("a",)), Node("two", ("b",)))
    assert plan(network_of(own, nodes)).moves == ()


def test_large_networks_are_planned_in_seconds() -> None:
    random = Random(3)
    own = {
        f"city/b{building}/r{random.randint(0, 20)}/d{random.randint(0, 3)}": random.paretovariate(1.2)
        for building in random.choices(range(61), k=3000)
    }
    nodes = (Node("root", ("",)), *(Node(f"n{i}", (f"city/b{i}",)) for i in range(50)))
    found = plan(network_of(own, nodes))
    even = sum(own.values()) / len(nodes)
    assert max(found.after.values()) <= max(1.05 * even, max(own.values())) * 1.05


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ((Node("one", ("a",)),), "one root"),
        ((Node("root", ("",)), Node("root", ("a",))), "two nodes"),
        ((Node("root", ("",)), Node("one", ("a",)), Node("two", ("a",))), "two nodes"),
    ],
)
def test_an_invalid_network_is_refused(nodes: tuple[Node, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        plan(Network(nodes, {"": 1.0, "a": 1.0}))
