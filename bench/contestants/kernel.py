"""The kernel's limit, measured beside the brokers with two programs in C from bench/limits.

`udplimit` relays bundles: it takes messages out of datagrams of 1,400 bytes (received with UDP_GRO), does one
look-up for each, and sends them with UDP_SEGMENT. A message has 112 bytes there, as one of 64 bytes has on
hbroker's wire. `udplat` relays one message in a datagram at a fixed rate; the relay sleeps until it arrives.
"""

from __future__ import annotations

import re
import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.apart import compiled
from bench.plan import Plan
from bench.rounds import Round, Timing
from bench.series import Contestant
from hbroker.bench.launching import NoAnswer
from hbroker.bench.process import machine_busy_seconds

_PATIENCE_S: Final = 30.0
_PAYLOAD_BYTES: Final = "64"
_NUMBER: Final = r"(-?\d+(?:\.\d+)?)"


@dataclass(frozen=True, slots=True)
class Limit:
    """The two programs, and the directory in which they are built."""

    directory: Path

    def built(self) -> str | None:
        """Builds the programs. None: it succeeded; otherwise the reason why not."""
        return next((why for name in ("udplimit", "udplat") if (why := compiled(name, self.directory))), None)

    def contestant(self, name: str) -> Contestant:
        """The limit as a contestant."""
        return Contestant(name, lambda: "(bench/limits)", self.measure, is_checked=False)

    def measure(self, plan: Plan, timing: Timing, broker_cpus: frozenset[int]) -> Round:
        """Measures one round with `udplimit`, or, at a rate, with `udplat`. Raises NoAnswer."""
        seconds = max(1, round(timing.duration))
        relay, load = str(min(broker_cpus)), str(min(plan.cpus))
        if plan.rate is None:
            flags = ["-R", relay, "-S", load, "-K", load, "-d", str(seconds)]
            return parse_udplimit(self._said("udplimit", flags), seconds, plan)
        flags = ["-r", str(plan.rate), "-s", _PAYLOAD_BYTES, "-R", relay, "-K", load, "-d", str(seconds)]
        before = _used()
        found = parse_udplat(self._said("udplat", flags), seconds, plan)
        passed, machine, ours = (now - then for now, then in zip(_used(), before, strict=True))
        client = max(0.0, ours / passed - found.broker_cpu)
        return replace(found, generator_cpu=client, others_cpu=max(0.0, machine - ours) / passed)

    def _said(self, name: str, flags: Sequence[str]) -> str:
        try:
            done = subprocess.run(
                [str(self.directory / name), *flags],
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"{name} did not end") from None
        if done.returncode or not done.stdout:
            raise NoAnswer(f"{name}: {done.stderr.strip() or 'it said nothing'}")
        return done.stdout


def parse_udplimit(line: str, seconds: float, plan: Plan) -> Round:
    """The round that `udplimit` printed. Raises NoAnswer for other output."""
    relay, sender, sink = (_after(line, name) / 100 for name in ("relay cpu", "sender", "sink"))
    per_s = _after(line, "msg_out/s")
    return _round(
        "udplimit",
        seconds,
        plan,
        relay=relay,
        delivered=per_s * seconds,
        delivered_per_s=per_s,
        delivered_per_cpu_s=_after(line, "msg/cpu-s"),
        generator_cpu=sender + sink,
        others_cpu=max(0.0, _after(line, "others cpu") / 100),
        sent=round(_after(line, "msg_in/s") * seconds),
    )


def parse_udplat(line: str, seconds: float, plan: Plan) -> Round:
    """The round that `udplat` printed. Raises NoAnswer for other output."""
    got, relay = _after(line, "got"), _after(line, "relay cpu") / 100
    percentiles = {"p50": "p50", "p90": "p90", "p99": "p99", "p999": r"p99\.9"}
    return _round(
        "udplat",
        seconds,
        plan,
        relay=relay,
        delivered=got,
        delivered_per_s=got / seconds,
        delivered_per_cpu_s=got / (relay * seconds) if relay else 0.0,
        latency_us={name: _after(line, reported) for name, reported in percentiles.items()},
        sent=round(_after(line, "sent")),
    )


def _used() -> tuple[float, float, float]:
    """The time, and the CPU seconds of the machine and of this process's children, until now."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), machine_busy_seconds(), children.ru_utime + children.ru_stime


def _after(line: str, name: str) -> float:
    """The number after this name. Raises NoAnswer if there is none."""
    found = re.search(rf"(?<!\S){name} {_NUMBER}", line)
    if found is None:
        raise NoAnswer(f"no {name} in {line.strip()!r}")
    return float(found[1])


def _round(
    name: str, seconds: float, plan: Plan, *, relay: float, delivered: float, **reported: Any
) -> Round:
    """A round in which the relay used this share of a CPU, and delivered this number of messages."""
    return Round(
        broker=name,
        qos=plan.qos,
        pairs=plan.pairs,
        subscribers=plan.subscribers,
        rate=plan.rate,
        seconds=seconds,
        broker_cpu=relay,
        broker_cpu_s=relay * seconds,
        delivered=round(delivered),
        **reported,
    )
