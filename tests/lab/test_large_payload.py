"""A large payload over lossy paths: it is complete at every subscriber, and a broker never holds it as a
whole (§7.5)."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from hbroker.sim.lab import Lab
from hbroker.sim.network import Faults
from tests.lab.network import Network, Program
from tests.memory import own_bytes

MIB = 1 << 20
MOST_GROWTH = 32 * MIB
LOSSY = Faults(loss=0.05)


@pytest.mark.timeout(700)
def test_a_large_payload_arrives_complete_and_needs_little_memory_at_its_owner(
    lab: Lab, network: Network, tmp_path: Path, is_long: bool
) -> None:
    lab.set_faults(LOSSY)
    command = [sys.executable, "-m", "tests.lab.large", "--root", network.root, "--topic", "site/a/camera"]
    size = (200 if is_long else 5) * MIB
    publisher = Program(lab, "one", [*command, "--publish", str(size)], tmp_path / "one.log")
    subscribers = [Program(lab, host, command, tmp_path / f"{host}.log") for host in ("two", "three", "four")]
    for program in (*subscribers, publisher):
        program.start()
        program.await_ready()
    growth = growth_until_ended(network.nodes["a"], publisher)
    publisher.await_end()
    hashes = [program.process.communicate()[0] for program in (publisher, *subscribers)]
    assert len(hashes[0].strip()) == 64
    assert hashes == [hashes[0]] * 4
    assert growth < MOST_GROWTH


def growth_until_ended(owner: Program, publisher: Program) -> int:
    """The growth of an owner's memory in bytes while a publisher runs."""
    before = most = own_bytes(owner.process.pid)
    while publisher.process.poll() is None:
        most = max(most, own_bytes(owner.process.pid))
        time.sleep(0.05)  # The interval between two samples of the memory.
    return most - before
