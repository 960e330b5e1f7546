"""Plans in which a node's machine loses power with a part of its records on disk (docs/protocol.md §5.10).
They are for defects in reading and writing files, which the plans of the soak seldom trigger."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hbroker.sim.network.actions import (
    Action,
    Crash,
    Falter,
    FillDisk,
    Join,
    LosePower,
    MendDisk,
    Publish,
    Restart,
    Subscribe,
)
from hbroker.sim.network.drawing import draw
from hbroker.sim.network.paths import CLEAR
from hbroker.sim.network.plan import ROOT, SECOND, NodePlan, Plan

__all__ = ["with_full_disk", "with_late_sync", "with_lost_subscription"]

CHILD: Final = "n"
BYTES: Final = 16
"""The room on the disk grows by this number of bytes with each seed."""
TOPIC: Final = "home/lamp"
FIRST: Final = Subscribe(0, "s0", TOPIC, 1)
LATER: Final = SECOND // 100
"""The power loss is later by this time with each seed."""


def with_full_disk(seed: int) -> Plan:
    """The disk accepts only the first bytes of the parent's records of a delegation."""
    return _plan(
        seed,
        500,
        FIRST,
        FillDisk(SECOND, ROOT, BYTES * seed),
        Join(2 * SECOND, CHILD),
        LosePower(4 * SECOND, ROOT),
        MendDisk(4 * SECOND + 1, ROOT),
        Restart(4 * SECOND + 2, ROOT),
    )


def with_late_sync(seed: int) -> Plan:
    """The power is lost before the parent's records are synced. Its process crashes once more when it has
    written the same records again."""
    return _plan(
        seed,
        300_000,
        FIRST,
        Join(2 * SECOND, CHILD),
        LosePower(2 * SECOND + LATER * seed, ROOT),
        Restart(5 * SECOND, ROOT),
        Crash(20 * SECOND, ROOT),
        Restart(20 * SECOND + 1, ROOT),
    )


def with_lost_subscription(seed: int) -> Plan:
    """The power is lost before a subscription is synced, and messages are published as soon as the node is
    back."""
    lost = 2 * SECOND + LATER * seed
    messages = (Publish(lost + tenth * SECOND // 10, "p0", TOPIC, 1, 20) for tenth in range(1, 30))
    return _plan(
        seed,
        300_000,
        Subscribe(2 * SECOND, "s0", TOPIC, 1),
        Falter(lost, ROOT, with_machine=True),
        Restart(lost + SECOND // 5, ROOT),
        *messages,
    )


def _plan(seed: int, sync_us: int, *actions: Action) -> Plan:
    return replace(
        draw(2),
        seed=seed,
        nodes=(NodePlan(ROOT, "", sync_us=sync_us), NodePlan(CHILD, "home", sync_us=sync_us)),
        first=(ROOT,),
        clients=("p0", "s0"),
        expiries={},
        credits={},
        topics=(TOPIC,),
        paths=CLEAR,
        bandwidth_bps=None,
        join_key=b"",
        paces={},
        queue_messages=0,
        actions=actions,
    )
