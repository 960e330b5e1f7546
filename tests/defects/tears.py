"""Plans in which a parent's machine loses power with a part of what it noted on its disk (docs/protocol.md
§5.10): for defects in what writes and reads files, which plans of the soak seldom meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hbroker.sim.network.actions import (
    Action,
    Crash,
    FillDisk,
    Join,
    LosePower,
    MendDisk,
    Restart,
    Subscribe,
)
from hbroker.sim.network.drawing import draw
from hbroker.sim.network.paths import CLEAR
from hbroker.sim.network.plan import ROOT, SECOND, NodePlan, Plan

__all__ = ["by_a_full_disk", "by_a_late_sync"]

CHILD: Final = "n"
BYTES: Final = 16
"""By how much more room there is on the disk with each seed."""
LATER: Final = SECOND // 100
"""By how much later the power is lost with each seed."""


def by_a_full_disk(seed: int) -> Plan:
    """The disk takes only the first bytes of what the parent notes as it delegates."""
    return _plan(
        seed,
        500,
        FillDisk(SECOND, ROOT, BYTES * seed),
        Join(2 * SECOND, CHILD),
        LosePower(4 * SECOND, ROOT),
        MendDisk(4 * SECOND + 1, ROOT),
        Restart(4 * SECOND + 2, ROOT),
    )


def by_a_late_sync(seed: int) -> Plan:
    """The power is lost before what the parent notes is synced, and its process dies once more when it has
    noted the same again."""
    return _plan(
        seed,
        300_000,
        Join(2 * SECOND, CHILD),
        LosePower(2 * SECOND + LATER * seed, ROOT),
        Restart(5 * SECOND, ROOT),
        Crash(20 * SECOND, ROOT),
        Restart(20 * SECOND + 1, ROOT),
    )


def _plan(seed: int, sync_us: int, *actions: Action) -> Plan:
    topic = "home/lamp"
    return replace(
        draw(2),
        seed=seed,
        nodes=(NodePlan(ROOT, "", sync_us=sync_us), NodePlan(CHILD, "home", sync_us=sync_us)),
        first=(ROOT,),
        clients=("p0", "s0"),
        expiries={},
        credits={},
        topics=(topic,),
        paths=CLEAR,
        bandwidth_bps=None,
        join_key=b"",
        paces={},
        queue_messages=0,
        actions=(Subscribe(0, "s0", topic, 1), *actions),
    )
