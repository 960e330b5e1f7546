"""A plan in which nothing happens by itself: the defects that have plans of their own begin with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hbroker.sim.network.actions import Action
from hbroker.sim.network.paths import Faults
from hbroker.sim.network.plan import NodePlan, Plan

__all__ = ["calm_plan"]


def calm_plan(
    seed: int,
    nodes: Iterable[NodePlan],
    first: tuple[str, ...],
    topic: str,
    delay_us: int,
    actions: tuple[Action, ...],
    expiries: Mapping[str, int] | None = None,
) -> Plan:
    """A publisher `p0`, a subscriber `s0`, one topic, paths that lose nothing, no join key. `expiries`: as in
    `Plan`."""
    return Plan(
        seed=seed,
        nodes=tuple(nodes),
        first=first,
        clients=("p0", "s0"),
        expiries=expiries or {},
        topics=(topic,),
        paths=Faults(delay_us=delay_us),
        bandwidth_bps=None,
        actions=actions,
    )
