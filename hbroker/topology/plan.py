"""Reads the section `plan` of a topology file: what the load analysis expects of the nodes
(docs/analysis.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from hbroker.topology.document import Report

__all__ = ["PLAN_KEYS", "Plan", "is_alike", "read_plan"]

MOST_APART: Final = 2.0
"""The largest ratio between two loads of the same traffic."""

PLAN_KEYS: Final = ("in_us", "out_us", "predicted")


@dataclass(frozen=True, slots=True)
class Plan:
    """What the load analysis expects of this topology (docs/analysis.md).

    `in_us`, `out_us`: microseconds of CPU time for each message that a node receives, and for each copy that
    it sends. `predicted`: the load of each node, by name, in CPU-seconds per second, at the analysed traffic.
    """

    in_us: float
    out_us: float
    predicted: tuple[tuple[str, float], ...]

    def load(self, messages_in: float, messages_out: float) -> float:
        """The load of a node, in CPU-seconds per second, for these messages per second."""
        return (messages_in * self.in_us + messages_out * self.out_us) / 1e6


def is_alike(expected: float, measured: float) -> bool:
    """Whether two loads can be of the same traffic, each summed over all nodes: neither is more than
    `MOST_APART` times the other."""
    return expected <= MOST_APART * measured and measured <= MOST_APART * expected


def read_plan(node: yaml.Node, nodes: Sequence[str], report: Report) -> Plan:
    """Reads the section `plan` of a file whose nodes have these names."""
    values = report.mapping(node, "plan", PLAN_KEYS)
    remedy = "have `hbroker analyze` write it, or remove `plan`"
    report.require(node, "plan", values, dict.fromkeys(PLAN_KEYS, remedy))
    loads = {}
    if "predicted" in values:
        loads = report.mapping(values["predicted"], "predicted", tuple(nodes))
    read = {name: report.number(value, f"the load of {name}") for name, value in loads.items()}
    costs = {key: report.number(values[key], key) for key in ("in_us", "out_us") if key in values}
    return Plan(
        in_us=costs.get("in_us") or 0.0,
        out_us=costs.get("out_us") or 0.0,
        predicted=tuple((name, load) for name, load in read.items() if load is not None),
    )
