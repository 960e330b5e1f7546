"""A gateway on another host, started by one command with the root's address alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hbroker.sim.lab import Lab
from tests.lab.network import PATIENCE_S, PORT, Network, Program
from tests.needs import need_mosquitto


@pytest.fixture(scope="module", autouse=True)
def _mosquitto() -> None:
    need_mosquitto()


TOPICS = ["site/hall/lamp", "site/a/lamp", "site/d/lamp"]


def test_one_command_starts_a_gateway_on_another_host(lab: Lab, network: Network, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hbroker", "gateway", "--root", f"{lab.address('root')}:{PORT}"]
    command += ["--listener", f"{lab.address('one')}:1883", "--anonymous", "true"]
    gateway = Program(lab, "one", command, tmp_path / "gateway.log")
    gateway.start()
    gateway.await_ready()
    address = lab.address("one")
    subscribe = ["mosquitto_sub", "-h", address, "-t", "site/#", "-v", "-q", "1", "-C", "3", "-d"]
    subscriber = lab.start("two", ["stdbuf", "-oL", *subscribe], stdout=subprocess.PIPE, text=True)
    assert subscriber.stdout is not None
    assert any(line.startswith("Subscribed") for line in subscriber.stdout)
    for topic in TOPICS:
        publish = ["mosquitto_pub", "-h", address, "-t", topic, "-m", "on", "-q", "1"]
        assert lab.start("three", publish).wait(PATIENCE_S) == 0
    lines = [line.rstrip() for line in subscriber.stdout if not line.startswith("Client ")]
    assert sorted(lines) == sorted(f"{topic} on" for topic in TOPICS)
    gateway.end()
