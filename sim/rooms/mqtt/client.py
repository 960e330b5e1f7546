"""One MQTT 5 connection on asyncio: `MqttClient`.

It supports all three QoS levels in both directions, keeps the connection alive, and ends it with DISCONNECT
or by breaking off. A connection is one session (clean start, no expiry). A message that the server had not
acknowledged when the connection ended has the result None: its outcome is not known. Nothing is queued beyond
the server's Receive Maximum and the transport's buffer: then `publish` returns False.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from .packets import (
    Kind,
    MalformedPacket,
    ReceivedPublish,
    Splitter,
    Will,
    acknowledgement,
    connect,
    disconnect,
    ping,
    publish,
    read_acknowledgement,
    read_connack,
    read_publish,
    read_suback,
    subscribe,
)

__all__ = ["ConnectionFailed", "MqttClient", "OnResult"]

OnResult: TypeAlias = Callable[[int | None], None]
"""Called with the reason code of the acknowledgement; None: the connection ended before it came."""

_RECEIVE_MAXIMUM: Final = 65_535
_FIRST_FAILURE: Final = 0x80
"""Reason codes from this one on are failures (MQTT 5 §2.4)."""


class ConnectionFailed(Exception):
    """The server refused, is unreachable, or ended the connection."""


class MqttClient(asyncio.Protocol):
    """A client that connects once.

    `on_message` is called with each message, once at QoS 2. `on_lost` is called when the connection ends
    without `close` or `abort`.
    """

    def __init__(self, on_message: Callable[[ReceivedPublish], None], on_lost: Callable[[str], None]) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._splitter = Splitter()
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._subscribing: dict[int, asyncio.Future[int]] = {}
        self._in_flight: dict[int, tuple[int, OnResult]] = {}
        """By packet id: the QoS, and the callback."""
        self._receiving: set[int] = set()
        """Packet ids of QoS 2 messages from the server that wait for its PUBREL (MQTT 5 §4.3.3)."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._last_id = 0
        self._receive_maximum = _RECEIVE_MAXIMUM
        self._is_full = False
        self._keep_alive: asyncio.TimerHandle | None = None
        self._keep_alive_s = 0
        self._has_received = True

    async def connect(
        self, host: str, port: int, client_id: str, *, keep_alive_s: int = 30, will: Will | None = None
    ) -> None:
        """Connects, and waits for CONNACK. Raises ConnectionFailed, OSError."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, host, port)
        self._keep_alive_s = keep_alive_s
        self._write(connect(client_id, keep_alive_s=keep_alive_s, will=will))
        await self._connected
        self._keep_alive = loop.call_later(keep_alive_s / 2, self._ping)

    async def subscribe(self, filter: str, qos: int, *, no_local: bool = False) -> None:
        """Returns when every owner has the subscription. Raises ConnectionFailed if one refused."""
        packet_id = self._next_id()
        granted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._subscribing[packet_id] = granted
        self._write(subscribe(packet_id, filter, qos, no_local=no_local))
        reason = await granted
        if reason >= _FIRST_FAILURE:
            raise ConnectionFailed(f"subscription to {filter!r} refused: {reason:#04x}")

    def publish(
        self, topic: str, payload: bytes, qos: int, *, retain: bool = False, on_result: OnResult
    ) -> bool:
        """Sends a message. At QoS 1 and 2 `on_result` gets its result. False: there is no room now."""
        if (
            self._transport is None
            or self._is_full
            or (qos and len(self._in_flight) >= self._receive_maximum)
        ):
            return False
        packet_id = 0
        if qos:
            packet_id = self._next_id()
            self._in_flight[packet_id] = qos, on_result
            self._idle.clear()
        self._transport.write(publish(topic, payload, qos, retain=retain, packet_id=packet_id))
        return True

    async def drain(self) -> None:
        """Waits until every message has its last acknowledgement, or the connection has ended."""
        await self._idle.wait()

    def close(self) -> None:
        """Sends DISCONNECT: no will is published. Idempotent."""
        if self._transport is not None:
            self._transport.write(disconnect())
            self._transport.close()
            self._end("closed")

    def abort(self) -> None:
        """Breaks off, as a device that loses its power. Idempotent."""
        if self._transport is not None:
            self._transport.abort()
            self._end("broken off")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Notes the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Reports that the connection is lost, unless this side ended it."""
        self._lose(str(error or "the server closed the connection"))

    def pause_writing(self) -> None:
        """The server does not read: `publish` returns False."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The server reads again."""
        self._is_full = False

    def data_received(self, data: bytes) -> None:
        """Handles the packets in these bytes."""
        self._has_received = True
        try:
            for first, body in self._splitter.feed(data):
                self._handle(first, body)
        except MalformedPacket as error:
            self._lose(f"the server sent a malformed {error}")

    # Packets

    def _handle(self, first: int, body: bytes) -> None:
        match first >> 4:
            case Kind.PUBLISH:
                self._handle_publish(read_publish(first, body))
            case Kind.PUBACK | Kind.PUBCOMP:
                self._complete(*read_acknowledgement(body))
            case Kind.PUBREC:
                packet_id, reason = read_acknowledgement(body)
                if reason >= _FIRST_FAILURE:
                    self._complete(packet_id, reason)
                else:
                    self._write(acknowledgement(Kind.PUBREL, packet_id))
            case Kind.PUBREL:
                packet_id, _ = read_acknowledgement(body)
                self._receiving.discard(packet_id)
                self._write(acknowledgement(Kind.PUBCOMP, packet_id))
            case Kind.SUBACK:
                packet_id, reason = read_suback(body)
                granted = self._subscribing.pop(packet_id, None)
                if granted is not None and not granted.done():
                    granted.set_result(reason)
            case Kind.CONNACK:
                self._handle_connack(body)
            case Kind.DISCONNECT:
                self._handle_disconnect(body)

    def _handle_publish(self, message: ReceivedPublish) -> None:
        if message.qos == 2:
            is_new = message.packet_id not in self._receiving
            self._receiving.add(message.packet_id)
            self._write(acknowledgement(Kind.PUBREC, message.packet_id))
            if not is_new:
                return
        self._on_message(message)
        if message.qos == 1:
            self._write(acknowledgement(Kind.PUBACK, message.packet_id))

    def _handle_connack(self, body: bytes) -> None:
        connack = read_connack(body)
        if self._connected.done():
            raise MalformedPacket("second CONNACK")
        if connack.reason:
            self._connected.set_exception(ConnectionFailed(f"CONNACK {connack.reason:#04x}"))
        else:
            self._receive_maximum = connack.receive_maximum
            self._connected.set_result(None)

    def _handle_disconnect(self, body: bytes) -> None:
        reason = body[0] if body else 0
        self._lose(f"DISCONNECT {reason:#04x}")

    def _complete(self, packet_id: int, reason: int) -> None:
        sent = self._in_flight.pop(packet_id, None)
        if not self._in_flight:
            self._idle.set()
        if sent is not None:
            sent[1](reason)

    def _lose(self, text: str) -> None:
        """The connection has ended without `close` or `abort`, or is of no more use."""
        if self._transport is not None:
            self._transport.abort()
            self._end(text)
            self._on_lost(text)

    def _end(self, text: str) -> None:
        self._transport = None
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        error = ConnectionFailed(text)
        if not self._connected.done():
            self._connected.set_exception(error)
        for granted in self._subscribing.values():
            if not granted.done():
                granted.set_exception(error)
        in_flight, self._in_flight = self._in_flight, {}
        self._idle.set()
        for _, on_result in in_flight.values():
            on_result(None)

    def _ping(self) -> None:
        """Sends PINGREQ. A server that sent nothing since the last PINGREQ has gone (MQTT 5 §3.1.2.10)."""
        if self._transport is None:
            return
        if not self._has_received:
            self._lose("the server is silent")
            return
        self._has_received = False
        self._transport.write(ping())
        loop = asyncio.get_running_loop()
        self._keep_alive = loop.call_later(self._keep_alive_s / 2, self._ping)

    def _write(self, packet: bytes) -> None:
        if self._transport is not None:
            self._transport.write(packet)

    def _next_id(self) -> int:
        """A packet id that is not in use (MQTT 5 §2.2.1)."""
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self._in_flight and self._last_id not in self._subscribing:
                return self._last_id
