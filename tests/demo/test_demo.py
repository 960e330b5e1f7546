"""A short run of the demo, with real nodes and real messages. Nothing is left running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_runs_from_start_to_end() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hbroker.demo", "--seconds", "2"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ", 0 failed" in done.stdout
    published, received = re.findall(r"2\.0 of 2 s: (\d+) published, (\d+) received", done.stdout)[-1]
    assert 0 < int(published) < int(received), "every message has a watcher, and some have two"
    assert "securitycams" in done.stdout
    assert "PUBACCEPT" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("Everything is stopped")
    if "Not captured" not in done.stdout:
        assert "PUBLISH packets between broker addresses:  0" in done.stdout
        assert int(re.findall(r"loopback interface: (\d+)", done.stdout)[0]) > int(published)
