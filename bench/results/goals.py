"""The performance goals, and whether they are reached: ratios of medians within one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Quantity: TypeAlias = Literal["delivered_per_cpu_s", "p50", "p99"]
Figures: TypeAlias = Mapping[tuple[str, str, Quantity], float]
"""Medians, by load, contestant and quantity."""

_UNITS: Final[dict[Quantity, str]] = {
    "delivered_per_cpu_s": "msg/broker CPU-s",
    "p50": "p50",
    "p99": "p99",
}


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal that under a load the value of `ours` is at least, or at most, `factor` times that of `peer`.

    Without a peer, `factor` is the value itself.
    """

    load: str
    quantity: Quantity
    ours: str
    factor: float
    peer: str | None
    bound: Literal["at least", "at most"] = "at least"

    def __str__(self) -> str:
        than = f"{self.factor:g} x {self.peer}" if self.peer else f"{self.factor / 1e6:g} M"
        return f"{self.load}, {_UNITS[self.quantity]}, {self.ours}: {self.bound} {than}"


@dataclass(frozen=True, slots=True)
class GoalResult:
    """The result of a goal. `found`: the ratio, or the value; None: one of the two was not measured."""

    goal: Goal
    found: float | None

    @property
    def is_held(self) -> bool | None:
        """Whether the goal is reached; None: unknown."""
        if self.found is None:
            return None
        at_least = self.goal.bound == "at least"
        return self.found >= self.goal.factor if at_least else self.found <= self.goal.factor

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.goal}: not measured"
        found = f"{self.found:.2f}" if self.goal.peer else f"{self.found / 1e6:.2f} M"
        return f"{self.goal}: {found}: {'held' if self.is_held else 'not held'}"


def judge(figures: Figures, goals: Iterable[Goal]) -> list[GoalResult]:
    """Compares each goal with the measured figures."""
    return [GoalResult(goal, _found(figures, goal)) for goal in goals]


def _found(figures: Figures, goal: Goal) -> float | None:
    ours = figures.get((goal.load, goal.ours, goal.quantity))
    if goal.peer is None or ours is None:
        return ours
    theirs = figures.get((goal.load, goal.peer, goal.quantity))
    return ours / theirs if theirs else None


_PAIRS_0: Final = "8 pairs, QoS 0"
_PAIRS_1: Final = "8 pairs, QoS 1"
_FAN_OUT: Final = "1 to 1,000, QoS 0"
_FAN_IN: Final = "8 to 1, QoS 0"
_PACED: Final = "1 pair, QoS 0, 2000/s"
_OURS: Final = "hbroker"
_GATEWAY: Final = "hbroker gateway"
_RATE: Final = "delivered_per_cpu_s"


GOALS: Final[Sequence[Goal]] = (
    Goal(_PAIRS_0, _RATE, _OURS, 2, "nats-server"),
    Goal(_PAIRS_0, _RATE, _OURS, 3, "zenoh TCP"),
    Goal(_PAIRS_0, _RATE, _OURS, 12, "zenoh UDP"),
    Goal(_PAIRS_0, _RATE, _OURS, 50, "mosquitto"),
    Goal(_PAIRS_0, _RATE, "hbroker, MTU 1,500", 0.35, "kernel"),
    Goal(_PAIRS_1, _RATE, _OURS, 2.5e6, None),
    Goal(_PAIRS_1, _RATE, _OURS, 25, "mosquitto"),
    Goal(_FAN_OUT, _RATE, _OURS, 1.2, "nats-server"),
    Goal(_FAN_IN, _RATE, _OURS, 1.2, "nats-server"),
    Goal(_PACED, "p50", _OURS, 1.25, "kernel", "at most"),
    Goal(_PACED, "p50", _OURS, 1, "mosquitto", "at most"),
    Goal(_PACED, "p99", _OURS, 1.5, "kernel", "at most"),
    Goal(_PAIRS_0, _RATE, _GATEWAY, 8, "mosquitto"),
    Goal(_PAIRS_0, _RATE, _GATEWAY, 1, "nats-server MQTT"),
    Goal(_PAIRS_1, _RATE, _GATEWAY, 8, "mosquitto"),
    Goal(_FAN_OUT, _RATE, _GATEWAY, 10, "mosquitto"),
    Goal(_PACED, "p50", _GATEWAY, 2, "mosquitto", "at most"),
    Goal(_PACED, "p99", _GATEWAY, 2, "mosquitto", "at most"),
)
