"""One round: a new broker, and `hbroker bench` with it, in a process of its own on the load's CPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.contestants.brokers import Broker
from bench.plan import Plan
from hbroker.bench.brokers import Broker as Running
from hbroker.bench.brokers import running
from hbroker.bench.launching import NoAnswer, ended

_PAYLOAD_BYTES: Final = 64
_PATIENCE_S: Final = 60.0
"""Seconds for connecting, and until the last message has arrived."""
_HBROKER_BENCH: Final = (sys.executable, "-m", "hbroker", "bench")


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds: before the first mark, and between the two marks."""

    warm_up: float
    duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The result of one round.

    Shares of a CPU: 1.0 is one whole CPU. `sent` counts messages; `delivered` and `lost` count copies, one
    for each subscriber. `apart_ns`: the distance of the broker's and the load's CPU, before or after the
    round, whichever is larger (`bench.apart`). Not every load reports the fields with a default.
    """

    broker: str
    qos: int
    pairs: int
    subscribers: int
    rate: int | None
    seconds: float
    delivered_per_s: float
    delivered_per_cpu_s: float
    broker_cpu: float
    broker_cpu_s: float
    broker_rss_bytes: int = 0
    generator_cpu: float = 0.0
    others_cpu: float = 0.0
    apart_ns: float | None = None
    latency_us: dict[str, float] | None = None
    sent: int
    delivered: int
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    disordered: int = 0
    corrupted: int = 0
    stalls: int = 0
    refusals: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every message arrived once, in order and undamaged."""
        return not (self.lost or self.duplicated or self.disordered or self.corrupted or self.stalls)


def measure_generated(
    broker: Broker,
    plan: Plan,
    timing: Timing,
    broker_cpus: frozenset[int],
    load: Sequence[str] = _HBROKER_BENCH,
) -> Round:
    """Runs one round with a new broker.

    `load`: a command with the flags and the JSON of `hbroker bench`. Raises NoAnswer if the broker or its
    load does not start, or ends.
    """
    with up(broker, broker_cpus) as standing:
        return standing.measure(plan, timing, load)


@dataclass(frozen=True, slots=True)
class Standing:
    """A running broker, for any number of rounds."""

    broker: Broker
    processes: Running

    def measure(self, plan: Plan, timing: Timing, load: Sequence[str] = _HBROKER_BENCH) -> Round:
        """Runs one round. Raises NoAnswer if the load does not start, or the broker ends."""
        host, port = self.processes.address
        flags: dict[str, object] = {
            "--transport": self.broker.transport,
            "--to": f"{host}:{port}",
            "--broker-pid": self.processes.pids[0],
        }
        authority, token = self.processes.authority, self.processes.token
        environment = {"HBROKER_AUTHORITY": authority, "HBROKER_TOKEN": token} if authority else {}
        reported = _reported(self.broker.name, load, plan, timing, flags, environment)
        return _round(self.broker.name, plan, reported)


@contextmanager
def up(broker: Broker, cpus: frozenset[int]) -> Iterator[Standing]:
    """Starts a broker on these CPUs, and ends it. Raises NoAnswer if it does not start."""
    with (
        TemporaryDirectory(prefix="hbroker-bench-") as directory,
        running(broker.start, Path(directory), cpus) as processes,
    ):
        yield Standing(broker, processes)


def _round(name: str, plan: Plan, reported: dict[str, Any]) -> Round:
    """The round of a load's output, with the load's plan."""
    told = {
        **reported,
        "broker": name,
        "pairs": plan.pairs,
        "subscribers": plan.subscribers,
        "rate": plan.rate,
        # In a closed loop the latency only shows the length of the window.
        "latency_us": None if plan.rate is None else reported["latency_us"],
        "corrupted": reported["damaged"],
        "refusals": reported["refused"],
    }
    return Round(**{field.name: told[field.name] for field in fields(Round) if field.name in told})


def _reported(
    name: str,
    load: Sequence[str],
    plan: Plan,
    timing: Timing,
    target: dict[str, object],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """The output of a load on one broker."""
    layout, clients = plan.layout
    flags = {
        **target,
        "--clients": clients,
        "--cpus": ",".join(map(str, sorted(plan.cpus))),
        "--qos": plan.qos,
        "--payload": _PAYLOAD_BYTES,
        "--window": plan.window,
        "--warm-up": timing.warm_up,
        "--duration": timing.duration,
    }
    if plan.rate is not None:
        flags["--rate"] = plan.rate
    if plan.topics > 1:
        flags["--topics"] = plan.topics
    command = [*load, layout, "--json"]
    if plan.rate is not None and load is _HBROKER_BENCH:
        command.append("--poll")  # As the client of the kernel's limit does.
    command += [str(word) for flag in flags.items() for word in flag]
    return told_by(name, command, timing.warm_up + timing.duration + _PATIENCE_S, environment)


def told_by(
    name: str, command: Sequence[str], patience_s: float, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON output of a load, also if messages were lost. Raises NoAnswer, whose text begins with `name`.

    `environment`: of the load, beside that of this process.
    """
    env = {**os.environ, **(environment or {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        try:
            output, complaint = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"{name}: the load did not end") from None
        finally:
            if process.poll() is None:
                ended(process)
    if not output:
        raise NoAnswer(f"{name}: {complaint.decode().strip()}")
    reported: dict[str, Any] = json.loads(output)
    return reported
