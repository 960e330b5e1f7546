"""SIGKILL of any node: it serves its subscribers again in under five seconds (DESIGN §4.6)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hbroker import errors, sync
from tests.product.home import next_payload
from tests.product.network import PATIENCE, PROJECT, Network, network_up, tree
from tests.product.starvation import waited_s

HOME = PROJECT / "topologies" / "home.yaml"
TOPICS = {
    "root": "home/office/lamp",
    "outside": "home/outside/gate",
    "kitchen": "home/kitchen/oven/temperature",
    "securitycams": "home/outside/securitycams/front",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Network, str]]:
    """One network for all tests. Each test leaves it with all nodes running."""
    with network_up(HOME, tmp_path_factory.mktemp("home")) as network:
        yield network


class Publisher:
    """Publishes numbers at QoS 1, one by one. Records when each was begun, and which were distributed."""

    def __init__(self, root: str, topic: str) -> None:
        self.begun: list[float] = []
        self.distributed: set[int] = set()
        self.errors: list[errors.HBrokerError] = []
        self._client = sync.connect(root)
        self._topic = topic
        self._is_running = True
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_running = False
        self._thread.join(PATIENCE)
        self._client.close()

    def _run(self) -> None:
        while self._is_running:
            number = len(self.begun)
            self.begun.append(time.monotonic())
            try:
                self._client.publish(self._topic, str(number), qos=1, timeout=PATIENCE)
            except errors.HBrokerError as error:
                self.errors.append(error)
                return
            self.distributed.add(number)


@pytest.mark.parametrize("victim", TOPICS)
def test_a_killed_node_serves_its_subscribers_again_within_five_seconds(
    home: tuple[Network, str], victim: str
) -> None:
    network, root = home
    with (
        sync.connect(root) as client,
        client.subscribe(TOPICS[victim], qos=1) as messages,
        Publisher(root, TOPICS[victim]) as publisher,
    ):
        received = {int(next_payload(messages)) for _ in range(20)}
        victims = network.processes()[victim]
        distributed = set(publisher.distributed)
        victims.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        while True:
            number = int(next_payload(messages))
            received.add(number)
            if publisher.begun[number] > killed:
                break
        gap = time.monotonic() - killed - waited_s(network.processes()[victim].pid)
        assert distributed <= received, "a killed owner lost what it had acknowledged"
        assert network.event("ended")["node"] == victim
        assert network.event("back")["node"] == victim
        assert publisher.errors == []
    assert gap < 5.0
    assert set(tree(root)) == {"root", "kitchen", "livingroom", "bedroom", "outside", "securitycams"}


def test_the_home_network_is_ready_in_time_and_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    """The time that the launcher, and then one of the nodes, waited for a CPU does not count."""
    with network_up(HOME, tmp_path) as (network, _):
        passed = time.monotonic() - network.began
        launcher, nodes = psutil.Process(network.process.pid), list(network.processes().values())
        assert passed - waited_s(launcher.pid) - max(waited_s(node.pid) for node in nodes) < 5.0
        processes = [launcher, *nodes]
        assert len(processes) == 7
        asked = time.monotonic()
        network.process.send_signal(signal.SIGINT)
        assert network.process.wait(PATIENCE) == 0
        assert time.monotonic() - asked < 3.0
        assert not [process for process in processes if process.is_running()]
