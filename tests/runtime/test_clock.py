"""The clock by which leases end (§5.6): Python and Rust use the same one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Final

import pytest

SUSPENDED_S: Final = 36_000_000
PRINT_CLOCKS: Final = """
import json, time
from hbroker._native import Config, Endpoint
from hbroker.runtime.control_loop import clock

config = Config(node=True, session=1, incarnation=1, token_keys=[bytes(16)], seed=1)
endpoint = Endpoint(config, ("127.0.0.1", 0))
awake, told, core = time.monotonic_ns() // 1000, clock(), endpoint.unix_offset_us
endpoint.shutdown()
print(json.dumps([awake, told, core, time.time_ns() // 1000]))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="a time namespace is made by root",
)
def test_the_clocks_of_python_and_rust_count_the_time_of_a_suspend() -> None:
    """In a time namespace the clock that counts suspension is far ahead of the one that does not."""
    command = ["unshare", "--time", "--boottime", str(SUSPENDED_S), sys.executable, "-c", PRINT_CLOCKS]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    awake, told, offset, unix = json.loads(ran.stdout)
    assert told - awake >= SUSPENDED_S * 1_000_000
    assert abs(told + offset - unix) < 60_000_000
