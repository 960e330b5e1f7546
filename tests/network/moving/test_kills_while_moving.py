"""A node is killed at any step of a handover: the subtree is soon served again, and no message is lost.

A step is a datagram of the handover, from the first order to the last answer, or a record that a node writes
to its files meanwhile. At the step with a given number the victim dies: after it has written its own record,
or before its own datagram leaves. It starts again half a second later, with its files, or stays dead. The
operator goes on sending orders. The parent is a child of the root, so that it can stay dead, too. On half of
all paths datagrams are lost and reordered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.events import ChildJoined
from hbroker.protocol.results import Published
from hbroker.sim.network import CLEAR, Datagram, Faults, NodeHost, operators
from tests.network.moving.test_moving import SESSION_OPTIONS, Traffic
from tests.network.networks import Tree

SUBTREE, TOPIC = "home/office", "home/office/lamp"
MOVING = {"order", "orderack", "join", "joinack", "transfer", "leave"}
MOST_STEPS = 200
LOSSY = Faults(loss=0.1, jitter_us=1_000, reordering=0.1)
VICTIMS = ("source", "target", "parent")
AWAY = timers.SECOND // 2
"""How long a process is dead."""
SOON = 5 * timers.SECOND
"""The longest time after the kill for which nobody serves the subtree."""


class Killed:
    """A handover between two children of one parent. One of the processes dies."""

    def __init__(self, seed: int, victim: str, step: int, *, comes_back: bool = True) -> None:
        self.tree = Tree.grow(seed, ["home", "home/kitchen", "home/bedroom"], LOSSY if seed % 2 else CLEAR)
        self.world = self.tree.world
        parent, source, target = self.tree.nodes.values()
        self.tree.order(source, pb.ORDER_KIND_CLAIM, SUBTREE)
        self.nodes = {"root": self.tree.root, "parent": parent, "source": source, "target": target}
        self.traffic = Traffic(self.tree, TOPIC, 2)
        self._prepare()
        self.traffic.publish(20)
        self.traffic.publish(1, every=0)
        self.operator = operators.Operator(self.world, operators.move(SUBTREE, source, target))
        self.is_over = self._has_ended_before(step, self.nodes[victim])
        self._die(victim, comes_back=comes_back)

    def _prepare(self) -> None:
        """Prepares the network before anything is published."""

    @property
    def owner(self) -> NodeHost | None:
        """The node that serves the subtree now."""
        return next((node for node in self.nodes.values() if self._serves(node)), None)

    def settle(self, within: int) -> None:
        """Checks that the topic was served again in time, and that no message was lost, duplicated or
        refused."""
        assert self.unowned < within
        self.traffic.publish(20)
        self.traffic.settle()
        results = [o for o in self.traffic.publisher.results if isinstance(o, Published)]
        assert not [result for result in results if result.reason]

    def _has_ended_before(self, step: int, victim: NodeHost) -> bool:
        """Runs the handover up to that step. Returns whether it was over before."""
        steps = 0

        def count(host: object) -> None:
            nonlocal steps
            steps += 1
            if steps == step and host is victim:
                raise _Dies

        def watch(datagram: Datagram) -> None:
            if MOVING & set(datagram.kinds()):
                count(self.world.hosts.get(datagram.source))

        self.world.on_datagram, self.world.on_record = watch, count
        with suppress(_Dies):
            while steps < step and not self.operator.has_ended:
                self.world.step()
        self.world.on_datagram = self.world.on_record = None
        return self.operator.has_ended

    def _die(self, victim: str, *, comes_back: bool) -> None:
        self.nodes[victim].kill()
        killed = self.world.now
        self.traffic.publish(AWAY // 20_000, every=20_000)
        self._look_while_it_is_away()
        if comes_back:
            self.nodes[victim] = self.nodes[victim].restart(remembers=True)
        while self.owner is None and self.world.now < killed + 30 * timers.SECOND:
            self.traffic.publish(1, every=20_000)
        self.unowned = self.world.now - killed
        self.world.run_until(lambda: self.operator.has_ended)
        self.world.run(timers.SECOND)
        assert self.owner is not None

    def _look_while_it_is_away(self) -> None:
        """The victim is dead, and what it had sent has arrived."""

    def _serves(self, node: NodeHost) -> bool:
        return self.world.hosts.get(node.address) is node and node.owns(TOPIC)


class KilledWithOfflineSession(Killed):
    """A handover with an offline session, whose queued messages are copied from owner to owner."""

    def _prepare(self) -> None:
        offline = self.tree.client(session_options=SESSION_OPTIONS)
        offline.subscribe("home/#", qos=2)
        self.world.run_until(lambda: bool(offline.results))
        offline.leave()
        self.world.run(timers.SECOND)
        offline.kill()
        self.begun = len(self.nodes["parent"].events)

    def _look_while_it_is_away(self) -> None:
        events = self.nodes["parent"].events
        self.is_given = any(isinstance(n, ChildJoined) and n.node == "bedroom" for n in events[self.begun :])

    def settle(self, within: int) -> None:
        super().settle(within)
        back = self.tree.client(session_options=SESSION_OPTIONS)
        back.subscribe("home/#", qos=2)
        self.world.run_until(lambda: len(back.messages) >= self.traffic.sent)
        self.world.run(timers.SECOND)
        came = [int(message.payload) for message in back.messages]
        assert came == list(range(1, self.traffic.sent + 1)), "each once, in order"


class _Dies(Exception):
    """Ends the victim in the middle of a step."""


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_node_that_is_killed_at_any_step_of_a_handover_costs_seconds_and_no_message(
    victim: str, is_long: bool
) -> None:
    for killed in at_each_step(victim, every=1 if is_long else 7):
        killed.settle(SOON)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_node_that_dies_for_good_at_any_step_of_a_handover_costs_a_lease_and_no_message(
    victim: str, is_long: bool
) -> None:
    for killed in at_each_step(victim, every=1 if is_long else 11, comes_back=False):
        killed.settle(timers.LEASE + 2 * timers.LEASE_DRIFT)


@pytest.mark.parametrize("comes_back", [True, False])
def test_queued_messages_survive_a_target_that_dies_before_it_serves(comes_back: bool, is_long: bool) -> None:
    every = 1 if is_long else 7
    for killed in at_each_step("target", every=every, comes_back=comes_back, kind=KilledWithOfflineSession):
        assert isinstance(killed, KilledWithOfflineSession)
        if killed.is_given:
            return  # from then on only the new owner has them
        killed.settle(SOON if comes_back else timers.LEASE + 2 * timers.LEASE_DRIFT)


def at_each_step(
    victim: str, *, every: int, comes_back: bool = True, kind: type[Killed] = Killed
) -> Iterator[Killed]:
    """One handover for every `every`-th step, until a handover ends before its victim dies."""
    for step in range(1, MOST_STEPS, every):
        killed = kind(step, victim, step, comes_back=comes_back)
        yield killed
        if killed.is_over:
            return
    pytest.fail(f"a move has more than {MOST_STEPS} steps")
