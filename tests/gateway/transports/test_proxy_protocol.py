"""The PROXY protocol: a client has the address that the balancer in front of the gateway names."""

from __future__ import annotations

import ipaddress
import struct
from contextlib import ExitStack, suppress

import pytest

from tests.gateway.transports.certificates import Authority
from tests.gateway.transports.front import Client, Front
from tests.gateway_native.wire import connect

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LOCAL, PROXY = 0x20, 0x21
UNSPECIFIED, TCP_4, TCP_6, UNIX = 0x00, 0x11, 0x21, 0x31
NOTHING = 0x04
"""The type of a field to be skipped."""


def header(source: str, command: int = PROXY, extra: bytes = b"") -> bytes:
    """A header of version 2, for a client at this address."""
    address = ipaddress.ip_address(source)
    family = TCP_4 if address.version == 4 else TCP_6
    here = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    addresses = address.packed + here.packed + struct.pack(">HH", 4_711, 1_883)
    return raw(command, family, addresses + extra)


def raw(command: int, family: int, body: bytes) -> bytes:
    """A header of version 2 with arbitrary content."""
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(body)) + body


FIELDS = struct.pack(">BH", NOTHING, 300) + bytes(300)


HEADERS = {
    "IPv4": (header("192.0.2.7"), "192.0.2.7:4711"),
    "IPv6": (header("2001:db8::7"), "[2001:db8::7]:4711"),
    "with more fields": (header("192.0.2.8", extra=FIELDS), "192.0.2.8:4711"),
    "health check": (header("192.0.2.9", LOCAL), None),
    "unspecified": (raw(PROXY, UNSPECIFIED, b""), None),
    "unix": (raw(PROXY, UNIX, bytes(216)), None),
}
"""Valid headers, and the client address that each names. None: the address of the connection counts."""


@pytest.mark.parametrize("listener", ["proxied", "proxied tls"])
def test_a_client_is_listed_with_the_address_in_its_header(
    front: Front, authority: Authority, name: str, listener: str
) -> None:
    expected = {}
    with ExitStack() as stack:
        for kind, (head, address) in HEADERS.items():
            connection = front.connect(listener)
            expected[f"{name} {kind}"] = address or f"127.0.0.1:{connection.getsockname()[1]}"
            connection.sendall(head)
            if "tls" in listener:
                connection = authority.context().wrap_socket(connection, server_hostname="localhost")
            stack.enter_context(Client(connection)).open(f"{name} {kind}")
        listed = {client: told["address"] for client, told in front.clients().items()}
    assert {client: listed.get(client) for client in expected} == expected


def test_a_header_and_a_connect_are_read_in_any_pieces(front: Front, name: str) -> None:
    stream = header("192.0.2.7", extra=FIELDS) + connect(name)
    for piece in (1, 7, len(stream)):
        with Client(front.connect("proxied")) as client:
            for at in range(0, len(stream), piece):
                client.send(stream[at : at + piece])
            assert client.expect(2)[1] == 0


@pytest.mark.parametrize(
    "head",
    [
        b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 1883\r\n",
        connect("direct"),
        SIGNATURE[:-1] + b"\r",
        SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12),
        SIGNATURE + b"\x2f\x11\x00\x0c" + bytes(12),
        raw(PROXY, TCP_4, bytes(3)),
        raw(PROXY, UNSPECIFIED, bytes(0xFFFF)),
    ],
    ids=["version 1", "none", "another signature", "version", "command", "too short", "too long"],
)
@pytest.mark.parametrize("listener", ["proxied", "proxied tls"])
def test_an_invalid_header_ends_the_connection(front: Front, listener: str, head: bytes) -> None:
    with front.connect(listener) as connection:
        connection.sendall(head)
        with suppress(ConnectionResetError):  # the gateway may close before it has read everything
            assert connection.recv(1) == b""
