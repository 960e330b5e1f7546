"""Which subtrees to split off, move or merge, so that no node carries much more than the others.

A *cut* assigns a subtree to a node. A topic belongs to the node of the longest cut above it. The *part* of a
subtree is what its owner carries in it: its load less that of the cuts below. Moving a subtree moves its
part, so every prefix of a topic can be moved, whatever its size.

Choosing cuts that minimise the largest load is scheduling of jobs on machines, which is NP-hard. So the
planner is greedy:

1. Each step moves one part from the most loaded node. It chooses the part and the target so that the larger
   of the two loads is least.
2. It ends when no step helps, or when the largest load is within a tolerance of even.
3. Then it undoes the moves that are not needed, the smallest first: those without which the largest load
   stays within the tolerance of even, or of what was reached.

So no subtree is moved for almost nothing. A subtree that has nearly all load of a larger movable one is no
unit of its own: a device is moved, not its one topic with most messages.

**The root** can be given no cut: it owns what no other node owns. If it must carry more, a cut inside its own
part is *opened*: its node gives it up, and claims the larger subtrees below it instead.

**Every node keeps something**: it has at least one subtree, as in every topology.

**Bound.** If it ends because no step helps, every part `u` that the most loaded node `p` may give is too
large for the least loaded node `q` except the root: `L(q) + u >= L(p)`. Hence `L(p) <= mean + u`, with the
mean over all nodes except the root, and `u` its smallest part. Step 3 adds the tolerance. A part can be a
single topic, or as small as loads are given. No assignment has less than the mean, nor less than any single
topic. (Loads are divided by capacities.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

__all__ = ["Move", "Network", "Node", "Plan", "largest_over_mean", "plan"]

TOLERANCE: Final = 0.05
"""How far above even, or above what can be reached, the most loaded node may stay."""

_WORTH: Final = 1e-3
"""A step must lower the largest load by this share of it."""

_ALIKE: Final = 0.01
"""A subtree whose load is less by at most this share than that of one around it is no unit of its own."""

_OPENING: Final = 0.02
"""A step that opens a cut must lower the load by this share more, because it takes several moves."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `subtrees`: its claims, the main one first; the root has only the empty one. `capacity`: the
    load that it can carry, in the unit of loads."""

    name: str
    subtrees: tuple[str, ...]
    capacity: float = 1.0

    @property
    def is_root(self) -> bool:
        """Whether it is the root, which owns what no other node owns."""
        return self.subtrees[:1] == ("",)


@dataclass(frozen=True)
class Network:
    """The input of the planner.

    `loads`: of subtrees, each with everything in it, whichever node owns that, all in the same unit. With a
    subtree all subtrees above it are given, too. It has every claim, and `""`, the load of all topics.
    """

    nodes: tuple[Node, ...]
    loads: Mapping[str, float]

    def capacity(self, name: str) -> float:
        """The capacity of the node with this name."""
        return self._capacities[name]

    def below(self, subtree: str) -> Sequence[str]:
        """The subtrees in `loads` whose parent is this one."""
        return self._children.get(subtree, ())

    @cached_property
    def subtrees(self) -> list[str]:
        """The subtrees in `loads`, sorted: of equally good steps the first is taken."""
        return sorted(self.loads)

    @cached_property
    def _capacities(self) -> dict[str, float]:
        return {node.name: node.capacity for node in self.nodes}

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        children: dict[str, list[str]] = {}
        for subtree in filter(None, self.subtrees):
            children.setdefault(_parent(subtree), []).append(subtree)
        return children


@dataclass(frozen=True, slots=True)
class Move:
    """One subtree that changes its owner.

    `load`: of its part. `is_merged`: it is no cut any more, and `target` owns what is around it. `source` and
    `target` are the same if a node keeps a part of what it gives up.
    """

    subtree: str
    source: str
    target: str
    load: float
    is_merged: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The result. `nodes`: with their new claims; `before`, `after`: the load of each, by name."""

    moves: tuple[Move, ...]
    nodes: tuple[Node, ...]
    before: Mapping[str, float]
    after: Mapping[str, float]


def plan(network: Network, tolerance: float = TOLERANCE) -> Plan:
    """The plan for a network.

    `tolerance`: how far above even, or above what can be reached, the most loaded node may stay, as a share.
    Raises ValueError if there is no root, a node has no subtree, or two nodes have one name or subtree.
    """
    _check(network)
    begun = _Cuts.of(network)
    cuts = begun.copy()
    while (step := _best_step(cuts, tolerance)) is not None:
        cuts.take(step)
    cuts = _without_needless(cuts, begun, tolerance)
    return Plan(
        moves=tuple(_moves(begun, cuts)),
        nodes=tuple(Node(node.name, _claims(node, cuts.owners), node.capacity) for node in network.nodes),
        before=dict(begun.carried),
        after=dict(cuts.carried),
    )


def largest_over_mean(loads: Mapping[str, float], nodes: Sequence[Node]) -> float:
    """The largest load over the mean, each divided by its node's capacity; 1 if there is no load."""
    total = sum(loads.values())
    even = total / sum(node.capacity for node in nodes)
    return max(loads[node.name] / node.capacity for node in nodes) / even if total else 1.0


_Step = Sequence[tuple[str, str]]
"""Subtrees, and the node that gets each, in order."""


@dataclass(slots=True)
class _Cuts:
    """Cuts, and the resulting loads of nodes. `owners`: by cut, its node."""

    network: Network
    owners: dict[str, str]
    carried: dict[str, float]
    _taken: dict[str, float] | None = None
    """By subtree, the load of the outermost cuts inside it; None: to be computed."""

    @classmethod
    def of(cls, network: Network) -> _Cuts:
        owners = {subtree: node.name for node in network.nodes for subtree in node.subtrees}
        cuts = cls(network, owners, {node.name: 0.0 for node in network.nodes})
        for subtree, name in owners.items():
            cuts.carried[name] += cuts.part(subtree)
        return cuts

    def copy(self) -> _Cuts:
        return _Cuts(self.network, dict(self.owners), dict(self.carried))

    @property
    def root(self) -> str:
        return self.owners[""]

    def owner(self, subtree: str) -> str:
        """The owner of the topic with this name."""
        return next(self.owners[above] for above in _upwards(subtree) if above in self.owners)

    def around(self, subtree: str) -> str:
        """The owner of what is around a subtree."""
        return self.owner(_parent(subtree))

    def part(self, subtree: str) -> float:
        """The load that its owner carries in it; at least 0, despite rounding."""
        if self._taken is None:
            self._taken = self._count_taken()
        return max(self.network.loads[subtree] - self._taken.get(subtree, 0.0), 0.0)

    def level(self, name: str) -> float:
        """The load of a node, divided by its capacity."""
        return self.carried[name] / self.network.capacity(name)

    @property
    def highest(self) -> float:
        return max(self.level(name) for name in self.carried)

    @property
    def even(self) -> float:
        """The level of all nodes if load could be divided without limit."""
        return sum(self.carried.values()) / sum(node.capacity for node in self.network.nodes)

    def take(self, step: _Step) -> None:
        """Gives subtrees to nodes."""
        for subtree, target in step:
            self._give(subtree, target)

    def after(self, step: _Step) -> _Cuts:
        """The cuts after a step."""
        cuts = self.copy()
        cuts.take(step)
        return cuts

    def _give(self, subtree: str, target: str) -> None:
        """Gives a subtree to a node.

        It is no cut any more if its new node owns what is around it. The same holds for cuts inside it that
        the node had.
        """
        load, source = self.part(subtree), self.owner(subtree)
        if self.around(subtree) == target:
            self.owners.pop(subtree, None)
        else:
            self.owners[subtree] = target
        for cut in [cut for cut in self.owners if cut != subtree and cut and _is_within(cut, subtree)]:
            if self.around(cut) == self.owners[cut]:
                del self.owners[cut]
        self.carried[source] -= load
        self.carried[target] += load
        self._taken = None

    def _count_taken(self) -> dict[str, float]:
        taken: dict[str, float] = {}
        for cut in filter(None, self.owners):
            for above in _upwards(_parent(cut)):
                taken[above] = taken.get(above, 0.0) + self.network.loads[cut]
                if above in self.owners:
                    break
        return taken


def _best_step(cuts: _Cuts, tolerance: float) -> _Step | None:
    """The step that leaves the larger of two levels least, one of them the highest; None: no step helps, or
    none is needed."""
    most = max(cuts.carried, key=lambda name: (cuts.level(name), name))
    if cuts.level(most) <= (1 + tolerance) * cuts.even:
        return None
    best: _Step | None = None
    lowest = cuts.level(most) * (1 - _WORTH)
    for subtree, load in _parts(cuts, most):
        for target in _targets(cuts, subtree, most):
            if (larger := _larger(cuts, most, target, load)) < lowest:
                best, lowest = [(subtree, target)], larger
    if most != cuts.root:
        for step, load in _openings(cuts, most):
            if (larger := _larger(cuts, most, cuts.root, load)) < lowest * (1 - _OPENING):
                best, lowest = step, larger
    return best


def _larger(cuts: _Cuts, source: str, target: str, load: float) -> float:
    """The larger of two levels after a load has moved from one node to the other."""
    capacity = cuts.network.capacity
    return max(
        (cuts.carried[source] - load) / capacity(source), (cuts.carried[target] + load) / capacity(target)
    )


def _parts(cuts: _Cuts, name: str) -> Iterator[tuple[str, float]]:
    """The parts that a node could give, each with its load.

    It must keep its last claim. A part with about the load of another part around it is left out.
    """
    claims = [subtree for subtree, owner in cuts.owners.items() if owner == name]
    found: dict[str, float] = {}
    for subtree in cuts.network.subtrees:
        if subtree and claims != [subtree] and cuts.owner(subtree) == name:
            load = cuts.part(subtree)
            around = next((found[above] for above in _upwards(_parent(subtree)) if above in found), None)
            if load > 0 and (around is None or load < around * (1 - _ALIKE)):
                found[subtree] = load
                yield subtree, load


def _targets(cuts: _Cuts, subtree: str, source: str) -> Iterator[str]:
    """The least loaded node of each capacity, and the owner of what is around the subtree."""
    around = cuts.around(subtree)
    if around != source:
        yield around
    least: dict[float, str] = {}
    for node in cuts.network.nodes:
        if node.name != source and not node.is_root:
            other = least.get(node.capacity)
            if other is None or cuts.level(node.name) < cuts.level(other):
                least[node.capacity] = node.name
    yield from least.values()


def _openings(cuts: _Cuts, name: str) -> Iterator[tuple[_Step, float]]:
    """Steps that open a cut of a node inside the root's part, each with the load that goes to the root.

    Each gives the root about the load that makes both equal.
    """
    capacity = cuts.network.capacity
    wanted = (cuts.carried[name] * capacity(cuts.root) - cuts.carried[cuts.root] * capacity(name)) / (
        capacity(name) + capacity(cuts.root)
    )
    for cut, owner in cuts.owners.items():
        if owner == name and cuts.around(cut) == cuts.root:
            yield from _opening(cuts, cut, wanted)


def _opening(cuts: _Cuts, cut: str, wanted: float) -> Iterator[tuple[_Step, float]]:
    """Keeps the largest subtrees that leave at least `wanted` for the root; and the same with one more of
    them."""
    owner, going = cuts.owners[cut], cuts.part(cut)
    below = cuts.network.below(cut)
    loads = sorted(((cuts.part(child), child) for child in below if cuts.owner(child) == owner), reverse=True)
    kept: list[str] = []
    more: tuple[float, str] | None = None
    for load, child in loads:
        if going - load >= wanted:
            kept.append(child)
            going -= load
        elif load > 0:
            more = load, child
    step = [(cut, cuts.root), *((child, owner) for child in kept)]
    if kept:
        yield step, going
    if more is not None:
        yield [*step, (more[1], owner)], going - more[0]


def _without_needless(cuts: _Cuts, begun: _Cuts, tolerance: float) -> _Cuts:
    """Undoes what is not needed to stay within the tolerance of even, or of what was reached."""
    allowed = (1 + tolerance) * cuts.even
    if cuts.highest > allowed:
        allowed = min((1 + tolerance) * cuts.highest, begun.highest)
    for move in sorted(_moves(begun, cuts), key=lambda move: (move.load, move.subtree)):
        if move.source == cuts.root and not move.is_merged:
            back = [(move.subtree, cuts.around(move.subtree))]
        else:
            back = [(move.subtree, begun.owner(move.subtree))]
        without = cuts.after(back)
        if _is_sound(without) and without.highest <= allowed and _count(begun, without) < _count(begun, cuts):
            cuts = without
    return cuts


def _is_sound(cuts: _Cuts) -> bool:
    """Whether the root was given no cut, and every node keeps a subtree."""
    given = {name for subtree, name in cuts.owners.items() if subtree}
    return given == cuts.carried.keys() - {cuts.root}


def _count(begun: _Cuts, cuts: _Cuts) -> int:
    return len(list(_moves(begun, cuts)))


def _moves(begun: _Cuts, cuts: _Cuts) -> Iterator[Move]:
    """The moves from the former cuts to the new ones: first merges, then transfers."""
    for subtree, name in begun.owners.items():
        if subtree not in cuts.owners:
            yield Move(subtree, name, cuts.owner(subtree), begun.part(subtree), is_merged=True)
    for subtree, name in cuts.owners.items():
        if begun.owners.get(subtree) != name:
            yield Move(subtree, begun.owner(subtree), name, cuts.part(subtree))


def _claims(node: Node, owners: Mapping[str, str]) -> tuple[str, ...]:
    """The node's former claims in their order, then the new ones."""
    claims = [subtree for subtree, name in owners.items() if name == node.name]
    had = [subtree for subtree in node.subtrees if subtree in claims]
    return (*had, *sorted(set(claims) - set(had)))


def _check(network: Network) -> None:
    names = [node.name for node in network.nodes]
    subtrees = [subtree for node in network.nodes for subtree in node.subtrees]
    if sum(node.is_root for node in network.nodes) != 1:
        raise ValueError("a network has one root")
    if not all(node.subtrees for node in network.nodes):
        raise ValueError("a node has no subtree")
    if len(set(names)) < len(names) or len(set(subtrees)) < len(subtrees):
        raise ValueError("two nodes have one name, or one subtree")
    missing = [subtree for subtree in ("", *subtrees) if subtree not in network.loads]
    if missing:
        raise ValueError(f"the load of {missing[0]!r} is not told")


def _parent(subtree: str) -> str:
    return subtree.rpartition("/")[0]


def _upwards(subtree: str) -> Iterator[str]:
    """The subtree and all that contain it, the whole hierarchy last."""
    while subtree:
        yield subtree
        subtree = _parent(subtree)
    yield ""


def _is_within(subtree: str, other: str) -> bool:
    return not other or subtree == other or subtree.startswith(other + "/")
