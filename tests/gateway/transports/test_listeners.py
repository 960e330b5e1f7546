"""Several listeners of one gateway: IPv4 and IPv6, and limits of their own."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest

from tests.gateway.transports.certificates import Authority
from tests.gateway.transports.front import Client, Front
from tests.gateway_native.wire import CONNACK, DISCONNECT, PINGRESP, PUBACK, connect, publish
from tests.product.network import PATIENCE
from tests.waiting import until

QUOTA_EXCEEDED, PACKET_TOO_LARGE, RATE_EXCEEDED = 0x97, 0x95, 0x9F
PINGREQ = b"\xc0\x00"

pytestmark = pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")


def test_clients_are_listed_with_their_ipv4_or_ipv6_address(front: Front, name: str) -> None:
    """`[::]` accepts both IPv4 and IPv6."""
    any_port = front.addresses["both"][1]
    places = {
        "one": (front.addresses["six"], "[::1]"),
        "any": (("::1", any_port), "[::1]"),
        "four": (("127.0.0.1", any_port), "127.0.0.1"),
    }
    expected = {}
    with ExitStack() as stack:
        for kind, (address, shown) in places.items():
            client = stack.enter_context(Client(socket.create_connection(address, PATIENCE)))
            client.open(f"{name} {kind}")
            expected[f"{name} {kind}"] = f"{shown}:{client.socket.getsockname()[1]}"
        listed = {client: told["address"] for client, told in front.clients().items()}
    assert {client: listed.get(client) for client in expected} == expected


def test_a_client_connects_over_tls_and_ipv6(front: Front, authority: Authority, name: str) -> None:
    with Client(front.secure("six tls", authority.context())) as client:
        client.open(name)


def test_the_limit_on_connections_counts_for_one_listener(
    front: Front, authority: Authority, name: str
) -> None:
    with ExitStack() as stack:

        def dial(number: int) -> int:
            client = stack.enter_context(Client(front.connect("few")))
            client.send(connect(f"{name}-{number}"))
            code = client.expect(CONNACK)[1]
            assert code == 0 or client.at_end()
            return code

        assert [dial(number) for number in range(4)] == [0, 0, QUOTA_EXCEEDED, QUOTA_EXCEEDED]
        with Client(front.secure("tls", authority.context())) as elsewhere:
            elsewhere.open(name)
    until(lambda: _is_let_in(front, name), "one may come when one has gone", PATIENCE)


def _is_let_in(front: Front, name: str) -> bool:
    with Client(front.connect("few")) as client:
        client.send(connect(name))
        return client.expect(CONNACK)[1] == 0


def test_the_limit_on_the_connection_rate_counts_for_one_listener(
    front: Front, authority: Authority, name: str
) -> None:
    """All connections are opened at once, and the handshakes follow. On a busy machine twelve handshakes
    one after the other may take the three seconds in which twelve connections are allowed."""
    rate, context = 3, authority.context()
    with ExitStack() as stack:
        began = time.monotonic()
        dialled = [stack.enter_context(front.connect("slow")) for _ in range(12)]
        codes = []
        for number, connection in enumerate(dialled):
            client = stack.enter_context(Client(context.wrap_socket(connection, server_hostname="localhost")))
            client.send(connect(f"{name}-{number}"))
            codes.append(client.expect(CONNACK)[1])
        passed = time.monotonic() - began
    assert set(codes) == {0, RATE_EXCEEDED}
    assert rate <= codes.count(0) <= rate + rate * passed, "a second's worth may come at once"
    with Client(front.secure("tls", authority.context())) as elsewhere:
        elsewhere.open(name)


def test_the_maximum_packet_size_counts_for_one_listener(
    front: Front, authority: Authority, name: str
) -> None:
    over = publish(f"public/{name}", bytes(1_000), qos=1, packet_id=1)
    with Client(front.secure("small", authority.context())) as client:
        client.send(connect(name))
        body = client.expect(CONNACK)
        assert b"\x27" + (1_000).to_bytes(4, "big") in body, "it is told its maximum packet size"
        fits = publish(f"public/{name}", bytes(1_000 - (len(over) - 1_000)), qos=1, packet_id=1)
        client.send(fits, PINGREQ)
        assert {client.read()[0] >> 4 for _ in range(2)} == {PUBACK, PINGRESP}
        client.send(over)
        assert client.expect(DISCONNECT)[0] == PACKET_TOO_LARGE
        assert client.at_end()
    with Client(front.secure("tls", authority.context())) as elsewhere:
        elsewhere.open(name)
        elsewhere.send(over)
        elsewhere.expect(PUBACK)
