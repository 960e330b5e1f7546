"""The packets of real clients, recorded on the wire: all versions, all QoS levels, and every property that
the clients support."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from paho.mqtt.client import Client as Paho

from tests.fuzz.packets import split
from tests.fuzz.tap import Tap
from tests.interop import clients
from tests.interop.clients import HAS_MQTTJS, Client
from tests.interop.home import HomeNetwork
from tests.interop.lines import Place
from tests.interop.peer import connected, properties_of

__all__ = ["captured"]

_TOPICS: Final = ("home/kitchen/fuzz/a", "home/outside/fuzz/b", "weather/fuzz/c")
_FILTERS: Final = ("home/+/fuzz/#", "weather/fuzz/+", "$share/fuzz/home/kitchen/fuzz/#", "$SYS/broker/uptime")

_KINDS: Final[dict[str, Callable[[Place], Client]]] = {
    "mosquitto": clients.mosquitto,
    "mosquitto-3": lambda place: clients.mosquitto(clients.version_3(place)),
    "paho": clients.paho,
    "paho-3": lambda place: clients.paho(clients.version_3(place)),
    "aiomqtt": clients.aiomqtt,
    "gmqtt": clients.gmqtt,
    "mqttjs": clients.mqttjs,
}


def captured(home: HomeNetwork, gateway: str) -> list[list[bytes]]:
    """The packets of each connection of every kind of client at a gateway, over TCP."""
    place = home.place(gateway, "")
    with Tap(place.host, place.port) as tap:
        here = replace(place, host="127.0.0.1", port=tap.port)
        for name, kind in _KINDS.items():
            if name != "mqttjs" or HAS_MQTTJS:
                _use(kind(replace(here, client_id=f"fuzz-{name}")))
        for version in (4, 5):
            _use_all(replace(here, client_id=f"fuzz-all-{version}", version=version))
    return [packets for stream in tap.streams if (packets := split(bytes(stream)))]


def _use(client: Client) -> None:
    for qos in (0, 1, 2):
        client.subscribe(_FILTERS[:2], qos)
        for topic in _TOPICS:
            client.publish(topic, topic.encode(), qos, retained=qos == 1)
    client.receive(len(_TOPICS))
    client.close()


def _use_all(place: Place) -> None:
    """A client with a will, a user name and a password, and in MQTT 5 with every property that a client
    may send."""
    is_5 = place.version == 5

    def prepare(client: Paho) -> None:
        client.username_pw_set("fuzz", "secret")
        properties = properties_of("WILLMESSAGE", **_MESSAGE, WillDelayInterval=1) if is_5 else None
        client.will_set("home/bedroom/fuzz/will", b"gone", 1, properties=properties)

    with connected(replace(place, kept=is_5), prepare) as peer:
        for number, filter in enumerate(_FILTERS, 1):
            peer.subscribe((filter, number % 3), identifier=number if is_5 else 0)
        for qos in (0, 1, 2):
            for alias, topic in enumerate(_TOPICS, 1):
                properties = properties_of("PUBLISH", **_MESSAGE, TopicAlias=alias) if is_5 else None
                peer.client.publish(topic, b"x" * 200, qos, properties=properties).wait_for_publish(
                    clients.PATIENCE_S
                )
        peer.await_received(len(_TOPICS))
        peer.client.unsubscribe(list(_FILTERS))


_MESSAGE: Final = {
    "PayloadFormatIndicator": 1,
    "MessageExpiryInterval": 2,
    "ContentType": "text/plain",
    "ResponseTopic": "home/kitchen/fuzz/answer",
    "CorrelationData": b"\x00\x01",
    "UserProperty": [("a", "b"), ("a", "")],
}
