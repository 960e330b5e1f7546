"""The level of a log, changed while a process runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.product.network import PATIENCE, PROJECT, environment, hbroker, run_hbroker
from tests.product.node import started
from tests.waiting import until


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def events(log: Path) -> list[str]:
    return [entry["event"] for entry in entries(log)]


def test_a_node_logs_at_the_level_that_an_operator_orders(tmp_path: Path) -> None:
    file, log = tmp_path / "node.yaml", tmp_path / "log"
    text = 'name: root\nsubtree: ""\nlisten: 127.0.0.1:0\nlog_format: json\nlog_level: error\n'
    file.write_text(text)
    with log.open("w") as said:
        node = subprocess.Popen(
            [*hbroker("node"), "--config", str(file)],
            stdout=said,
            stderr=said,
            cwd=PROJECT,
            env=environment(),
        )
    try:
        until(lambda: "ready root" in log.read_text(), "it serves", PATIENCE, found=log.read_text)
        root = log.read_text().split()[-1]
        assert events(log) == []
        done = run_hbroker("log", "root", "info", "--root", root, check=True)
        assert done.stdout == "root logs from info on\n"
        until(lambda: "log_level_ordered" in events(log), "it logs more", PATIENCE, found=log.read_text)
        file.write_text(text.replace("error", "info").replace("json", "text"))
        node.send_signal(signal.SIGHUP)
        until(
            lambda: "info  root reloaded" in log.read_text(),
            "as its file says",
            PATIENCE,
            found=log.read_text,
        )
        assert run_hbroker("log", "attic", "info", "--root", root).returncode == 1
    finally:
        node.terminate()
        node.wait(PATIENCE)


def test_a_gateway_logs_everything_after_a_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started("node", "--name", "root", "--subtree", "", "--listen", "127.0.0.1:0") as (_, ready):
        flags = ["--root", ready.split()[-1], "--listener", "127.0.0.1:0", "--log-format", "json"]
        with log.open("w") as said:
            gateway = subprocess.Popen(
                [*hbroker("gateway"), *flags], stdout=said, stderr=said, cwd=PROJECT, env=environment()
            )
        try:
            until(lambda: "ready gateway" in log.read_text(), "it serves", PATIENCE, found=log.read_text)
            os.kill(gateway.pid, signal.SIGUSR2)
            until(lambda: '"now": "debug"' in log.read_text(), "it logs all", PATIENCE, found=log.read_text)
            os.kill(gateway.pid, signal.SIGUSR2)
            until(lambda: '"now": "info"' in log.read_text(), "and less", PATIENCE, found=log.read_text)
        finally:
            gateway.terminate()
            gateway.wait(PATIENCE)
