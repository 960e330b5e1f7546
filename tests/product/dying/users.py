"""Users of a network that is killed again and again: publishers that number their messages, and persistent
sessions that are sometimes away. Each is a native client, or an MQTT client at a gateway whose listener has
`acknowledge: distributed`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from hbroker import HBrokerError, sync
from tests.product.dying.test_stored_state import GONE
from tests.product.network import PATIENCE
from tests.waiting import until

__all__ = ["MqttPublisher", "MqttSession", "NativePublisher", "NativeSession", "Publisher", "Session"]

EXPIRY_S: Final = 3_600
LIVES: Final = 100 * PATIENCE
"""Seconds that a publisher tries to publish one message: the network is away for several restarts."""


class Publisher(ABC):
    """Publishes numbers on a topic of its own at one QoS, one after the other, through all kills. It pauses
    when it has published as many as it was allowed."""

    def __init__(self, topic: str, qos: int) -> None:
        self.topic, self.qos = topic, qos
        self.acknowledged = 0
        """All numbers below this have their PUBACKs or PUBCOMPs."""
        self.in_flight_at_kills: set[int] = set()
        """The numbers that had none when the network was killed."""
        self._allowed = threading.Semaphore(0)
        self._ends = False
        self._error: HBrokerError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to publish what is allowed."""
        self._thread.start()

    def allow(self, more: int) -> None:
        """Allows so many more messages."""
        self._allowed.release(more)

    def wait_for(self, count: int, otherwise: str) -> None:
        """Returns once all numbers below `count` are acknowledged."""
        until(
            lambda: self.acknowledged >= count,
            f"{count} PUBACKs on {self.topic} {otherwise}",
            PATIENCE,
            found=lambda: f"{self.acknowledged}, {self._error}",
        )

    def note_kill(self) -> None:
        """The network was killed."""
        self.in_flight_at_kills.add(self.acknowledged)

    def stop(self) -> None:
        """Ends it. What it was allowed must be published."""
        self._ends = True
        self._allowed.release()
        self._thread.join(PATIENCE)
        self._close()

    def _run(self) -> None:
        while self._allowed.acquire() and not self._ends:
            try:
                self._publish(f"{self.acknowledged}")
            except HBrokerError as error:
                self._error = error
                return
            self.acknowledged += 1

    @abstractmethod
    def _publish(self, payload: str) -> None:
        """Returns once the message is acknowledged."""

    @abstractmethod
    def _close(self) -> None: ...


class NativePublisher(Publisher):
    """A native client."""

    def __init__(self, root: str, topic: str, qos: int) -> None:
        super().__init__(topic, qos)
        self._client = sync.connect(root)

    def _publish(self, payload: str) -> None:
        self._client.publish(self.topic, payload, qos=self.qos, timeout=LIVES)

    def _close(self) -> None:
        self._client.close()


class MqttPublisher(Publisher):
    """A client of MQTT 5 with a persistent session."""

    def __init__(self, port: int, topic: str, qos: int) -> None:
        super().__init__(topic, qos)
        self._client = new_mqtt_client(f"publisher_{topic.replace('/', '_')}")
        self._published = threading.Semaphore(0)
        self._client.on_publish = lambda *_: self._published.release()
        connect_mqtt(self._client, port, [])

    def _publish(self, payload: str) -> None:
        self._client.publish(self.topic, payload, self.qos)  # paho keeps it until there is a connection.
        assert self._published.acquire(timeout=LIVES)

    def _close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Session(ABC):
    """A persistent session, which exists from the beginning, and what it has received."""

    def __init__(self, name: str, publishers: Mapping[str, Publisher]) -> None:
        self.name = name
        self.is_away = True
        self.received: dict[str, list[int]] = {topic: [] for topic in publishers}
        self.wills: list[str] = []
        self.was_connected_at_kill = False
        self._publishers = publishers

    def note_kill(self) -> None:
        """The network was killed."""
        self.was_connected_at_kill |= not self.is_away

    def resume(self) -> None:
        """Its client comes back. Fails if the session does not exist any more."""
        self.is_away = False
        self._resume()

    def leave(self) -> None:
        """Its client goes, and the session stays."""
        self._leave()
        self.is_away = True

    def catch_up(self, wills: int) -> None:
        """Waits until it has received all that is acknowledged, and so many wills."""
        has_all = f"{self.name} has all"
        until(lambda: not self._missing(), has_all, PATIENCE, found=self._describe_missing)
        until(
            lambda: len(self.wills) >= wills,
            f"{has_all} of {wills} wills",
            PATIENCE,
            found=lambda: self.wills,
        )

    def check(self) -> int:
        """It has caught up. Fails if it has lost a message, or has one of QoS 2 twice that must not be.
        Returns how many messages it has twice."""
        twice = 0
        for topic, numbers in self.received.items():
            publisher = self._publishers[topic]
            distinct = set(numbers)
            assert distinct >= set(range(publisher.acknowledged)), f"{self.name} has lost some of {topic}"
            twice += len(numbers) - len(distinct)
            if publisher.qos == 2 and self._is_exact_for(publisher):
                # The owner died before it knew that this run had them, and the next run does not know it.
                doubtful = publisher.in_flight_at_kills if self.was_connected_at_kill else set()
                known = [number for number in numbers if number not in doubtful]
                assert known == sorted(set(known)), f"{self.name} has some of {topic} twice, or not in order"
        return twice

    def _note(self, topic: str, payload: bytes | bytearray) -> None:
        if topic in self.received:
            self.received[topic].append(int(payload))
        elif topic == GONE:
            self.wills.append(payload.decode())

    def _missing(self) -> dict[str, list[int]]:
        """Acknowledged messages that it does not have, by topic."""
        missing = {
            topic: sorted(set(range(self._publishers[topic].acknowledged)) - set(numbers))
            for topic, numbers in self.received.items()
        }
        return {topic: some for topic, some in missing.items() if some}

    def _describe_missing(self) -> str:
        some = [
            f"{topic}: {len(numbers)} from {numbers[0]} to {numbers[-1]}"
            for topic, numbers in self._missing().items()
        ]
        return ", ".join(some)

    def _is_exact_for(self, publisher: Publisher) -> bool:
        """Whether it gets that publisher's messages of QoS 2 once. A gateway that is killed forgets what was
        in flight (docs/gateway.md, "What is in flight")."""
        return isinstance(publisher, NativePublisher)

    @abstractmethod
    def _resume(self) -> None: ...

    @abstractmethod
    def _leave(self) -> None: ...


class NativeSession(Session):
    """Of a native client, which acknowledges what the application has handled."""

    def __init__(self, name: str, root: str, publishers: Mapping[str, Publisher]) -> None:
        super().__init__(name, publishers)
        self._root = root
        self._thread = threading.Thread()
        with self._connect() as client:
            client.subscribe("home/#", qos=2)

    def _resume(self) -> None:
        self._client = self._connect()
        subscription = self._client.subscribe("home/#", qos=2)
        assert subscription.resumed, f"{self.name}: its session is gone"
        self._thread = threading.Thread(target=self._read, args=(subscription,), daemon=True)
        self._thread.start()

    def _leave(self) -> None:
        self._client.close()
        self._thread.join(PATIENCE)

    def _read(self, subscription: sync.Subscription) -> None:
        for message in subscription:
            self._note(message.topic, message.payload)

    def _connect(self) -> sync.Client:
        return sync.connect(
            self._root,
            client_id=self.name,
            session_key="k",
            session_expiry=EXPIRY_S,
            acknowledge="handled",
            timeout=PATIENCE,
        )


class MqttSession(Session):
    """Of a client of MQTT 5."""

    def __init__(self, name: str, port: int, publishers: Mapping[str, Publisher]) -> None:
        super().__init__(name, publishers)
        self._port = port
        self._present: list[bool] = []
        """Of each connection, also of those that paho made by itself after a kill: *session present*."""
        self._client = new_mqtt_client(name)
        self._client.on_message = lambda _client, _userdata, message: self._note(
            message.topic, message.payload
        )
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *_: subscribed.set()
        connect_mqtt(self._client, port, self._present)
        self._client.subscribe("home/#", 2)
        assert subscribed.wait(PATIENCE)
        self._leave()

    def catch_up(self, wills: int) -> None:
        super().catch_up(wills)
        assert all(self._present[1:]), f"{self.name}: session present was 0"

    def _describe_missing(self) -> str:
        absent = [number for number, is_present in enumerate(self._present) if number and not is_present]
        return f"{super()._describe_missing()}; session present was 0 in {absent} of {len(self._present)}"

    def _resume(self) -> None:
        connect_mqtt(self._client, self._port, self._present)
        assert self._present[-1], f"{self.name}: session present is 0"

    def _leave(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _is_exact_for(self, publisher: Publisher) -> bool:
        return super()._is_exact_for(publisher) and not self.was_connected_at_kill


def new_mqtt_client(name: str) -> mqtt.Client:
    """A client of MQTT 5."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5)
    client.reconnect_delay_set(1, 1)
    return client


def connect_mqtt(client: mqtt.Client, port: int, present: list[bool]) -> None:
    """Connects with a persistent session, and lets a thread of paho's serve the connection. If the connection
    breaks, paho connects again. For each connection, `present` gets whether the session was present."""
    connected = threading.Event()

    def note(
        _client: mqtt.Client, _userdata: object, flags: mqtt.ConnectFlags, reason: ReasonCode, *_: object
    ) -> None:
        if not reason.is_failure:
            present.append(flags.session_present)
            connected.set()

    client.on_connect = note
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = EXPIRY_S
    client.connect("127.0.0.1", port, clean_start=False, properties=properties)
    client.loop_start()
    assert connected.wait(PATIENCE), "no CONNACK"
