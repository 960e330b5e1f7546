"""A large payload through loss: whole at every subscriber, and never whole in a broker (§7.5)."""

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
def test_a_large_payload_is_whole_and_costs_its_owner_little(
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
    """By how many bytes an owner's memory grew while a publisher ran."""
    before = most = own_bytes(owner.process.pid)
    while publisher.process.poll() is None:
        most = max(most, own_bytes(owner.process.pid))
        time.sleep(0.05)  # from one sample of its memory to the next
    return most - before
