"""Every client as publisher against every client as subscriber: all pairs of QoS, over all owners.

All subscribers stand while a publisher publishes, once: to each owner, with each QoS, on a topic that the
subscribers have subscribed to with one. Which one goes round, so that every pair of QoS occurs at two owners.
Publishers are at one gateway and subscribers at the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, product

import pytest

from tests.interop import clients
from tests.interop.clients import HAS_MQTTJS, Client, version_3
from tests.interop.house import PLACES, House
from tests.interop.lines import Message

KINDS: dict[str, Callable[[House, str, str], Client]] = {
    "mosquitto": lambda house, gateway, name: clients.mosquitto(house.place(gateway, name)),
    "mosquitto-3": lambda house, gateway, name: clients.mosquitto(version_3(house.place(gateway, name))),
    "paho": lambda house, gateway, name: clients.paho(house.place(gateway, name)),
    "paho-3": lambda house, gateway, name: clients.paho(version_3(house.place(gateway, name))),
    "paho-ws": lambda house, gateway, name: clients.paho(house.place(gateway, name, websocket=True)),
    "aiomqtt": lambda house, gateway, name: clients.aiomqtt(house.place(gateway, name)),
    "gmqtt": lambda house, gateway, name: clients.gmqtt(house.place(gateway, name)),
    "mqttjs": lambda house, gateway, name: clients.mqttjs(house.place(gateway, name)),
    "mqttjs-ws": lambda house, gateway, name: clients.mqttjs(
        version_3(house.place(gateway, name, websocket=True))
    ),
    "ours": lambda house, gateway, name: clients.ours(house.root, name),
}
QOS = (0, 1, 2)


class Stand:
    """One client of each kind that has subscribed, and one of each that publishes."""

    def __init__(self, house: House) -> None:
        self._house = house
        with ThreadPoolExecutor() as pool:
            subscribers = pool.map(self._subscriber, kinds())
        self.subscribers = dict(zip(kinds(), subscribers, strict=True))
        self._publishers: dict[str, Client] = {}
        self._published: set[str] = set()
        self._received: dict[str, list[Message]] = {kind: [] for kind in kinds()}

    def publisher(self, kind: str) -> Client:
        """The one of that kind."""
        if kind not in self._publishers:
            self._publishers[kind] = KINDS[kind](self._house, "one", f"publisher-{kind}")
        return self._publishers[kind]

    def publish(self, kind: str) -> list[Message]:
        """Has it publish its part of the table. What a subscriber must receive of it."""
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
        """All that a subscriber has received from a publisher, once it is at least so much."""
        received = self._received[subscriber]
        while True:
            of_it = [message for message in received if message.topic.split("/")[-2] == publisher]
            if len(of_it) >= count:
                return of_it
            received += self.subscribers[subscriber].receive(1)

    def close(self) -> None:
        """Ends all clients. Nothing may have come that nobody expected."""
        for client in (*self.subscribers.values(), *self._publishers.values()):
            client.close()
        assert {kind: client.rest() for kind, client in self.subscribers.items() if client.rest()} == {}

    def _subscriber(self, kind: str) -> Client:
        client = KINDS[kind](self._house, "two", f"subscriber-{kind}")
        for qos in QOS:
            client.subscribe([f"{place}/matrix/+/{qos}" for place in PLACES], qos)
        return client


def kinds() -> list[str]:
    """Those whose libraries are here."""
    return [kind for kind in KINDS if HAS_MQTTJS or not kind.startswith("mqttjs")]


@pytest.fixture(scope="module")
def stand(house: House, with_mosquitto: None) -> Iterator[Stand]:
    """All clients, before anything is published."""
    stand = Stand(house)
    yield stand
    stand.close()


@pytest.fixture(scope="module")
def retained(stand: Stand) -> list[Message]:
    """A message of each kind of publisher, each at an owner, for those who subscribe from now on."""
    messages = []
    for number, (kind, place) in enumerate(zip(kinds(), cycle(PLACES), strict=False)):
        message = Message(f"{place}/kept/{kind}", b"kept", number % len(QOS), retained=True)
        stand.publisher(kind).publish(message.topic, message.payload, message.qos, retained=True)
        messages.append(message)
    return messages


@pytest.fixture(autouse=True)
def with_libraries(request: pytest.FixtureRequest) -> None:
    """Skips, or fails, where a client's library is missing."""
    if any(str(kind).startswith("mqttjs") for kind in request.node.callspec.params.values()):
        request.getfixturevalue("with_mqttjs")


@pytest.mark.parametrize("subscriber", KINDS)
@pytest.mark.parametrize("publisher", KINDS)
def test_each_hears_each(stand: Stand, publisher: str, subscriber: str) -> None:
    expected = stand.publish(publisher)
    received = stand.receive(subscriber, publisher, len(expected))
    assert sorted(received, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("subscriber", KINDS)
def test_each_is_told_what_is_retained(house: House, retained: list[Message], subscriber: str) -> None:
    client = KINDS[subscriber](house, "two", f"told-{subscriber}")
    client.subscribe([f"{place}/kept/+" for place in PLACES], 2)
    received = client.receive(len(retained))
    client.close()
    assert sorted([*received, *client.rest()], key=str) == sorted(retained, key=str)
