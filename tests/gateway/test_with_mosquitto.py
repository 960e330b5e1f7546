"""A network with two gateways as processes, and mosquitto's own clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.needs import need_mosquitto
from tests.product.network import Network, network_of, run_hbroker
from tests.waiting import until


@pytest.fixture(scope="module", autouse=True)
def _mosquitto() -> None:
    need_mosquitto()


PATIENCE_S = 30.0
FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:0"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:0"}
gateways:
  - {name: one, workers: 1, listeners: [{address: "127.0.0.1:0"}]}
  - {name: two, workers: 1, listeners: [{address: "127.0.0.1:0"}]}
"""


class GatewayNetwork:
    """A network, and mosquitto's clients at its gateways."""

    def __init__(self, network: Network, root: str) -> None:
        self.place = ("--root", root, "--state-dir", str(network.directory))
        self._network = network
        urls = {gateway["name"]: gateway["listeners"][0] for gateway in network.state()["gateways"]}
        self.ports = {name: url.rpartition(":")[2] for name, url in urls.items()}
        self._subscribers: list[Subscriber] = []

    def pid(self, gateway: str) -> int:
        return int(next(run["pid"] for run in self._network.state()["gateways"] if run["name"] == gateway))

    def log(self, gateway: str) -> str:
        """The log of a gateway."""
        (file,) = self._network.directory.glob(f"*/{gateway}.log")
        return file.read_text()

    def publish(self, gateway: str, topic: str, text: str, *flags: str) -> None:
        command = ["mosquitto_pub", "-p", self.ports[gateway], "-t", topic, "-m", text, "-q", "1", *flags]
        subprocess.run(command, check=True, timeout=PATIENCE_S)

    def subscribe(self, gateway: str, filter: str, *flags: str) -> Subscriber:
        """Starts a mosquitto_sub, and returns once it has its SUBACK."""
        command = ["mosquitto_sub", "-p", self.ports[gateway], "-t", filter, "-q", "1", "-d", *flags]
        subscriber = Subscriber(["stdbuf", "-oL", *command])
        self._subscribers.append(subscriber)
        return subscriber

    def clear(self) -> None:
        """Ends the subscribers that a test left."""
        while self._subscribers:
            self._subscribers.pop().kill()


class Subscriber:
    """A mosquitto_sub, and the messages that it prints. Queued messages of its session may arrive before
    its SUBACK."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.pid = self._process.pid
        self._messages: list[str] = []
        try:
            while not self._read().startswith("Subscribed"):
                pass
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def message(self) -> str:
        """Returns the next message, and ends the process."""
        while not self._messages:
            self._read()
        self.kill()
        return self._messages.pop(0)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it has ended"
        if not line.startswith(("Client ", "Subscribed")):
            self._messages.append(line.strip())
        return line


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayNetwork]:
    with network_of(FILE, tmp_path_factory.mktemp("house")) as (network, root):
        yield GatewayNetwork(network, root)


@pytest.fixture
def network(up: GatewayNetwork) -> Iterator[GatewayNetwork]:
    yield up
    up.clear()


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
@pytest.mark.parametrize("topic", ["home/kitchen/oven", "office/lamp"])
def test_a_message_reaches_a_subscriber_at_the_other_gateway(
    network: GatewayNetwork, version: str, topic: str
) -> None:
    subscriber = network.subscribe("two", "#", "-v", "-V", version, "-i", "s")
    network.publish("one", topic, "180", "-V", version, "-i", "p")
    assert subscriber.message() == f"{topic} 180"


def test_each_gateway_got_its_end_mark_before_it_took_clients(network: GatewayNetwork) -> None:
    for gateway in ("one", "two"):
        log = network.log(gateway)
        assert "listening" in log
        assert "started_without_mark" not in log


def test_a_retained_message_is_sent_after_the_suback(network: GatewayNetwork) -> None:
    network.publish("one", "home/kitchen/lamp", "on", "-r")
    assert network.subscribe("two", "home/kitchen/lamp").message() == "on"


def test_the_will_of_a_killed_client_is_published(network: GatewayNetwork) -> None:
    watcher = network.subscribe("one", "home/kitchen/status")
    device = network.subscribe("two", "none", "--will-topic", "home/kitchen/status", "--will-payload", "gone")
    device.kill()
    assert watcher.message() == "gone"


def test_a_session_survives_its_gateway(network: GatewayNetwork) -> None:
    session = ("-c", "-i", "kept", "-V", "5", "-x", "100")
    subscriber = network.subscribe("one", "home/kitchen/kept", *session)
    os.kill(subscriber.pid, signal.SIGSTOP)
    os.kill(network.pid("one"), signal.SIGKILL)
    network.publish("two", "home/kitchen/kept", "after")
    subscriber.kill()
    assert network.subscribe("two", "home/kitchen/kept", *session).message() == "after"


def test_a_client_is_listed_and_kicked(network: GatewayNetwork) -> None:
    subscriber = network.subscribe("two", "none", "-i", "kicked", "-V", "5")

    def is_listed() -> bool:
        told = json.loads(run_hbroker("clients", *network.place, "--json").stdout)
        return not told["silent"] and any(client["client"] == "kicked" for client in told["clients"])

    until(is_listed, "all gateways answer, and the client is listed", PATIENCE_S)
    run_hbroker("kick", "kicked", *network.place, check=True)
    assert subscriber.message() == "Received DISCONNECT (152)"
