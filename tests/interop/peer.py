"""A paho client in the process of the test, for tests that need more than the common interface of
`clients`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tests import waiting
from tests.interop.clients import PATIENCE_S
from tests.interop.lines import Place


class Peer:
    """A client that reconnects by itself.

    `received`: messages as paho represents them, in order. `subacks_before`: for each message, the number of
    SUBACKs received before it. `is_session_present`: the Session Present flag of each CONNACK.
    """

    def __init__(self, place: Place) -> None:
        self.client = mqtt.Client(
            CallbackAPIVersion.VERSION2, place.client_id, protocol=MQTTProtocolVersion(place.version)
        )
        self.received: list[mqtt.MQTTMessage] = []
        self.subacks = 0
        self.subacks_before: list[int] = []
        self.is_session_present: list[bool] = []
        self.client.on_connect = self._note_connack
        self.client.on_subscribe = self._count
        self.client.on_message = self._receive
        self.client.max_inflight_messages_set(1_000)
        self.reconnect_to(place)

    def connect(self) -> None:
        """Connects. Returns at the CONNACK."""
        self.client.loop_start()
        self.await_connections(1)

    def reconnect_to(self, place: Place) -> None:
        """Connects to this place from the next time on."""
        more: dict[str, Any] = {}
        if place.kept:
            more = {"clean_start": False, "properties": properties_of("CONNECT", SessionExpiryInterval=3_600)}
        self.client.connect_async(place.host, place.port, **more)

    def subscribe(self, *filters: tuple[str, int], identifier: int = 0) -> None:
        """Subscribes. Returns at the SUBACK."""
        properties = None
        if identifier:
            properties = properties_of("SUBSCRIBE", SubscriptionIdentifier=identifier)
        before = self.subacks
        self.client.subscribe(list(filters), properties=properties)
        waiting.until(lambda: self.subacks > before, "a SUBACK", PATIENCE_S)

    def payloads(self) -> set[bytes]:
        """The payloads of the received messages."""
        return {bytes(message.payload) for message in list(self.received)}

    def await_connections(self, count: int) -> None:
        """Returns when `count` connections have been accepted."""
        waiting.until(lambda: len(self.is_session_present) >= count, "a CONNACK", PATIENCE_S)

    def await_received(self, count: int) -> None:
        """Returns when `count` messages have been received."""
        waiting.until(
            lambda: len(self.received) >= count,
            f"{count} messages",
            PATIENCE_S,
            found=lambda: len(self.received),
        )

    def close(self) -> None:
        """Sends DISCONNECT and closes the connection."""
        self.client.disconnect()
        self.client.loop_stop()

    def _note_connack(
        self, _client: object, _userdata: object, flags: mqtt.ConnectFlags, reason: ReasonCode, *_: object
    ) -> None:
        if not reason.is_failure:
            self.is_session_present.append(flags.session_present)

    def _count(self, *_: object) -> None:
        self.subacks += 1

    def _receive(self, _client: object, _userdata: object, message: mqtt.MQTTMessage) -> None:
        self.subacks_before.append(self.subacks)
        self.received.append(message)


@contextmanager
def connected(
    place: Place, prepare: Callable[[mqtt.Client], object] = lambda _client: None
) -> Iterator[Peer]:
    """A connected client. `prepare` is called before it connects."""
    peer = Peer(place)
    prepare(peer.client)
    peer.connect()
    try:
        yield peer
    finally:
        peer.close()


def properties_of(packet: str, **values: Any) -> Properties:
    """Properties of an MQTT 5 packet, by their names in paho."""
    properties = Properties(getattr(PacketTypes, packet))  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def fields_of(message: mqtt.MQTTMessage) -> dict[str, Any]:
    """The properties of a message, by their names in paho."""
    return vars(message.properties)
