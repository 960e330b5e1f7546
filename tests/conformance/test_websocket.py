"""MQTT in WebSocket (MQTT 5 §6), and over TCP beside it (MQTT 5 §4.2)."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.conformance.client import PINGREQ, Client, connect
from tests.conformance.conftest import Ports
from tests.conformance.holds import holds

TEXT, BINARY, CLOSE = 1, 2, 8
PATIENCE_S = 60.0


class WebSocket:
    """A small part of RFC 6455, without fragments and extensions."""

    def __init__(self, port: int, subprotocols: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._file = self._socket.makefile("rb")
        self._socket.sendall(
            f"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
            f"Sec-WebSocket-Protocol: {subprotocols}\r\n\r\n".encode()
        )
        self.status = int(self._file.readline().split()[1])
        lines = iter(self._file.readline, b"\r\n")
        fields = (line.decode().rstrip().partition(": ") for line in lines)
        self.headers = {field.lower(): value for field, _, value in fields}

    def send(self, opcode: int, payload: bytes) -> None:
        """Sends one frame, masked as a client's frames are."""
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        self._socket.sendall(bytes([0x80 | opcode, 0x80 | len(payload)]) + mask + masked)

    def frame(self) -> tuple[int, bytes]:
        """Reads the next frame: its opcode and payload."""
        first, length = self._file.read(2)
        if length == 126:
            (length,) = struct.unpack(">H", self._file.read(2))
        return first & 0xF, self._file.read(length)

    def binary(self, count: int) -> bytes:
        """Reads this many bytes, all from binary frames."""
        data = b""
        while len(data) < count:
            opcode, payload = self.frame()
            assert opcode == BINARY
            data += payload
        return data

    def at_end(self) -> bool:
        return self._file.read(1) == b""

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def websocket(ports: Ports) -> Iterator[WebSocket]:
    made = WebSocket(ports.websocket, "x, mqtt")
    yield made
    made.close()


@holds("MQTT-6.0.0-4")
def test_the_subprotocol_is_mqtt(websocket: WebSocket) -> None:
    assert (websocket.status, websocket.headers["sec-websocket-protocol"]) == (101, "mqtt")


@holds("MQTT-6.0.0-1")
def test_a_text_frame_closes_the_connection(websocket: WebSocket, name: str) -> None:
    websocket.send(BINARY, connect(name))
    assert websocket.frame()[1][0] == 0x20
    websocket.send(TEXT, b"hello")
    assert websocket.frame()[0] == CLOSE
    websocket.send(CLOSE, b"")
    assert websocket.at_end()


@holds("MQTT-6.0.0-2", "MQTT-6.0.0-1", "MQTT-4.2-1")
def test_mqtt_packets_need_not_end_with_websocket_frames(
    websocket: WebSocket, client: Client, name: str
) -> None:
    hello = connect(name)
    for byte in hello:
        websocket.send(BINARY, bytes([byte]))
    connack = websocket.binary(2)
    assert connack[0] == 0x20
    websocket.binary(connack[1] + 2 - len(connack))
    websocket.send(BINARY, PINGREQ * 20 + PINGREQ[:1])
    assert websocket.binary(40) == b"\xd0\0" * 20
    websocket.send(BINARY, PINGREQ[1:])
    assert websocket.binary(2) == b"\xd0\0"
    client.ping()
