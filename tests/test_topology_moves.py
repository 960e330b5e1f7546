"""The moves from the claims of running nodes to those of a topology, checked with a model of the network.
And the comparison of loads."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hbroker import topology
from hbroker.topology.model import Topology
from hbroker.topology.moves import Move, moves
from hbroker.topology.plan import is_alike
from tests.test_topology_properties import SUBTREE, networks


@st.composite
def before_and_after(draw: st.DrawFn) -> tuple[Topology, Topology]:
    """Two topologies of the same nodes: subtrees have moved, appeared and disappeared."""
    before = draw(networks())
    root, *others = before.nodes
    subtrees = draw(st.permutations([node.subtree for node in others]))
    further = draw(st.lists(SUBTREE, max_size=4, unique=True))
    also = [subtree for subtree in further if subtree not in subtrees]
    after = [
        replace(node, subtree=subtree, also=tuple(also) if first else ())
        for node, subtree, first in zip(others, subtrees, [True] + [False] * len(others), strict=False)
    ]
    return before, replace(before, nodes=(root, *after))


@given(before_and_after())
def test_the_moves_turn_the_network_into_the_topology(pair: tuple[Topology, Topology]) -> None:
    running, wanted = pair
    claimed = {node.name: set(node.subtrees) for node in running.nodes if not node.is_root}
    found = moves(wanted, {name: sorted(subtrees) for name, subtrees in claimed.items()})
    for move in found:
        holders = [name for name, subtrees in claimed.items() if move.subtree in subtrees]
        assert holders == ([] if move.source is None else [move.source]), "who holds it is asked"
        assert move.source != move.target
        if move.source is not None:
            claimed[move.source].remove(move.subtree)
        if move.target is not None:
            claimed.setdefault(move.target, set()).add(move.subtree)
    for node in wanted.nodes:
        if not node.is_root:
            assert claimed.get(node.name, set()) == set(node.subtrees)
    assert moves(wanted, {name: sorted(subtrees) for name, subtrees in claimed.items()}) == []


@given(networks())
def test_a_network_that_equals_the_topology_needs_no_moves(network: Topology) -> None:
    claimed = {node.name: list(node.subtrees) for node in network.nodes if not node.is_root}
    assert moves(network, claimed | {"stranger": ["nobody/else/has/this"]}) == []


def test_a_subtree_is_given_up_before_a_part_of_it_is_claimed() -> None:
    """A node has no separate claims within a subtree that it holds."""
    text = """
    nodes:
      - {name: root, subtree: "", listen: "127.0.0.1:7700"}
      - {name: kitchen, subtree: home/kitchen/oven, listen: "127.0.0.1:7701"}
    """
    assert moves(topology.parse(text), {"kitchen": ["home/kitchen"]}) == [
        Move("home/kitchen", "kitchen", None),
        Move("home/kitchen/oven", None, "kitchen"),
    ]


def test_a_subtree_that_is_merged_into_its_parents_is_moved_last() -> None:
    """Otherwise the parent would get a load that a later move takes away."""
    text = """
    nodes:
      - {name: root, subtree: "", listen: "127.0.0.1:7700"}
      - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
      - {name: bedroom, subtree: home/bedroom, also: [home/kitchen/oven], listen: "127.0.0.1:7702"}
    """
    found = moves(
        topology.parse(text), {"kitchen": ["home/kitchen"], "bedroom": ["home/bedroom", "home/hall"]}
    )
    assert found == [
        Move("home/kitchen/oven", None, "bedroom"),
        Move("home/hall", "bedroom", None),
    ]


def test_loads_within_half_of_each_other_are_alike() -> None:
    assert is_alike(0.4, 0.4)
    assert is_alike(0.4, 0.21)
    assert is_alike(0.4, 0.79)
    assert is_alike(0.0, 0.0)
    assert not any((is_alike(0.4, 0.0), is_alike(0.4, 0.19), is_alike(0.4, 0.81), is_alike(0.0, 0.1)))
