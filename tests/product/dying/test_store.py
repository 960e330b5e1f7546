"""SIGKILL of a node with a store: what it acknowledged for sessions that are offline is there afterwards."""

from __future__ import annotations

import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hbroker import HBrokerError, sync
from tests.product.network import (
    PATIENCE,
    Network,
    network_of,
    network_up,
    run_hbroker,
)
from tests.waiting import until

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700", durability: fsync}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701", durability: fsync}
"""
TOPICS = {"root": "home/lamp", "kitchen": "home/kitchen/oven"}
KILLS = 4


class OfflineSession:
    """A persistent session, and which numbers it has received."""

    def __init__(self, root: str, name: str, topic: str) -> None:
        self.root = root
        self._name, self._topic = name, topic
        self.received: list[int] = []
        with self._connect() as client:
            client.subscribe(topic, qos=2)

    def read(self, until: int) -> bool:
        """Resumes the session, and reads up to this number. Returns whether all owners still had the
        subscription."""
        with self._connect() as client, client.subscribe(self._topic, qos=2) as messages:
            while not self.received or self.received[-1] < until:
                message = messages.next(timeout=PATIENCE)
                assert message is not None, f"{self._name} waits for {until}: {self.received[-5:]}"
                self.received.append(int(message.payload))
            return messages.resumed

    def _connect(self) -> sync.Client:
        return sync.connect(self.root, client_id=self._name, session_expiry=3_600, session_key="k")


class Publisher:
    """Publishes numbers, from `first` on, at one QoS until it is stopped. Records which have a PUBACK."""

    def __init__(self, root: str, topic: str, qos: int, first: int) -> None:
        self.acknowledged: list[int] = []
        self.next = first
        """The number that it publishes now, or next."""
        self._client = sync.connect(root)
        self._topic, self._qos = topic, qos
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, more: int) -> None:
        """Returns once so many more messages have their PUBACKs."""
        enough = len(self.acknowledged) + more
        until(lambda: len(self.acknowledged) >= enough, f"{enough} PUBACKs", PATIENCE)

    def stop(self) -> None:
        """Returns once the last message has its PUBACK."""
        self._ends.set()
        self._thread.join(PATIENCE)
        self._client.close()

    def give_up(self) -> None:
        """Stops, although the last message may have no PUBACK."""
        self._ends.set()
        self._client.close()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self._client.publish(self._topic, str(self.next), qos=self._qos, timeout=PATIENCE)
            except HBrokerError:
                if self._ends.is_set():
                    return
                raise
            self.acknowledged.append(self.next)
            self.next += 1


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Network, str]]:
    """A network whose nodes have stores."""
    with network_of(FILE, tmp_path_factory.mktemp("stored")) as network:
        yield network


@pytest.mark.parametrize("node", TOPICS)
def test_messages_for_a_session_that_is_offline_survive_a_kill(
    stored: tuple[Network, str], node: str
) -> None:
    network, root = stored
    session = OfflineSession(root, f"offline_{node}", TOPICS[node])
    with sync.connect(root) as client:
        client.publish_many([(TOPICS[node], str(number)) for number in range(500)], qos=1, timeout=PATIENCE)
        network.kill_node(node)
        client.publish(TOPICS[node], "500", qos=1, timeout=PATIENCE)
    assert session.read(500), "the session is there, with its subscription"
    assert session.received == list(range(501))


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_acknowledged_is_lost_in_kills_under_load(stored: tuple[Network, str], qos: int) -> None:
    network, root = stored
    topic = f"{TOPICS['kitchen']}/{qos}"
    sessions = [OfflineSession(root, f"session{number}_{qos}", topic) for number in range(3)]
    acknowledged: list[int] = []
    dice = random.Random(qos)
    for _ in range(KILLS):
        publisher = Publisher(root, topic, qos, len(acknowledged))
        publisher.wait_for(dice.randrange(1, 100))
        network.kill_node("kitchen")
        # A client that ends loses what its application has not read. So nothing comes while one reads.
        publisher.stop()
        acknowledged += publisher.acknowledged
        dice.choice(sessions).read(acknowledged[-1])
    for session in sessions:
        session.read(acknowledged[-1])
        assert set(acknowledged) <= set(session.received)
        assert qos == 1 or session.received == sorted(set(session.received)), "once, and in order"


def own_port() -> int:
    """A free UDP port below those that the kernel gives to sockets, so that nobody else gets it meanwhile."""
    while True:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", port))
            return port


@pytest.mark.usefixtures("in_long_form")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_network_that_is_killed_as_a_whole_has_everything_when_it_is_back(tmp_path: Path, qos: int) -> None:
    file = tmp_path / "stored.yaml"
    # Nodes that are started again have the same addresses.
    file.write_text(re.sub(r":770\d", lambda _: f":{own_port()}", FILE))
    acknowledged: dict[str, list[int]] = {node: [] for node in TOPICS}
    first = dict.fromkeys(TOPICS, 0)
    sessions: dict[str, OfflineSession] = {}
    for _ in range(KILLS):
        with network_up(file, tmp_path / "state", flags=()) as (network, root):
            for node, topic in TOPICS.items():
                if node in sessions:
                    sessions[node].root = root
                    assert sessions[node].read(acknowledged[node][-1]), f"{node} has the session"
                else:
                    sessions[node] = OfflineSession(root, f"offline_{node}", topic)
            publishers = {node: Publisher(root, TOPICS[node], qos, first[node]) for node in TOPICS}
            for publisher in publishers.values():
                publisher.wait_for(50)
            network.kill()
            for node, publisher in publishers.items():
                publisher.give_up()
                acknowledged[node] += publisher.acknowledged
                first[node] = publisher.next + 1
    with network_up(file, tmp_path / "state", flags=()) as (_, root):
        for node, session in sessions.items():
            session.root = root
            assert session.read(acknowledged[node][-1]), f"{node} has the session"
            assert set(acknowledged[node]) <= set(session.received)
            assert qos == 1 or session.received == sorted(set(session.received)), "once, and in order"


def test_a_node_without_a_place_for_its_store_says_so() -> None:
    flags = ["--name", "n", "--subtree", "", "--listen", "127.0.0.1:0"]
    done = run_hbroker("node", *flags, "--durability", "fsync")
    assert done.returncode == 2
    assert "--memory" in done.stderr
