"""The helpers for the processes of a network."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.product.network import processes_of


def test_a_process_that_ended_is_left_out_before_the_launcher_notices() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    pids = {"ended": ended.pid, "not started": None, "runs": os.getpid()}
    found = processes_of([{"name": name, "pid": pid} for name, pid in pids.items()])
    assert {name: process.pid for name, process in found.items()} == {"runs": os.getpid()}
