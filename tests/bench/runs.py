"""Short runs of measurements, as processes, and checks of their results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hbroker.bench.layouts import LAYOUTS
from hbroker.cli.exits import DONE, FAILED
from tests.frame.checkout import ROOT

PERCENTILES = {"p50", "p90", "p99", "p999"}

_FAULTS = ("lost", "duplicated", "disordered", "damaged", "refused", "stalls")
_MARK = "HBROKER_BENCH_TEST"
_SHORT = ["--rounds", "1", "--duration", "0.3", "--warm-up", "0.2", "--others", "9", "--patience", "0"]

BUSY = 0.5
"""CPUs used by other processes. At this load, a silence of 250 ms, which counts as a stall, may be caused
by the machine."""

has_two_cpus = len(os.sched_getaffinity(0)) >= 2
"""The measurement needs one CPU for the broker and one for the load."""


def start(module: str, *flags: str) -> subprocess.Popen[str]:
    """Starts a short run. Later flags override earlier ones."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *_SHORT, *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, _MARK: str(os.getpid())},
    )


def measured(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The result of a run with `--json`, which must succeed."""
    output, progress = process.communicate(timeout=90)
    assert process.returncode == 0, progress
    found: dict[str, Any] = json.loads(output)
    return found


def assert_complete(series: dict[str, Any]) -> None:
    """The single round delivered every copy once, in order and undamaged."""
    (round,) = series["quiet_rounds"]
    assert round["sent"] * round["subscribers"] == round["delivered"] > 0, series
    faults = ("lost", "duplicated", "disordered", "corrupted", "stalls")
    is_busy = round["others_cpu"] > BUSY
    assert {fault for fault in faults if round[fault]} <= ({"stalls"} if is_busy else set()), series
    assert round["acknowledged"] == round["sent"] * series["qos"], series


def bench(*flags: str, seconds: float | None = 0.4) -> tuple[int, dict[str, Any]]:
    """Runs `hbroker bench` for a moment, or to its end (None). Returns its exit code and its result."""
    short = [] if seconds is None else ["--duration", str(seconds), "--warm-up", "0.1"]
    done = subprocess.run(
        [sys.executable, "-m", "hbroker", "bench", *flags, *short, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def assert_all_received(code: int, found: dict[str, Any]) -> None:
    """In a load of `bench`, every copy was received once and in order, and acknowledged if its QoS asks
    for that."""
    faults = {name: found[name] for name in _FAULTS if found[name]}
    assert code == (FAILED if faults else DONE)
    if found["others_cpu"] is None or found["others_cpu"] > BUSY:  # None: the broker's processes are unknown.
        faults.pop("stalls", None)
    assert faults == {}, found
    shape = LAYOUTS[found["layout"]].of(found["clients"], found["depth"])
    assert found["delivered"] == found["sent"] * shape.copies // len(shape.publishers) > 0
    assert found["acknowledged"] == (found["sent"] if found["qos"] else 0)
    assert found["delivered_per_s"] > 0
    assert found["generator_cpu"] > 0
    assert set(found["latency_us"]) == PERCENTILES


def remaining_processes() -> set[int]:
    """Every process that a run has started, in any session."""
    return {
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is_marked(entry)
    }


def _is_marked(process: Path) -> bool:
    try:
        return f"{_MARK}={os.getpid()}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # The process has ended.
        return False
