"""The packet filter in the kernel, attached to a pair of sockets, which needs no permission."""

from __future__ import annotations

import socket
from collections.abc import Collection

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet

from hbroker.capture.packet_filter import MOST_PORTS, attach, program
from tests.capture.datagrams import sent

HERE, THERE = ("127.0.0.1", 7700), ("127.0.0.1", 40_001)
HERE6, THERE6 = ("::1", 7700), ("::1", 40_001)
OPTIONS = IP(options=[IPOption_NOP()] * 8) / UDP(sport=40_001, dport=7700)


def passes(packet: Packet | bytes, ports: Collection[int]) -> bool:
    """Whether a packet reaches a socket with the filter."""
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sender, receiver:
        attach(receiver, ports)
        receiver.setblocking(False)
        sender.send(bytes(packet))
        try:
            return receiver.recv(65_535) == bytes(packet)
        except BlockingIOError:
            return False


@pytest.mark.parametrize("ports", [[], [7700], [1, 7700, 9], range(7700, 7700 + MOST_PORTS), range(1, 9000)])
@pytest.mark.parametrize(
    "packet",
    [
        sent(HERE, THERE, b"x"),
        sent(THERE, HERE, b"x"),
        sent(HERE6, THERE6, b""),
        sent(THERE6, HERE6, b"x"),
        OPTIONS,
    ],
    ids=["from", "to", "from, IPv6", "to, IPv6", "with IP options"],
)
def test_packets_of_the_given_ports_pass(packet: Packet, ports: Collection[int]) -> None:
    assert passes(packet, ports)


@pytest.mark.parametrize(
    "packet", [sent(HERE, THERE, b"x"), sent(HERE6, THERE6, b"x"), OPTIONS], ids=["IPv4", "IPv6", "options"]
)
def test_packets_of_other_ports_are_dropped(packet: Packet) -> None:
    assert not passes(packet, [7701, 40_000])


@pytest.mark.parametrize("ports", [[], [7700]])
@pytest.mark.parametrize(
    "packet",
    [
        IP() / TCP(sport=7700, dport=7700),
        IP() / ICMP(),
        IPv6() / TCP(sport=7700, dport=7700),
        b"\x55" * 40,
        b"",
        b"\x45",
    ],
    ids=["TCP", "ICMP", "TCP, IPv6", "neither", "empty", "cut off"],
)
def test_packets_other_than_udp_are_dropped(packet: Packet | bytes, ports: Collection[int]) -> None:
    assert not passes(packet, ports)


def test_a_later_fragment_is_dropped() -> None:
    assert not passes(IP(frag=100, proto=17) / b"\x1e\x14\x1e\x14", [7700])


def test_jumps_stay_within_the_program() -> None:
    for count in (0, 1, MOST_PORTS, MOST_PORTS + 1):
        steps = program(range(1, count + 1))
        for place, (_, then, otherwise, _) in enumerate(steps):
            assert 0 <= then < 256
            assert 0 <= otherwise < 256
            assert place + 1 + max(then, otherwise) <= len(steps)
