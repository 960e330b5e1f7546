"""A round whose load is `hbroker bench`: a native generator, in a process of its own on the load's CPUs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.brokers import Broker, Running, running
from bench.plan import Plan
from bench.rounds import Round, Timing
from bench.transport import PAYLOAD_BYTES
from hbroker.bench.launching import NoAnswer, ended

__all__ = ["measure_generated"]

_PATIENCE_S: Final = 60.0
"""To connect, and until the last message has arrived."""
_HBROKER_BENCH: Final = (sys.executable, "-m", "hbroker", "bench")


def measure_generated(
    broker: Broker,
    plan: Plan,
    timing: Timing,
    broker_cpus: frozenset[int],
    load: Sequence[str] = _HBROKER_BENCH,
) -> Round:
    """As `bench.rounds.measure`. `load`: a command with the flags and the JSON of `hbroker bench`. Raises
    NoAnswer where the broker or its load does not come up, or goes away."""
    with (
        TemporaryDirectory(prefix="hbroker-bench-") as directory,
        running(broker, Path(directory), broker_cpus) as node,
    ):
        told = _told(broker, node, plan, timing, load)
    return Round(
        broker=broker.name,
        qos=plan.qos,
        pairs=plan.pairs,
        subscribers=plan.subscribers,
        rate=plan.rate,
        publisher_cpu=None,
        subscriber_cpu=None,
        messages_per_datagram_in=None,
        messages_per_datagram_out=None,
        # As fast as it goes, it says how long the window is.
        latency_us=None if plan.rate is None else told["latency_us"],
        corrupted=told["damaged"],
        refusals=told["refused"],
        **{name: told[name] for name in _SAME},
    )


_SAME: Final = (
    "seconds",
    "delivered_per_s",
    "delivered_per_cpu_s",
    "broker_cpu",
    "broker_cpu_s",
    "broker_rss_bytes",
    "generator_cpu",
    "others_cpu",
    "sent",
    "delivered",
    "acknowledged",
    "lost",
    "duplicated",
    "disordered",
    "stalls",
)
"""Fields that have one name in both."""


def _told(broker: Broker, node: Running, plan: Plan, timing: Timing, load: Sequence[str]) -> dict[str, Any]:
    """What it says as JSON, also where something is lost."""
    flags = {
        "--transport": broker.transport,
        "--to": f"{node.address[0]}:{node.address[1]}",
        "--broker-pid": node.pids[0],
        "--cpus": ",".join(map(str, sorted(plan.cpus))),
        "--qos": plan.qos,
        "--payload": PAYLOAD_BYTES,
        "--window": plan.window,
        "--warm-up": timing.warm_up,
        "--duration": timing.duration,
    }
    layout, clients = plan.layout
    command = [*load, layout, "--clients", str(clients), "--json"]
    command += [str(word) for flag in flags.items() for word in flag]
    if plan.rate is not None:
        command += ["--rate", str(plan.rate)]
    patience = timing.warm_up + timing.duration + _PATIENCE_S
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            said, complaint = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"{broker.name}: the load did not end") from None
        finally:
            if process.poll() is None:
                ended(process)
    if not said:
        raise NoAnswer(f"{broker.name}: {complaint.decode().strip()}")
    told: dict[str, Any] = json.loads(said)
    return told
