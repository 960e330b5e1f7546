"""One gateway in a network of one node, as processes, shared by all tests of this folder."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import pytest

from tests.conformance.client import Client
from tests.product.network import PATIENCE, PROJECT, environment, hbroker
from tests.product.node import node_up


class Ports(NamedTuple):
    """The ports of the gateway's listeners."""

    mqtt: int
    websocket: int


@pytest.fixture(scope="session")
def ports() -> Iterator[Ports]:
    """The ports of the gateway, once it is ready."""
    flags = [
        "--listener",
        "127.0.0.1:0",
        "--listener",
        "address=127.0.0.1:0,websocket=/mqtt",
        "--workers",
        "1",
    ]
    policy = ["--policy", "tests.conformance.policy:TestPolicy", "--log-level", "warning"]
    with node_up() as node:
        command = [*hbroker("gateway"), "--name", "one", "--root", node.root, *flags, *policy]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment()
        ) as process:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("ready "), ready
            urls = [url.removesuffix("/mqtt") for url in ready.split()[2:]]
            yield Ports(*(int(url.rpartition(":")[2]) for url in urls))
            process.terminate()
            assert process.wait(PATIENCE) == 0


_NUMBERS = count(1)


@pytest.fixture
def name() -> str:
    """A name for a client or a topic that no other test uses."""
    return f"n{next(_NUMBERS)}"


@pytest.fixture
def dial(ports: Ports) -> Iterator[Callable[[], Client]]:
    """Opens connections on which no packet was sent yet. Closes them after the test."""
    clients: list[Client] = []

    def made() -> Client:
        clients.append(Client(ports.mqtt))
        return clients[-1]

    yield made
    for client in clients:
        client.socket.close()


@pytest.fixture
def client(dial: Callable[[], Client], name: str) -> Client:
    """A connected client."""
    return dial().opened(f"{name}c")


@pytest.fixture
def other(dial: Callable[[], Client], name: str) -> Client:
    """A second connected client."""
    return dial().opened(f"{name}o")
