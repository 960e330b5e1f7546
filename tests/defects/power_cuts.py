"""Plans in which a node with a store loses power while messages for a client that is offline are acknowledged
(docs/protocol.md §7.3). The plans of the soak rarely cut the power within the time that a sync takes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from hbroker.sim.network.actions import Depart, LosePower, Publish, Restart, Subscribe
from hbroker.sim.network.drawing import draw
from hbroker.sim.network.paths import Faults
from hbroker.sim.network.plan import ROOT, SECOND, NodePlan, Plan

__all__ = ["while_messages_wait"]

TOPIC: Final = "home/lamp"
EVERY: Final = SECOND // 100
DELAY: Final = 2_000
SYNC: Final = 50_000
"""Several messages arrive while one sync runs."""


def while_messages_wait(seed: int) -> Plan:
    """The owner's machine loses power in the middle of a stream of messages. Its next run has its files, and
    the client comes back."""
    cut = 2 * SECOND + Random(seed).randrange(SECOND)
    return replace(
        draw(2),
        seed=seed,
        nodes=(NodePlan(ROOT, "", sync_us=500), NodePlan("a", "home", sync_us=SYNC, has_store=True)),
        first=(ROOT, "a"),
        clients=("p0", "s0"),
        expiries={"s0": 3_600},
        credits={},
        topics=(TOPIC,),
        paths=Faults(delay_us=DELAY),
        bandwidth_bps=None,
        join_key=b"",
        paces={},
        queue_messages=0,
        for_many=(),
        actions=(
            Subscribe(0, "s0", TOPIC, 1),
            Depart(SECOND, "s0", ends_session=False),
            *(Publish(at, "p0", TOPIC, 1, 20) for at in range(SECOND, cut + SECOND, EVERY)),
            LosePower(cut, "a"),
            Restart(cut + SECOND // 10, "a"),
            Restart(cut + 2 * SECOND, "s0"),
        ),
    )
