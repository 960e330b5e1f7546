"""The bounds for one address at a gateway: the memory for incomplete packets, and connections."""

from __future__ import annotations

import fcntl
import sys
import termios
import threading
from contextlib import ExitStack

import pytest

from hbroker.gateway.native_api import ConnectEvent
from tests.gateway_native.gateway_with_node import PATIENCE_S, Accept, GatewayWithNode, gateway_up
from tests.gateway_native.wire import CONNACK, DISCONNECT, PUBACK, Raw, connect, publish
from tests.waiting import until

MIB = 1 << 20
MEMORY = 4 * MIB
QUOTA_EXCEEDED = 0x97
ANNOUNCED = 256 * MIB - 1_000
OTHER = "127.0.0.2"


def begin_large(client: Raw, size: int) -> None:
    """Announces the largest PUBLISH, and sends `size` bytes of it."""
    head = publish("large", b"")
    client.send(bytes([head[0]]) + b"\xff\xff\xff\x7f", head[2:], bytes(size - len(head) - 3))


def counted(setup: GatewayWithNode, what: str) -> int:
    return setup.gateway.gateway_counters()[what]


def unacknowledged(client: Raw) -> int:
    """The bytes that the gateway's kernel has not received."""
    answer = fcntl.ioctl(client.socket, termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


def held(setup: GatewayWithNode) -> int:
    return counted(setup, "unfinished_bytes")


def await_held(setup: GatewayWithNode, least: int, most: int) -> None:
    until(
        lambda: least <= held(setup) <= most,
        f"{least} to {most} bytes held",
        PATIENCE_S,
        found=lambda: held(setup),
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_an_announced_packet_takes_only_the_memory_of_its_received_bytes_and_one_address_gets_half(
    workers: int,
) -> None:
    with gateway_up(workers=workers, unfinished_bytes=MEMORY) as setup, ExitStack() as opened:
        port = setup.open()
        many = [opened.enter_context(Raw(port)).open(f"c{number}") for number in range(4)]
        for client in many:
            begin_large(client, 400_000)
        await_held(setup, 1_500_000, 1_600_000)
        assert counted(setup, "unfinished_full") == 0
        for client in many[:2]:
            with pytest.raises(ConnectionError):  # it is refused, and further bytes reset the connection
                client.send(*[bytes(MIB)] * 64)
        until(lambda: counted(setup, "unfinished_full") == 2, "two that found no room", PATIENCE_S)
        await_held(setup, 790_000, 810_000)
        with Raw(port, host=OTHER).open("other") as other:
            other.send(publish("of/other", bytes(900_000), qos=1, packet_id=7))
            other.expect(PUBACK)  # another address has room
        for client in many[2:]:
            client.socket.close()
        await_held(setup, 0, 0)


@pytest.mark.parametrize(("level", "is_told"), [(5, True), (4, False)])
def test_a_client_whose_packet_finds_no_room_is_disconnected(level: int, is_told: bool) -> None:
    with gateway_up(unfinished_bytes=MEMORY) as setup, Raw(setup.open(), level=level) as client:
        client.open("c")
        begin_large(client, MEMORY // 2 - 100_000)
        await_held(setup, 1, MEMORY // 2)
        client.send(bytes(110_000))
        if is_told:
            assert client.expect(DISCONNECT)[0] == QUOTA_EXCEEDED
        assert client.at_end()
        await_held(setup, 0, 0)


def test_a_complete_packet_takes_no_memory_for_incomplete_ones() -> None:
    with gateway_up(unfinished_bytes=MEMORY) as setup, Raw(setup.open()) as client:
        client.open("c")
        for packet_id in range(1, 11):
            whole = publish("of/c", bytes(1_500_000), qos=1, packet_id=packet_id)
            for start in range(0, len(whole), 100_000):
                client.send(whole[start : start + 100_000])
            client.expect(PUBACK)
        await_held(setup, 0, 0)
        assert counted(setup, "unfinished_full") == 0


def test_complete_packets_that_wait_for_the_rate_limit_are_not_refused() -> None:
    size, count = 1_500, 40
    all_sent = threading.Event()

    def accept_later(event: ConnectEvent, session: int) -> Accept:
        assert all_sent.wait(PATIENCE_S)
        return Accept(session, event.client_id, rate=1)

    with gateway_up(accept_later, unfinished_bytes=65_536) as setup, Raw(setup.open()) as client:
        client.send(connect("c"))
        until(lambda: bool(setup.connects), "the gateway does not read while it decides", PATIENCE_S)
        client.send(*[publish("of/c", bytes(size), qos=1, packet_id=n) for n in range(1, count + 1)])
        until(lambda: unacknowledged(client) == 0, "one read finds all packets", PATIENCE_S)
        all_sent.set()
        client.expect(CONNACK)
        client.expect(PUBACK)
        await_held(setup, 65_536 // 2, count * size)
        client.expect(PUBACK)
        assert counted(setup, "unfinished_full") == 0


def test_the_connections_of_an_address_are_bounded_and_other_addresses_have_their_own() -> None:
    with gateway_up() as setup, ExitStack() as opened:
        port = setup.open(connections=10, connections_of_host=3)
        inside = [opened.enter_context(Raw(port)).open(f"c{number}") for number in range(3)]
        with Raw(port) as late:
            late.send(connect("late"))
            assert late.expect(CONNACK)[1] == QUOTA_EXCEEDED
        assert counted(setup, "turned_away") == 1
        opened.enter_context(Raw(port, host=OTHER)).open("other")
        inside[0].socket.close()
        until(lambda: counted(setup, "connections") == 3, "the end of one", PATIENCE_S)
        opened.enter_context(Raw(port)).open("next")


def test_the_bound_on_connections_of_an_address_does_not_count_behind_a_balancer() -> None:
    header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([192, 0, 2, 7]) + bytes(4) + b"\x12\x67\x07\x5b"
    with gateway_up() as setup, ExitStack() as opened:
        port = setup.open(proxy_protocol=True, connections_of_host=1)
        for number in range(4):
            client = opened.enter_context(Raw(port))
            client.send(header)
            client.open(f"c{number}")
