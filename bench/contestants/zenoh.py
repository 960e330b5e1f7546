"""Eclipse Zenoh: its router, over TCP or UDP, and a load of native clients, both in one Rust program.

The program is built from bench/zenoh into target/zenoh. Its load has the window, the payload, the checks, the
flags and the JSON of `hbroker bench`. There is no counterpart of QoS 1: a Zenoh router does not acknowledge
to publishers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from bench.plan import Plan
from bench.rounds import Round, Timing, measure_generated
from hbroker.bench.brokers import Started
from hbroker.bench.launching import NoAnswer, announcement, free_port, launch

_ROOT: Final = Path(__file__).resolve().parents[2]
_SOURCE: Final = _ROOT / "bench" / "zenoh"
_TARGET: Final = _ROOT / "target" / "zenoh"
_PROGRAM: Final = _TARGET / "release" / "zenoh-bench"
_BUILD_S: Final = 3_600.0


@cache
def built() -> str | None:
    """Builds the program, which takes minutes the first time and a moment later. None: it succeeded;
    otherwise the reason why not."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return "cargo is not installed"
    print("building Zenoh (bench/zenoh), where it has changed", file=sys.stderr, flush=True)
    command = ["nice", "-n", "10", cargo, "build", "--release", "--locked", "--target-dir", str(_TARGET)]
    try:
        done = subprocess.run(
            command, cwd=_SOURCE, stderr=subprocess.PIPE, text=True, timeout=_BUILD_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "cargo did not build bench/zenoh in time"
    if done.returncode == 0:
        return None
    complaint = next(
        (line for line in done.stderr.splitlines() if line.startswith("error")), "no reason told"
    )
    return f"cargo could not build bench/zenoh: {complaint}"


@dataclass(frozen=True, slots=True)
class Zenoh:
    """A router without plugins, as `zenohd` starts it. `transport`: of its clients."""

    transport: Literal["tcp", "udp"]

    @property
    def name(self) -> str:
        return f"zenoh {self.transport.upper()}"

    def version(self) -> str | None:
        if not _PROGRAM.exists():
            return None
        locked = (_SOURCE / "Cargo.lock").read_text("utf-8")
        found = re.search(r'name = "zenoh"\nversion = "([^"]+)"', locked)
        return found[1] if found else "unknown"

    def start(self, directory: Path) -> Started:
        address = ("127.0.0.1", free_port(udp=self.transport == "udp"))
        to = ["--transport", self.transport, "--to", f"{address[0]}:{address[1]}"]
        with launch(directory, [str(_PROGRAM), "router", *to, "--config", _CONFIG]) as process:
            if (line := announcement(process)) != "ready":
                raise NoAnswer(f"the router did not become ready: {line}")
            return process, address


def measure_zenoh(broker: Zenoh, plan: Plan, timing: Timing, broker_cpus: frozenset[int]) -> Round:
    """As `bench.rounds.measure_generated`, with Zenoh's clients.

    They block rather than drop. At a rate, no message waits for others to be sent with it.
    """
    if broker.transport == "udp":
        plan = replace(plan, window=min(plan.window, _UDP_WINDOW))
    load = [str(_PROGRAM), "--config", _CONFIG, "load"]
    return measure_generated(broker, plan, timing, broker_cpus, load)


_UDP_WINDOW: Final = 1_024
"""Over UDP nothing is retransmitted, and what is in flight must fit into a socket's buffer."""

ALONE: Final[dict[str, Any]] = {
    "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
    "timestamping": {"enabled": False},  # a router would add the time to each message
}
"""It looks for no others."""

_CONFIG: Final = json.dumps(
    {**ALONE, "transport": {"unicast": {"max_sessions": 100_000}}}  # 1,000 by default
)
"""For router and clients. Zenoh's sample configuration (DEFAULT_CONFIG.json5) describes each setting."""
