"""A node is killed at any step of a move: the subtree is served again at once, and nobody loses anything.

A step is a datagram of the move, from the first order to the last answer: as soon as so many have left, the
victim dies. It begins again half a second later, with its files; the operator has gone on giving orders.
"""

from __future__ import annotations

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.outcome import Published
from hbroker.sim.network import Datagram, NodeHost, operators
from tests.network.networks import Tree
from tests.network.test_moving import Traffic

SUBTREE, TOPIC = "home/office", "home/office/lamp"
MOVING = {"order", "orderack", "join", "joinack", "transfer", "leave"}
MOST_STEPS = 60
VICTIMS = ("source", "target", "parent")
AWAY = timers.SECOND // 2
"""How long a process is dead."""
SOON = 5 * timers.SECOND
"""So long after the kill, at most, nobody serves the subtree."""


class Killed:
    """A move between two children of the root, of whose processes one dies."""

    def __init__(self, seed: int, victim: str, step: int, *, comes_back: bool = True) -> None:
        self.tree = Tree.grow(seed, ["home/kitchen", "home/bedroom"])
        self.world = self.tree.world
        source, target = self.tree.nodes["home/kitchen"], self.tree.nodes["home/bedroom"]
        self.tree.order(source, pb.ORDER_KIND_CLAIM, SUBTREE)
        self.nodes = {"source": source, "target": target, "parent": self.tree.root}
        self.traffic = Traffic(self.tree, TOPIC, 2)
        self.traffic.publish(20)
        self._steps = 0
        self._watched, self.world.watch = self.world.watch, self._watch
        self.traffic.publish(1, every=0)
        self.operator = operators.Operator(self.world, operators.move(SUBTREE, source, target))
        while self._steps < step and not self.operator.has_ended:
            self.world.step()
        self.is_over = self.operator.has_ended
        self._die(victim, comes_back=comes_back)

    @property
    def owner(self) -> NodeHost | None:
        """Who serves the subtree now."""
        return next((node for node in self.nodes.values() if self._serves(node)), None)

    def settle(self, within: int) -> None:
        """All was served again in time, and nothing was lost, doubled or refused."""
        assert self.unowned < within
        self.traffic.publish(20)
        self.traffic.settle()
        outcomes = [o for o in self.traffic.publisher.outcomes if isinstance(o, Published)]
        assert not [outcome for outcome in outcomes if outcome.reason]

    def _die(self, victim: str, *, comes_back: bool) -> None:
        self.nodes[victim].kill()
        killed = self.world.now
        self.traffic.publish(AWAY // 20_000, every=20_000)
        if comes_back:
            self.nodes[victim] = self.nodes[victim].restart(remembers=True)
        while self.owner is None and self.world.now < killed + 30 * timers.SECOND:
            self.traffic.publish(1, every=20_000)
        self.unowned = self.world.now - killed
        self.world.run_until(lambda: self.operator.has_ended)
        self.world.run(timers.SECOND)
        assert self.owner is not None

    def _serves(self, node: NodeHost) -> bool:
        return self.world.hosts.get(node.address) is node and node.owns(TOPIC)

    def _watch(self, datagram: Datagram) -> None:
        assert self._watched is not None
        self._watched(datagram)
        self._steps += bool(MOVING & set(datagram.kinds()))


@pytest.mark.parametrize("victim", VICTIMS)
def test_who_is_killed_at_any_step_of_a_move_costs_seconds_and_no_message(victim: str, is_long: bool) -> None:
    for step in range(1, MOST_STEPS, 1 if is_long else 4):
        killed = Killed(step, victim, step)
        killed.settle(SOON)
        if killed.is_over:
            break
    else:
        pytest.fail(f"a move has more than {MOST_STEPS} steps")


@pytest.mark.parametrize("victim", ["source", "target"])
def test_who_dies_for_good_at_any_step_of_a_move_costs_its_lease_and_no_message(
    victim: str, is_long: bool
) -> None:
    for step in range(1, MOST_STEPS, 1 if is_long else 9):
        killed = Killed(step, victim, step, comes_back=False)
        killed.settle(timers.LEASE + 2 * timers.LEASE_DRIFT)
        if killed.is_over:
            break
    else:
        pytest.fail(f"a move has more than {MOST_STEPS} steps")
