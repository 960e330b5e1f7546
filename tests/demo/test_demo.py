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
    assert "all that is promised was kept" in done.stdout
    (published,), (received,) = (
        re.findall(rf"{verb} (\d+) of", done.stdout) for verb in ("said", "received")
    )
    assert 0 < int(published) < int(received), (
        "every room has a controller, and some messages have two readers"
    )
    assert "securitycams" in done.stdout
    assert "PUBACCEPT" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("Everything is stopped")
    if "Not captured" not in done.stdout:
        assert "PUBLISH packets between broker addresses:  0" in done.stdout
        assert int(re.findall(r"loopback interface: (\d+)", done.stdout)[0]) > int(published)
