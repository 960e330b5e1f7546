"""The connection of a bridge to the other broker, by paho-mqtt.

paho runs in a thread of its own; what it reports is handed to the event loop. A connection ends for good at
its first failure: the bridge makes another one. So nothing of paho's outlives a connection, and what is not
acknowledged comes again from the side where it waits.

paho has no place on disk for the packet ids of QoS 2. A bridge that is killed would take a message for one
that the other broker has already. So the bridge subscribes and publishes at QoS 1 at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as MqttProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from hbroker.addresses import Address, format_address
from hbroker.config import BridgeSettings, BridgeTopic
from hbroker.properties import Properties, mqtt_properties_of
from hbroker.runtime.bridge.files import password_of, tls_context
from hbroker.runtime.logs import EventLog

if TYPE_CHECKING:
    from paho.mqtt.client import ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

    from hbroker._native import Message

__all__ = ["Incoming", "Remote", "RemoteFailed", "Version", "versions_of"]

SESSION_EXPIRY_S: Final = 7 * 86_400
"""For how long the other broker keeps the session of a bridge of MQTT 5."""
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 10.0
CLOSE_TIMEOUT_S: Final = 0.5
MOST_WAITING: Final = 10_000
MOST_WAITING_BYTES: Final = 64 << 20
"""The bounds of what waits here of the other broker. Beyond them messages of QoS 0 are discarded, and at QoS
1 the connection ends: the broker sends more than MQTT 5 allows it."""
FAILURE: Final = 0x80
QUOTA_EXCEEDED: Final = 0x97


class RemoteFailed(Exception):
    """The connection has failed. `is_version`: perhaps because of the version of MQTT."""

    def __init__(self, why: str, *, is_version: bool = False) -> None:
        super().__init__(why)
        self.is_version = is_version


class Version(Enum):
    """How a bridge speaks. The value is shown in the log."""

    V5 = "5"
    V311_BRIDGE = "3.1.1, as a bridge"
    """The highest bit of the protocol level is set (`try_private` in mosquitto.conf): the broker then sends
    nothing back that the bridge brought."""
    V311 = "3.1.1"


def versions_of(setting: str) -> tuple[Version, ...]:
    """The versions to try, in order, for the setting of a bridge."""
    of_311 = (Version.V311_BRIDGE, Version.V311)
    return {"5": (Version.V5,), "3.1.1": of_311}.get(setting, (Version.V5, *of_311))


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message of the other broker. `id`: its packet id, for `acknowledge`."""

    id: int
    topic: str
    payload: bytes
    qos: int
    properties: Properties


class Remote:
    """One connection. Made in the event loop that uses it."""

    def __init__(self, settings: BridgeSettings, address: Address, version: Version, client_id: str) -> None:
        self._settings = settings
        self.address = address
        self._version = version
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[MqttProperties | None] = self._loop.create_future()
        self.failed: asyncio.Future[RemoteFailed] = self._loop.create_future()
        """Completed when the connection has failed."""
        self._subscribed: asyncio.Future[list[int]] = self._loop.create_future()
        self._published: dict[int, asyncio.Future[int]] = {}
        self._lock = Lock()
        """Guards the fields from here to `dropped`, which paho's thread changes, too."""
        self._waiting: deque[Incoming] = deque()
        self._waiting_bytes = 0
        self._has_messages = asyncio.Event()
        self.dropped = 0
        """Messages of QoS 0 that found no room."""
        self.window = settings.in_flight
        """The most messages that may be published and not acknowledged yet. Known once `open` has
        returned."""
        self._most_bytes = 0
        self._retains = True
        self._client = self._make_client(client_id)

    # Change

    async def open(self, will: tuple[str, bytes] | None) -> None:
        """Connects. `will`: topic and payload of a retained message. Raises RemoteFailed, and ConfigError for
        a file that is not usable."""
        client, settings = self._client, self._settings
        password = await asyncio.to_thread(password_of, settings)
        if settings.username:
            client.username_pw_set(settings.username, password or None)
        if settings.tls is not None:
            client.tls_set_context(await asyncio.to_thread(tls_context, settings.tls, settings.name))
        if will is not None:
            client.will_set(*will, qos=1, retain=True)
        more: dict[str, Any] = {}
        if self._version is Version.V5:
            expiry = 0 if settings.clean_start else SESSION_EXPIRY_S
            properties = _packet_properties(
                PacketTypes.CONNECT, SessionExpiryInterval=expiry, ReceiveMaximum=settings.in_flight
            )
            more = {"clean_start": settings.clean_start, "properties": properties}
        host, port = self.address
        try:
            await self._in_thread(lambda: client.connect(host, port, settings.keep_alive, **more))
        except (OSError, ValueError) as error:
            raise RemoteFailed(f"cannot connect: {error}") from None
        client.loop_start()
        self._learn(await self._answer(self._connected, "CONNACK"))

    async def subscribe(self, topics: Sequence[BridgeTopic]) -> list[str]:
        """Subscribes to what comes in. Returns the filters that the broker refuses. Raises RemoteFailed."""
        if not topics:
            return []
        handling = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        if self._settings.clean_start:
            handling = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
        filters: Any = [(topic.remote, topic.qos) for topic in topics]
        if self._version is Version.V5:
            filters = [(topic.remote, SubscribeOptions(topic.qos, True, True, handling)) for topic in topics]
        self._client.subscribe(filters)
        codes = await self._answer(self._subscribed, "SUBACK")
        return [topic.remote for topic, code in zip(topics, codes, strict=False) if code >= FAILURE]

    def publish(self, topic: str, message: Message, qos: int) -> asyncio.Future[int]:
        """Publishes a message. The result is the reason code of its acknowledgement; at QoS 0 it comes when
        the message is sent. Raises ValueError if the broker cannot take the message."""
        if 0 < self._most_bytes < len(message.payload) + len(topic.encode()) + _ROOM:
            raise ValueError(f"the broker takes packets of {self._most_bytes} bytes")
        properties = self._outgoing(message) if self._version is Version.V5 else None
        retain = message.retain and self._retains
        return self._publish(topic, message.payload, qos, retain, properties)

    def publish_state(self, topic: str, payload: bytes) -> asyncio.Future[int]:
        """Publishes a retained message about the bridge itself."""
        return self._publish(topic, payload, 1, self._retains, None)

    async def next_messages(self, most: int) -> list[Incoming]:
        """The next messages, at least one."""
        while True:
            self._has_messages.clear()
            with self._lock:
                taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
                self._waiting_bytes -= sum(len(message.payload) for message in taken)
            if taken:
                return taken
            await self._has_messages.wait()

    def acknowledge(self, message: Incoming) -> None:
        """Acknowledges a message."""
        if message.qos:
            self._client.ack(message.id, message.qos)

    async def close(self) -> None:
        """Sends DISCONNECT, and ends the connection. If the broker does not take it in time, paho ends the
        connection later by itself."""
        self._fail("closed")
        client = self._client
        client.disconnect()
        await asyncio.wait({self._in_thread(client.loop_stop)}, timeout=CLOSE_TIMEOUT_S)
        # paho closes its sockets when the client is freed. So nothing may refer to it from itself.
        client.on_connect = client.on_disconnect = client.on_subscribe = None
        client.on_publish = client.on_message = None
        client.on_thread_end = _ignore

    # Within this module

    def _make_client(self, client_id: str) -> _Client:
        """The client of paho, whose callbacks are called in its thread."""
        is_5 = self._version is Version.V5
        client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if is_5 else self._settings.clean_start,
            protocol=MQTTv5 if is_5 else MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.on_thread_end = lambda: self._call(self._on_end, _CLOSED)
        client.connect_timeout = CONNECT_TIMEOUT_S
        client.max_inflight_messages = 0xFFFF  # The bridge has a window of its own.
        if self._version is Version.V311_BRIDGE:
            client.enable_bridge_mode()
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        return client

    def _in_thread(self, function: Callable[[], object]) -> asyncio.Future[None]:
        """Calls what may block in a thread that does not hold up the end of the process."""
        called: asyncio.Future[None] = self._loop.create_future()

        def call() -> None:
            try:
                function()
            except (OSError, ValueError) as error:
                self._call(_complete, called, error)
            else:
                self._call(_complete, called, None)

        Thread(target=call, daemon=True).start()
        return called

    async def _answer(self, answer: asyncio.Future[Any], packet: str) -> Any:
        """The answer of the broker. Raises RemoteFailed if none comes in time."""
        await asyncio.wait(
            {answer, self.failed}, timeout=ANSWER_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        if self.failed.done():
            raise self.failed.result()
        if not answer.done():
            raise RemoteFailed(f"no {packet} within {ANSWER_TIMEOUT_S:g} s", is_version=packet == "CONNACK")
        return answer.result()

    def _learn(self, properties: MqttProperties | None) -> None:
        """Learns the bounds of the broker from CONNACK (MQTT 5 §3.2.2.3)."""
        self.window = min(self.window, getattr(properties, "ReceiveMaximum", self.window))
        self._most_bytes = getattr(properties, "MaximumPacketSize", 0)
        self._retains = bool(getattr(properties, "RetainAvailable", 1))

    def _publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: MqttProperties | None
    ) -> asyncio.Future[int]:
        info = self._client.publish(topic, payload, qos, retain, properties)
        published: asyncio.Future[int] = self._loop.create_future()
        self._published[info.mid] = published
        return published

    @staticmethod
    def _outgoing(message: Message) -> MqttProperties:
        given = mqtt_properties_of(message)
        names = {
            "MessageExpiryInterval": given["expiry_s"],
            "ContentType": given["content_type"] or None,
            "PayloadFormatIndicator": given["payload_format"],
            "ResponseTopic": given["response_topic"] or None,
            "CorrelationData": given["correlation_data"] or None,
            "UserProperty": list(given["user_properties"]) or None,
        }
        return _packet_properties(PacketTypes.PUBLISH, **names)

    # Called in paho's thread

    def _call(self, handler: Callable[..., None], *arguments: object) -> None:
        """Calls a handler in the event loop. If that has ended, nobody needs the call."""
        try:
            self._loop.call_soon_threadsafe(handler, *arguments)
        except RuntimeError:
            return

    def _on_connect(
        self,
        _client: Client,
        _userdata: object,
        _flags: ConnectFlags,
        reason: ReasonCode,
        properties: MqttProperties | None,
    ) -> None:
        if not reason.is_failure:
            self._call(_complete, self._connected, properties)
            return
        is_version = reason.getName() == "Unsupported protocol version"
        self._call(self._fail, f"the broker refuses the connection: {reason}", is_version)

    def _on_disconnect(
        self, _client: Client, _userdata: object, flags: DisconnectFlags, reason: ReasonCode, _: object
    ) -> None:
        is_told = flags.is_disconnect_packet_from_server
        self._call(self._on_end, f"the broker ends it: {reason}" if is_told else _CLOSED)

    def _on_subscribe(
        self, _client: Client, _userdata: object, _id: int, codes: list[ReasonCode], _: object
    ) -> None:
        self._call(_complete, self._subscribed, [code.value for code in codes])

    def _on_publish(self, _client: Client, _userdata: object, id: int, reason: ReasonCode, _: object) -> None:
        self._call(self._on_published, id, reason.value)

    def _on_message(self, _client: Client, _userdata: object, message: MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""  # No entry of the bridge matches it.
        received = Incoming(
            message.mid,
            topic,
            bytes(message.payload),
            message.qos,
            _incoming(message, qos=min(message.qos, 1)),
        )
        self._receive(received)

    def _receive(self, message: Incoming) -> None:
        with self._lock:
            waiting, size = len(self._waiting), self._waiting_bytes + len(message.payload)
            has_room = waiting < MOST_WAITING and (not waiting or size <= MOST_WAITING_BYTES)
            if has_room:
                self._waiting_bytes = size
                self._waiting.append(message)
            elif not message.qos:
                self.dropped += 1
        if has_room and not waiting:
            self._call(self._has_messages.set)
        elif message.qos and not has_room:
            self._call(self._fail, "it sends more than it may have in flight")

    # Called in the event loop

    def _on_published(self, id: int, code: int) -> None:
        published = self._published.pop(id, None)
        if published is not None:
            _complete(published, code)

    def _on_end(self, reason: str) -> None:
        # Before CONNACK: some brokers close the connection at a version that they do not know.
        self._fail(reason, not self._connected.done())

    def _fail(self, why: str, is_version: bool = False) -> None:
        _complete(self.failed, RemoteFailed(why, is_version=is_version))

    def __str__(self) -> str:
        return f"{format_address(self.address)} (MQTT {self._version.value})"


class _Client(Client):
    """paho's client. It calls `on_thread_end` when its thread ends: paho reports no end if it cannot read
    what the broker sends."""

    on_thread_end: Callable[[], None]

    def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> MQTTErrorCode:
        """Runs in paho's thread."""
        try:
            return super().loop_forever(timeout, retry_first_connection)
        except Exception as error:  # Whatever paho raises for malformed packets.
            EventLog("bridge").warning("malformed_packet", error=repr(error))
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        finally:
            self.on_thread_end()


_CLOSED: Final = "the broker closed the connection, or it was lost"
_ROOM: Final = 1_024
"""What a packet may have besides topic and payload, in bytes."""


def _complete(future: asyncio.Future[Any], result: object) -> None:
    """Completes a future, unless it is complete. An exception other than RemoteFailed is raised where it is
    awaited."""
    if future.done():
        return
    if isinstance(result, OSError | ValueError):
        future.set_exception(result)
    else:
        future.set_result(result)


def _ignore() -> None:
    """There is nobody to tell."""


def _packet_properties(packet: int, **values: object) -> MqttProperties:
    properties = MqttProperties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        if value is not None:
            setattr(properties, name, value)
    return properties


def _incoming(message: MQTTMessage, qos: int) -> Properties:
    """The properties with which a message is published here."""
    given = message.properties
    return Properties(
        qos=qos,
        retain=message.retain,
        expiry_s=getattr(given, "MessageExpiryInterval", None),
        content_type=getattr(given, "ContentType", ""),
        payload_format=getattr(given, "PayloadFormatIndicator", None),
        response_topic=getattr(given, "ResponseTopic", ""),
        correlation_data=getattr(given, "CorrelationData", b""),
        user_properties=[tuple(pair) for pair in getattr(given, "UserProperty", [])],
    )
