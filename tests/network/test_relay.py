"""The relay treats packets of real hosts as the simulated network treats datagrams."""

from __future__ import annotations

import socket
from random import Random

import pytest

from hbroker.sim.network import CLEAR, Faults
from hbroker.sim.network.relay import Relay, Routes

A, B, C = "10.77.1.1", "10.77.1.2", "10.77.1.3"
BAD = Faults(loss=0.2, delay_us=30_000, jitter_us=40_000, reordering=0.1, duplication=0.1, corruption=0.1)


def packet(source: str, destination: str, payload: bytes = b"payload") -> bytes:
    """An IPv4 packet with a UDP datagram, as far as the relay reads it."""
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    return b"\x45" + bytes(11) + addresses + bytes(8) + payload


def carried(relay: Relay, until: int) -> list[tuple[int, str, bytes]]:
    """The packets that leave the relay up to a time: the time, the destination and the data."""
    left = []
    while (at := relay.poll_timeout()) is not None and at <= until:
        departure = relay.poll_transmit(at)
        assert departure is not None
        left.append((at, *departure))
    return left


def test_a_clear_path_carries_every_packet_unchanged() -> None:
    relay = Relay(1)
    sent = [packet(A, B, bytes([number])) for number in range(100)]
    for at, data in enumerate(sent):
        relay.handle_packet(at, data)
    assert relay.poll_transmit(CLEAR.delay_us - 1) is None
    assert carried(relay, 10_000) == [(at + CLEAR.delay_us, B, data) for at, data in enumerate(sent)]


def test_a_bad_path_does_the_same_as_the_simulated_one_from_the_same_seed() -> None:
    relay, random = Relay(7, Routes(BAD)), Random(7)
    payload = bytes(100)
    expected = []
    for at in range(2_000):
        relay.handle_packet(at, packet(A, B, payload))
        for arrival in BAD.arrivals(random, at, len(payload)):
            if BAD.damages(random):
                random.randrange(20, 128), random.randrange(8)
            expected.append(arrival)
    assert [at for at, _, _ in carried(relay, 1_000_000)] == sorted(expected)
    assert 300 < relay.counts["lost"] < 500
    assert relay.counts["in"] == 2_000
    assert relay.counts["out"] == len(expected)
    assert relay.counts["out"] > relay.counts["in"] - relay.counts["lost"] + 100, "some are doubled"


def test_damage_is_one_bit_that_the_udp_checksum_covers() -> None:
    relay = Relay(1, Routes(Faults(corruption=1.0)))
    whole = packet(A, B, bytes(1_000))
    bits = set()
    for at in range(500):
        relay.handle_packet(at, whole)
    for _, _, damaged in carried(relay, 10_000):
        difference = int.from_bytes(whole) ^ int.from_bytes(damaged)
        assert difference.bit_count() == 1
        bits.add(difference.bit_length() - 1)
        assert damaged[:20] == whole[:20]
    assert len(bits) > 400


def test_a_cut_path_carries_nothing_in_its_direction() -> None:
    relay = Relay(1)
    relay.handle_packet(0, packet(A, B))
    relay.routes = Routes(CLEAR, {(A, B): None})
    for source, destination in ((A, B), (B, A), (A, C)):
        relay.handle_packet(1, packet(source, destination))
    assert [destination for _, destination, _ in carried(relay, 10_000)] == [B, A, C], "one was on its way"
    assert relay.counts["cut"] == 1


def test_a_packet_too_large_for_its_path_is_dropped() -> None:
    relay = Relay(1, Routes(Faults(mtu=1_200)))
    for size in (1_200, 1_201):
        relay.handle_packet(0, packet(A, B, bytes(size)))
    assert [len(data) for _, _, data in carried(relay, 10_000)] == [1_228]


@pytest.mark.parametrize("data", [b"", b"\x45" + bytes(18), b"\x60" + bytes(60)])
def test_a_packet_that_is_not_ipv4_is_counted(data: bytes) -> None:
    relay = Relay(1)
    relay.handle_packet(0, data)
    assert relay.poll_timeout() is None
    assert relay.counts == {"foreign": 1}
