"""A network with one gateway and bridges to a mosquitto, and clients on both sides."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from paho.mqtt import client as mqtt

from tests.interop.lines import Place
from tests.interop.peer import Peer
from tests.mosquitto.broker import Mosquitto
from tests.product.network import Network, network_of
from tests.waiting import until

PATIENCE_S = 60.0
LISTENER = {"address": "127.0.0.1:0", "acknowledge": "distributed"}
"""An owner that is killed may lose what it has acknowledged earlier than that."""


class Site:
    """The running network, and the other broker."""

    def __init__(self, network: Network, root: str, broker: Mosquitto) -> None:
        self.network = network
        self.root = root
        self.broker = broker

    def here(self, client_id: str, **fields: Any) -> Place:
        """The address of the gateway, for a client with this id."""
        (gateway,) = self.network.state()["gateways"]
        return Place("127.0.0.1", urlsplit(gateway["listeners"][0]).port or 0, client_id, **fields)

    def there(self, client_id: str, **fields: Any) -> Place:
        """The address of the other broker, for a client with this id."""
        return Place("127.0.0.1", self.broker.port, client_id, **fields)

    def run(self, bridge: str) -> dict[str, Any]:
        """What the launcher knows of a bridge."""
        return next(run for run in self.network.state()["bridges"] if run["name"] == bridge)

    def await_connected(self, *bridges: str) -> None:
        """Returns when these bridges are connected to the other broker."""
        until(
            lambda: all(self.run(bridge)["broker"] for bridge in bridges),
            f"{', '.join(bridges)} connected",
            PATIENCE_S,
        )

    def kill(self, bridge: str) -> None:
        """`kill -9`. The launcher starts the bridge again."""
        os.kill(self.run(bridge)["pid"], signal.SIGKILL)

    def log(self, bridge: str) -> str:
        """The log of a bridge."""
        return (self.network.directory / "house" / f"{bridge}.log").read_text()


@contextmanager
def site_with(directory: Path, broker: Mosquitto, bridges: list[dict[str, Any]]) -> Iterator[Site]:
    """A network with these bridges to the broker, which need not run. Ends both."""
    document = {
        "nodes": [
            {"name": "root", "subtree": "", "listen": "127.0.0.1:0"},
            {"name": "kitchen", "subtree": "home/kitchen", "listen": "127.0.0.1:0"},
        ],
        "gateways": [{"name": "gateway", "workers": 1, "listeners": [LISTENER]}],
        "bridges": [
            {"addresses": [f"127.0.0.1:{broker.port}"], "pause": 1, "longest_pause": 1, **bridge}
            for bridge in bridges
        ],
    }
    try:
        with network_of(yaml.safe_dump(document), directory) as (network, root):
            yield Site(network, root, broker)
        assert network.process.returncode == 0
    finally:
        broker.kill()


def publish(peer: Peer, topic: str, text: bytes, qos: int = 1, *, retained: bool = False) -> None:
    """Publishes a message. Returns when it is acknowledged."""
    peer.client.publish(topic, text, qos, retain=retained).wait_for_publish(PATIENCE_S)


def messages_of(peer: Peer) -> list[tuple[str, bytes]]:
    """Topic and payload of what the client has received."""
    return [(message.topic, bytes(message.payload)) for message in list(peer.received)]


def await_messages(peer: Peer, *messages: tuple[str, bytes]) -> None:
    """Returns when the client has received all of these."""
    until(
        lambda: set(messages) <= set(messages_of(peer)),
        str(messages),
        PATIENCE_S,
        found=lambda: messages_of(peer),
    )


def with_user(user: str, password: str) -> Callable[[mqtt.Client], object]:
    """Prepares a client that logs in."""
    return lambda client: client.username_pw_set(user, password)
