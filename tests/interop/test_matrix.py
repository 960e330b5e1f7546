"""Every client as publisher with every client as subscriber, with all pairs of QoS, over all owners.

All subscribers have subscribed when a publisher publishes. It publishes once to each owner at each QoS, on a
topic to which the subscribers have subscribed with one QoS. That QoS alternates, so that every pair of QoS
occurs at two owners. Publishers are connected to one gateway and subscribers to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, product

import pytest

from tests.interop import clients
from tests.interop.clients import HAS_MQTTJS, Client, version_3
from tests.interop.home import PLACES, HomeNetwork
from tests.interop.lines import Message

KINDS: dict[str, Callable[[HomeNetwork, str, str], Client]] = {
    "mosquitto": lambda home, gateway, name: clients.mosquitto(home.place(gateway, name)),
    "mosquitto-3": lambda home, gateway, name: clients.mosquitto(version_3(home.place(gateway, name))),
    "paho": lambda home, gateway, name: clients.paho(home.place(gateway, name)),
    "paho-3": lambda home, gateway, name: clients.paho(version_3(home.place(gateway, name))),
    "paho-ws": lambda home, gateway, name: clients.paho(home.place(gateway, name, websocket=True)),
    "aiomqtt": lambda home, gateway, name: clients.aiomqtt(home.place(gateway, name)),
    "gmqtt": lambda home, gateway, name: clients.gmqtt(home.place(gateway, name)),
    "mqttjs": lambda home, gateway, name: clients.mqttjs(home.place(gateway, name)),
    "mqttjs-ws": lambda home, gateway, name: clients.mqttjs(
        version_3(home.place(gateway, name, websocket=True))
    ),
    "hbroker": lambda home, gateway, name: clients.hpub_hsub(home.root, name),
}
QOS = (0, 1, 2)


class AllClients:
    """One subscriber of each kind, and one publisher of each kind."""

    def __init__(self, home: HomeNetwork) -> None:
        self._house = home
        with ThreadPoolExecutor() as pool:
            subscribers = pool.map(self._subscriber, kinds())
        self.subscribers = dict(zip(kinds(), subscribers, strict=True))
        self._publishers: dict[str, Client] = {}
        self._published: set[str] = set()
        self._received: dict[str, list[Message]] = {kind: [] for kind in kinds()}

    def publisher(self, kind: str) -> Client:
        """The publisher of this kind."""
        if kind not in self._publishers:
            self._publishers[kind] = KINDS[kind](self._house, "one", f"publisher-{kind}")
        return self._publishers[kind]

    def publish(self, kind: str) -> list[Message]:
        """Lets a publisher publish its part of the matrix. Returns the messages that each subscriber must
        receive."""
        publisher = self.publisher(kind)
        expected = []
        for (number, place), qos in product(enumerate(PLACES), QOS):
            most = (number + qos) % len(QOS)
            message = Message(f"{place}/matrix/{kind}/{most}", f"{place} {qos}".encode(), min(qos, most))
            if kind not in self._published:
                publisher.publish(message.topic, message.payload, qos)
            expected.append(message)
        self._published.add(kind)
        return expected

    def receive(self, subscriber: str, publisher: str, count: int) -> list[Message]:
        """All messages of a publisher that a subscriber has received, once there are at least `count`."""
        received = self._received[subscriber]
        while True:
            of_it = [message for message in received if message.topic.split("/")[-2] == publisher]
            if len(of_it) >= count:
                return of_it
            received += self.subscribers[subscriber].receive(1)

    def close(self) -> None:
        """Ends all clients. No client may have received an unexpected message."""
        for client in (*self.subscribers.values(), *self._publishers.values()):
            client.close()
        assert {kind: client.rest() for kind, client in self.subscribers.items() if client.rest()} == {}

    def _subscriber(self, kind: str) -> Client:
        client = KINDS[kind](self._house, "two", f"subscriber-{kind}")
        for qos in QOS:
            client.subscribe([f"{place}/matrix/+/{qos}" for place in PLACES], qos)
        return client


def kinds() -> list[str]:
    """The kinds of clients whose libraries are installed."""
    return [kind for kind in KINDS if HAS_MQTTJS or not kind.startswith("mqttjs")]


@pytest.fixture(scope="module")
def all_clients(home: HomeNetwork, with_mosquitto: None) -> Iterator[AllClients]:
    """All clients, before any of them has published."""
    all_clients = AllClients(home)
    yield all_clients
    all_clients.close()


@pytest.fixture(scope="module")
def retained(all_clients: AllClients) -> list[Message]:
    """One retained message of each kind of publisher, each at another owner, for later subscribers."""
    messages = []
    for number, (kind, place) in enumerate(zip(kinds(), cycle(PLACES), strict=False)):
        message = Message(f"{place}/kept/{kind}", b"kept", number % len(QOS), retained=True)
        all_clients.publisher(kind).publish(message.topic, message.payload, message.qos, retained=True)
        messages.append(message)
    return messages


@pytest.fixture(autouse=True)
def with_libraries(request: pytest.FixtureRequest) -> None:
    """Skips, or fails, where a client's library is missing."""
    if any(str(kind).startswith("mqttjs") for kind in request.node.callspec.params.values()):
        request.getfixturevalue("with_mqttjs")


@pytest.mark.parametrize("subscriber", KINDS)
@pytest.mark.parametrize("publisher", KINDS)
def test_each_subscriber_receives_the_messages_of_each_publisher(
    all_clients: AllClients, publisher: str, subscriber: str
) -> None:
    expected = all_clients.publish(publisher)
    received = all_clients.receive(subscriber, publisher, len(expected))
    assert sorted(received, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("subscriber", KINDS)
def test_each_subscriber_receives_the_retained_messages(
    home: HomeNetwork, retained: list[Message], subscriber: str
) -> None:
    client = KINDS[subscriber](home, "two", f"told-{subscriber}")
    client.subscribe([f"{place}/kept/+" for place in PLACES], 2)
    received = client.receive(len(retained))
    client.close()
    assert sorted([*received, *client.rest()], key=str) == sorted(retained, key=str)
