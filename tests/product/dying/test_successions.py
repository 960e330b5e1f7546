"""Owners die for good, and another node claims each subtree the moment the parent takes it back (§5.8).

The simulated network does so from seeds (sim/network/drawing/nodes/successions.py). Here the owners are real
processes: ten at a time, each with a publisher that goes on, and a subscriber that is connected all the time.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from hbroker import sync
from hbroker._proto import packet_pb2 as pb
from hbroker.addresses import parse_address
from hbroker.runtime.client.admin_request import give_order
from tests.product.network import PATIENCE, PROJECT, Network, environment, hbroker, network_of
from tests.waiting import until

FILE = """
security: off
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: successor, subtree: home/successor, listen: "127.0.0.1:7701"}
"""
ROUNDS, AT_ONCE = 10, 10
EVERY = 0.05
"""Seconds between two messages of a publisher. Publishers go on while nobody serves their topic."""


@contextmanager
def doomed_node(number: int, root: str, key: Path, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A node of its own, with state files, that serves and will be killed."""
    name = f"mortal{number}"
    flags = ["--root", root, "--listen", "127.0.0.1:0", "--join-key-file", str(key)]
    process = subprocess.Popen(
        [
            *hbroker("node"),
            *("--name", name, "--subtree", f"home/{name}", *flags),
            *("--memory", str(directory / f"{name}.cuts")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=PROJECT,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("ready")
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


class Stream:
    """Numbered messages to one topic at QoS 2, each published once, and the numbers that were
    acknowledged."""

    def __init__(self, root: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self._root, self._topic = root, topic
        self._is_over = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Stops once all messages are answered."""
        self._is_over.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        with sync.connect(self._root) as client:
            while not self._is_over.wait(EVERY):
                number += 1
                try:
                    client.publish(self._topic, b"%d" % number, qos=2, timeout=PATIENCE)
                    self.acknowledged.append(number)
                except Exception as error:
                    self.refused.append(str(error))


@pytest.mark.usefixtures("in_long_form")
@pytest.mark.timeout(3600)
def test_messages_acknowledged_after_an_owner_died_for_good_reach_a_connected_subscriber(
    tmp_path: Path,
) -> None:
    with network_of(FILE, tmp_path) as (network, root):
        for number in range(ROUNDS):
            lost = one_round(network, root, range(number * AT_ONCE, (number + 1) * AT_ONCE), tmp_path)
            assert not lost, f"round {number}"


def one_round(network: Network, root: str, numbers: range, directory: Path) -> dict[str, list[int]]:
    """The numbers of the messages that were acknowledged and never arrived, by topic."""
    folder = network.directory / "house"
    got: dict[str, Counter[int]] = {f"home/mortal{number}/x": Counter() for number in numbers}
    with (
        sync.connect(root) as client,
        ExitStack() as nodes,
        client.subscribe("home/+/x", qos=2) as messages,
    ):
        key = folder / "join.key"
        processes = [nodes.enter_context(doomed_node(number, root, key, directory)) for number in numbers]
        streams = {topic: Stream(root, topic) for topic in got}
        try:
            until(lambda: all(s.acknowledged for s in streams.values()), "all publish", PATIENCE)
            for process in processes:
                process.kill()
            claim_each(network, root, [f"home/mortal{number}" for number in numbers], folder / "root.log")
            after = {topic: len(stream.acknowledged) for topic, stream in streams.items()}
            until(
                lambda: all(len(s.acknowledged) > after[topic] + 5 for topic, s in streams.items()),
                "all publish to the successor",
                PATIENCE,
            )
        finally:
            for stream in streams.values():
                stream.stop()
        assert not [stream.refused for stream in streams.values() if stream.refused]
        while (message := messages.next(timeout=2)) is not None:
            got[message.topic][int(message.payload)] += 1
    assert max(count for counts in got.values() for count in counts.values()) == 1, "doubled at QoS 2"
    lost = {topic: sorted(set(stream.acknowledged) - set(got[topic])) for topic, stream in streams.items()}
    return {topic: numbers for topic, numbers in lost.items() if numbers}


def claim_each(network: Network, root: str, subtrees: list[str], log: Path) -> None:
    """Orders the successor to claim each subtree as soon as the root has taken it back."""
    successor = next(node["address"] for node in network.state()["nodes"] if node["name"] == "successor")
    key = (log.parent / "join.key").read_bytes().strip()
    waiting = set(subtrees)

    def claim_some() -> bool:
        told = [line for line in log.read_text().splitlines() if "took_back" in line]
        for subtree in [s for s in waiting if any(f"{s} " in f"{line} " for line in told)]:
            waiting.discard(subtree)
            order = pb.Order(kind=pb.ORDER_KIND_CLAIM, node="successor", subtree=subtree)
            give_order(parse_address(successor), order, join_key=key, timeout=PATIENCE)
        return not waiting

    until(claim_some, "the successor has all subtrees", PATIENCE, found=lambda: sorted(waiting))
