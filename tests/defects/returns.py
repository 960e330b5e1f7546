"""Plans in which a subtree comes back to a node that was killed meanwhile (docs/protocol.md §5.4). They are
for defects in handovers, which the plans of the soak trigger once in a thousand seeds."""

from __future__ import annotations

from random import Random
from typing import Final

from hbroker.protocol import timers
from hbroker.sim.network.actions import Action, Falter, Join, Move, Publish, Restart, Subscribe
from hbroker.sim.network.plan import ROOT, SECOND, NodePlan, Plan
from tests.defects.calm import calm_plan

__all__ = ["before_disk_is_synced", "within_idle_timeout"]

TOPIC: Final = "home/oven/lamp"
EVERY: Final = SECOND // 100
DELAY: Final = 5_000


def within_idle_timeout(seed: int) -> Plan:
    """A node is handed a subtree while the client has its link to the node's run before. It is handed the
    subtree again just when the link that it opened has been idle for too long."""
    handed = 3 * SECOND + 4 * SECOND // 10
    again = handed + timers.IDLE_TIMEOUT - Random(seed).randrange(SECOND // 10)
    return _plan(
        seed,
        500,
        Subscribe(0, "s0", TOPIC, 1),
        Move(SECOND, "home", "b"),
        Move(2 * SECOND, "home", "a"),
        Falter(3 * SECOND, "b", with_machine=False),
        Restart(3 * SECOND + SECOND // 10, "b"),
        Move(handed, "home", "b"),
        Move(handed + SECOND // 5, "home", "a"),
        Move(again, "home", "b"),
        *_messages(again, again + SECOND),
    )


def before_disk_is_synced(seed: int) -> Plan:
    """A node hands a subtree back as soon as it has it, and is killed before its disk is synced."""
    moves = 2 * SECOND
    returns = moves + SECOND // 4
    killed = returns + 3 * DELAY + Random(seed).randrange(3 * DELAY)
    return _plan(
        seed,
        300_000,
        Subscribe(0, "s0", TOPIC, 1),
        Join(SECOND // 2, "c"),
        Move(moves, "home", "b"),
        Move(returns, "home", "a"),
        Falter(killed, "b", with_machine=False),
        Restart(killed + SECOND // 10, "b"),
    )


def _messages(begin: int, end: int) -> list[Action]:
    return [Publish(at, "p0", TOPIC, 1, 20) for at in range(begin, end, EVERY)]


def _plan(seed: int, sync_us: int, *actions: Action) -> Plan:
    """`sync_us`: of the node to which the subtree moves."""
    subtrees = {ROOT: "", "a": "home", "b": "garden", "c": "home/oven"}
    nodes = (
        NodePlan(name, subtree, sync_us=sync_us if name == "b" else 500) for name, subtree in subtrees.items()
    )
    return calm_plan(seed, nodes, (ROOT, "a", "b"), TOPIC, DELAY, actions)
