"""Listeners with WebSocket and the PROXY protocol, through the native API. (`mqtt/io/tests` in Rust tests
the layers themselves.)"""

from __future__ import annotations

import os
import re
import socket

import pytest

from hbroker._native import ListenerSettings, NativeError
from tests.gateway_native.gateway_with_node import gateway_up
from tests.gateway_native.wire import CONNACK, PINGRESP, Raw, connect, packet

_UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
_PROXY = (
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + socket.inet_aton("192.0.2.7") + bytes(4) + b"\x12\x67\x07\x5b"
)


def _frame(payload: bytes, *, first: int = 0x82) -> bytes:
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([first, 0x80 | len(payload)]) + mask + masked


def _unwrap(client: Raw, count: int) -> bytes:
    """The content of the next frames, at least `count` bytes."""
    data = b""
    while len(data) < count:
        first, length = client._exactly(2)
        assert (first, length < 126) == (0x82, True)
        data += client._exactly(length)
    return data


def test_packets_are_read_across_websocket_frames() -> None:
    with gateway_up() as setup, Raw(setup.open(websocket=True, websocket_path="/mqtt"), level=4) as client:
        client.send(_UPGRADE)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += client._exactly(1)
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert re.search(rb"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r\n", answer, re.I)
        assert re.search(rb"sec-websocket-protocol: mqtt\r\n", answer, re.I)
        bytes_out = connect("w", level=4) + packet(0xC0, b"") * 3
        for index in range(0, len(bytes_out), 5):
            client.send(_frame(bytes_out[index : index + 5]))
        assert _unwrap(client, 10) == bytes([CONNACK << 4, 2, 0, 0]) + bytes([PINGRESP << 4, 0]) * 3


def test_the_proxy_protocol_sets_the_address_of_the_client() -> None:
    with gateway_up() as setup, Raw(setup.open(proxy_protocol=True)) as client:
        client.send(_PROXY + connect("p"))
        client.expect(CONNACK)
        assert setup.connects[0].peer == ("192.0.2.7", 4711)


def test_invalid_listener_settings_are_refused_with_a_reason() -> None:
    with pytest.raises(NativeError, match="certificate"):
        ListenerSettings(certificates=b"x", key=b"y")
    with pytest.raises(NativeError, match="sometimes"):
        ListenerSettings(client_certificates="sometimes")
    with gateway_up() as setup:
        address = setup.gateway.open_listener(7, ("127.0.0.1", 0), ListenerSettings())
        for number in (7, 8):
            with pytest.raises(OSError, match=r".+"):
                setup.gateway.open_listener(number, address, ListenerSettings())
        with pytest.raises(NativeError, match="9"):
            setup.gateway.set_listener(9, ListenerSettings())
        setup.gateway.set_listener(7, ListenerSettings(connections=0))
        with Raw(address[1]) as client:
            client.send(connect("x"))
            assert client.expect(CONNACK)[1] == 0x97
        with pytest.raises(NativeError, match="99"):
            setup.gateway.export_session(99)
