"""Short runs of a measurement, as processes, and what they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.frame.checkout import ROOT

_MARK = "HBROKER_BENCH_TEST"
_SHORT = ["--rounds", "1", "--duration", "0.3", "--warm-up", "0.2", "--others", "9", "--patience", "0"]

BUSY = 0.5
"""CPUs that others have. From then on a silence of 250 ms, which counts as a stall, may be the machine's."""

has_two_cpus = len(os.sched_getaffinity(0)) >= 2
"""The measurement wants a CPU for the broker and one for the load."""


def start(module: str, *flags: str) -> subprocess.Popen[str]:
    """Starts a short run; what flags say again counts."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *_SHORT, *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, _MARK: str(os.getpid())},
    )


def measured(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a run with `--json` found. Fails where it fails."""
    told, progress = process.communicate(timeout=90)
    assert process.returncode == 0, progress
    found: dict[str, Any] = json.loads(told)
    return found


def assert_whole(series: dict[str, Any]) -> None:
    """Its one round delivered every copy once, in order and undamaged."""
    (round,) = series["quiet_rounds"]
    assert round["sent"] * round["subscribers"] == round["delivered"] > 0, series
    faults = ("lost", "duplicated", "disordered", "corrupted", "stalls")
    is_busy = round["others_cpu"] > BUSY
    assert {fault for fault in faults if round[fault]} <= ({"stalls"} if is_busy else set()), series
    assert round["acknowledged"] == round["sent"] * series["qos"], series


def left_behind() -> set[int]:
    """Every process that a run started, in whatever session."""
    return {
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is_marked(entry)
    }


def _is_marked(process: Path) -> bool:
    try:
        return f"{_MARK}={os.getpid()}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False
