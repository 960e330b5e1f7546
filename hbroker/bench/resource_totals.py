"""The resources that broker, load and machine have used up to a moment, and the difference of two moments.

All totals are read at one moment. The load runs in this process. CPU time of the machine that neither the
load nor the broker used was used by others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from hbroker.bench.process import cpu_seconds, machine_busy_seconds, resident_bytes

__all__ = ["ResourceTotals", "Spent"]


@dataclass(frozen=True, slots=True)
class ResourceTotals:
    """Totals up to one moment.

    `at`: seconds of a monotonic clock. CPU seconds: `broker`, of all its processes; `ours`, of this process;
    `machine`, of all processes. `resident`: bytes of the broker in RAM.
    """

    at: float
    broker: float
    ours: float
    machine: float
    resident: int

    @classmethod
    def now(cls, pids: Sequence[int]) -> ResourceTotals:
        """The totals of this moment. `pids`: of the broker; (): unknown, and its values are 0."""
        return cls(
            at=time.monotonic(),
            broker=cpu_seconds(pids),
            ours=time.process_time(),  # /proc counts ticks of 10 ms, more than a small load takes.
            machine=machine_busy_seconds(),
            resident=resident_bytes(pids),
        )

    def until(self, later: ResourceTotals) -> Spent:
        """What was spent from this moment to a later one."""
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
    """What the broker, this process and others spent between two moments. `grown_bytes`: of the broker's
    memory."""

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
        """As a share of a CPU."""
        return self.ours_cpu_s / self.seconds

    @property
    def others_cpu(self) -> float:
        """As a share of a CPU."""
        return self.others_cpu_s / self.seconds
