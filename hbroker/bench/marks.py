"""What a measurement costs: marks at its begin and its end, and what was spent between them.

A mark reads everything at one moment. The load runs in this process; what neither it nor the broker took of
the machine's CPUs, others took.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from hbroker.bench.process import cpu_seconds, machine_busy_seconds, resident_bytes

__all__ = ["Mark", "Spent"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to one moment. `at`: seconds by a clock that does not step. CPU-seconds: `broker`, of all its
    processes; `ours`, of this one; `machine`, of everybody. `resident`: bytes that the broker has in RAM."""

    at: float
    broker: float
    ours: float
    machine: float
    resident: int

    @classmethod
    def now(cls, pids: Sequence[int]) -> Mark:
        """`pids`: the broker's; (): they are not known, and nothing is told of them."""
        return cls(
            at=time.monotonic(),
            broker=cpu_seconds(pids),
            ours=time.process_time(),  # The ticks of /proc are 10 ms, which a small load may not reach.
            machine=machine_busy_seconds(),
            resident=resident_bytes(pids),
        )

    def until(self, later: Mark) -> Spent:
        """What was spent from here to there."""
        broker, ours = later.broker - self.broker, later.ours - self.ours
        return Spent(
            seconds=later.at - self.at,
            broker_cpu_s=broker,
            ours_cpu_s=ours,
            others_cpu_s=max(0.0, later.machine - self.machine - broker - ours),
            grown_bytes=later.resident - self.resident,
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """Between two marks: by the broker, by this process, by others. `grown_bytes`: of the broker's memory."""

    seconds: float
    broker_cpu_s: float
    ours_cpu_s: float
    others_cpu_s: float
    grown_bytes: int

    @property
    def broker_cpu(self) -> float:
        """As a share of a CPU: 1.0 is one whole CPU."""
        return self.broker_cpu_s / self.seconds

    @property
    def ours_cpu(self) -> float:
        """Likewise."""
        return self.ours_cpu_s / self.seconds

    @property
    def others_cpu(self) -> float:
        """Likewise."""
        return self.others_cpu_s / self.seconds
