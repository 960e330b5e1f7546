"""A live capture of the loopback interface, if this user has the permission."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator

import pytest
from scapy.layers.inet import UDP
from scapy.packet import Packet

from hbroker.capture.frames import CaptureRefused, Interface
from hbroker.cli import main
from tests.needs import need


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        yield one, other


def capture(port: int) -> Interface:
    try:
        return Interface("lo", [port])
    except CaptureRefused as refusal:
        need(False, str(refusal))
        raise


def seen(interface: Interface) -> list[Packet]:
    """All captured packets, until none arrives for a while."""
    return list(iter(lambda: interface.read(0.3), None))


def test_each_datagram_is_captured_once(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    with capture(one.getsockname()[1]) as interface:
        began = time.time()
        for number in range(20):
            one.sendto(b"%d" % number, other.getsockname())
        packets = seen(interface)
        assert [bytes(packet[UDP].payload) for packet in packets] == [b"%d" % number for number in range(20)]
        assert all(began - 1 <= packet.time <= time.time() for packet in packets)
        assert interface.missed == 0


def test_datagrams_of_other_ports_are_not_captured(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    with capture(1) as interface:
        one.sendto(b"x", other.getsockname())
        assert seen(interface) == []


def test_a_missing_permission_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> socket.socket:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("hbroker.capture.frames.socket.socket", refuse)
    assert main(["capture"]) == 1
    assert "this user may not capture" in capsys.readouterr().err


def test_a_missing_interface_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "-i", "nowhere0"]) == 1
    assert "hbroker: " in capsys.readouterr().err
