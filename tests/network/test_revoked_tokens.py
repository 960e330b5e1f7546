"""Tokens are revoked while a network runs: all owners learn it, over bad paths and restarts, and keep to it
when the root is gone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hbroker.identity.revoked_file import RevokedFile
from hbroker.protocol import timers
from hbroker.protocol.packets import Reason
from hbroker.protocol.results import Published
from hbroker.sim.network import CLEAR, ClientHost, Faults, NodeHost
from hbroker.sim.network.security import SimulatedSecurity
from tests.network.networks import Tree

BAD = Faults(loss=0.2, reordering=0.2, duplication=0.1)
TOPICS = ("attic", "home/lamp", "home/kitchen/lamp")
"""Of three owners, one below the other."""


class Revoking:
    """A tree of three levels, a client whose token will be revoked, and another client."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.security = SimulatedSecurity(requires_tokens=True)
        self.tree = Tree.grow(seed, ["home", "home/kitchen"], faults, self.security)
        self.world = self.tree.world
        self.victim, self.other = self.tree.client(), self.tree.client()

    def revoke(self, client: ClientHost) -> RevokedFile:
        """Revokes a client's token. Only the root has the list of the authority."""
        file = self.security.revoke(client.session)
        self.tree.root.take_revoked(file)
        return file

    def reasons(self, client: ClientHost, topics: Sequence[str]) -> list[int]:
        """Publishes to these topics. Returns what became of it."""
        before = len(client.results)
        for topic in topics:
            client.publish(topic, b"", 1)

        def published() -> list[int]:
            return [r.reason for r in client.results[before:] if isinstance(r, Published)]

        self.world.run_until(lambda: len(published()) == len(topics))
        return sorted(published())

    def is_allowed(self, client: ClientHost, topics: Sequence[str] = TOPICS) -> bool:
        """Whether the owners take what a client publishes; fails if only some do."""
        found = set(self.reasons(client, topics))
        allowed = {Reason.REASON_SUCCESS, Reason.REASON_NO_MATCHING_SUBSCRIBERS}
        assert found <= allowed or found == {Reason.REASON_NOT_AUTHORIZED}
        return found <= allowed

    def known(self) -> list[int]:
        """How many records each node has."""
        return [len(node.control.revocations) for node in (self.tree.root, *self.tree.nodes.values())]


def refused(node: NodeHost) -> int:
    """How often a node found a token revoked."""
    counters = node.control.status(node.clock())["counters"]
    assert isinstance(counters, dict)
    return int(counters.get("tokens_revoked", 0))


@pytest.mark.parametrize("faults", [CLEAR, BAD])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_revoked_token_is_refused_everywhere_within_a_lease(seed: int, faults: Faults) -> None:
    net = Revoking(seed, faults)
    assert net.is_allowed(net.victim)
    assert net.is_allowed(net.other)
    net.revoke(net.victim)
    net.world.run_until(lambda: net.known() == [1, 1, 1], timers.LEASE)
    assert not net.is_allowed(net.victim)
    assert net.is_allowed(net.other)


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_that_restart_meanwhile_learn_it(seed: int, remembers: bool) -> None:
    net = Revoking(seed, BAD)
    tree = net.tree
    net.revoke(net.victim)
    for subtree in ("home", "home/kitchen"):
        tree.nodes[subtree].kill()
        net.world.run(timers.SECOND)
        tree.nodes[subtree] = tree.nodes[subtree].restart(remembers=remembers)
        net.revoke(net.tree.client())
    net.world.run_until(lambda: all(map(tree.serves, tree.nodes.values())))
    net.world.run_until(lambda: net.known() == [3, 3, 3], timers.LEASE)
    assert not net.is_allowed(net.victim)
    assert net.is_allowed(net.other)


def test_it_holds_when_the_root_is_dead_also_for_a_node_that_restarts() -> None:
    net = Revoking(3, CLEAR)
    tree, world = net.tree, net.world
    assert net.is_allowed(net.victim)
    assert net.is_allowed(net.other)
    net.revoke(net.victim)
    world.run_until(lambda: net.known() == [1, 1, 1], timers.LEASE)
    world.run(timers.SECOND)
    tree.root.kill()
    kitchen = tree.nodes["home/kitchen"]
    assert refused(kitchen) > 0
    assert not net.is_allowed(net.victim, TOPICS[1:])
    assert net.is_allowed(net.other, TOPICS[1:])
    kitchen.kill()
    kitchen = tree.nodes["home/kitchen"] = kitchen.restart(remembers=True)
    assert len(kitchen.control.revocations) == 1
    assert not refused(kitchen)
    # It serves nothing without the root. But it knows whom it refuses.
    net.victim.publish("home/kitchen/lamp", b"", 1)
    world.run_until(lambda: refused(kitchen) > 0)


def test_many_records_reach_a_node_that_joins_before_it_serves() -> None:
    net = Revoking(4, CLEAR)
    for _ in range(40):
        net.revoke(net.other)
    file = net.revoke(net.victim)
    net.world.run_until(lambda: net.known() == [41, 41, 41], timers.LEASE)
    assert len(file.records) == 41 * 92
    cook = net.tree.join("home/cook", wait=False)
    net.world.run_until(lambda: cook.is_serving_subtree("$SYS/nodes/cook"))
    assert len(cook.control.revocations) == 41
