"""`make bench`, in short: it measures real brokers, finds them whole, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frame.checkout import ROOT
from tests.waiting import until

_MARK = "HBROKER_BENCH_TEST"
_SHORT = ["--rounds", "1", "--duration", "0.3", "--warm-up", "0.2", "--others", "9", "--patience", "0"]

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="the measurement wants a CPU for the broker and one for the load"
)


def _start(*flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.first", *_SHORT, *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, _MARK: str(os.getpid())},
    )


def _marked() -> set[int]:
    """Every process that a marked one started, in whatever session."""
    return {
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is_marked(entry)
    }


def _is_marked(process: Path) -> bool:
    try:
        return f"{_MARK}={os.getpid()}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False


def test_what_it_measures_is_whole() -> None:
    process = _start("--pairs", "2", "--rate", "1000", "--json")
    told, progress = process.communicate(timeout=90)
    assert process.returncode == 0, progress
    series = json.loads(told)["series"]
    assert {(one["qos"], one["rate"]) for one in series} == {(0, None), (1, None), (0, 1000), (1, 1000)}
    for one in series:
        (round,) = one["quiet_rounds"]
        assert round["sent"] == round["delivered"] > 0
        assert not any(round[fault] for fault in ("lost", "duplicated", "disordered", "corrupted", "stalls"))
        assert round["acknowledged"] == round["sent"] * one["qos"]
        assert one["rate"] is not None or one["delivered_per_s"] > 1_000


def test_an_interrupt_ends_all() -> None:
    process = _start("--rounds", "9")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("round 1:")
    until(lambda: len(_marked()) >= 4, "itself, a broker and two load processes run", 20, found=_marked)
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "messages in all rounds" in told
    assert not _marked()
