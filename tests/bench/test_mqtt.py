"""The MQTT subscriber of the measurement sees what a broker does wrong, and answers at QoS 1."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from bench.mqtt import MqttSubscriber
from bench.transport import FILLER, PAYLOAD_BYTES, topic_of

_CONNACK = b"\x20\x02\x00\x00"


@contextmanager
def _broker(qos: int, sent: Sequence[bytes], answers: bytearray) -> Iterator[tuple[str, int]]:
    """Takes so many subscribers, sends each its bytes, and keeps what they answer until they go."""

    def serve() -> None:
        connections = [server.accept()[0] for _ in sent]
        for connection in connections:
            connection.recv(1_024)
            connection.sendall(_CONNACK)
        for connection, packets in zip(connections, sent, strict=True):
            connection.recv(1_024)
            connection.sendall(bytes([0x90, 3, 0, 1, qos]) + packets)
        for connection in connections:
            with connection:
                while received := connection.recv(1_024):
                    answers.extend(received)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        thread.join(10)
        assert not thread.is_alive()


def _publish(number: int, packet_id: int | None = None, filler: bytes = FILLER[8:]) -> bytes:
    topic = topic_of(0).encode()
    identifier = b"" if packet_id is None else packet_id.to_bytes(2, "big")
    body = len(topic).to_bytes(2, "big") + topic + identifier + number.to_bytes(8, "big") + filler
    return bytes([0x30 if packet_id is None else 0x32, len(body)]) + body


def _received(sent: bytes, count: int, qos: int = 0) -> tuple[MqttSubscriber, bytes]:
    """A subscriber that took so many packets, good or bad, and its answers."""
    answers = bytearray()
    with _broker(qos, [sent], answers) as address:
        subscriber = MqttSubscriber(address, pairs=1, qos=qos)
        stream = subscriber.streams[0]
        while stream.received + stream.duplicated + subscriber.corrupted < count:
            subscriber.take(0)
        subscriber.close()
    return subscriber, bytes(answers)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0, 1, 2, 3], (4, 0, 0)),
        ([0, 2, 3], (3, 0, 0)),
        ([0, 2, 1, 3], (4, 0, 1)),
        ([0, 1, 1, 2], (3, 1, 0)),
        ([1, 2, 0, 0], (3, 1, 1)),
    ],
)
def test_it_counts_what_is_wrong(numbers: Sequence[int], expected: tuple[int, int, int]) -> None:
    subscriber, _ = _received(b"".join(map(_publish, numbers)), len(numbers))
    stream = subscriber.streams[0]
    assert (stream.received, stream.duplicated, stream.disordered) == expected
    assert stream.expected == max(numbers) + 1
    assert subscriber.corrupted == 0


@pytest.mark.parametrize("at", range(PAYLOAD_BYTES - 8))
def test_it_sees_a_damaged_payload(at: int) -> None:
    damaged = bytearray(FILLER[8:])
    damaged[at] ^= 0x40
    subscriber, _ = _received(_publish(0) + _publish(1, filler=bytes(damaged)) + _publish(2), 3)
    assert (subscriber.corrupted, subscriber.streams[0].received) == (1, 2)


def test_it_acknowledges_each_message_under_its_own_packet_id() -> None:
    ids = [1, 255, 256, 65_535]
    sent = b"".join(_publish(number, packet_id) for number, packet_id in enumerate(ids))
    subscriber, answers = _received(sent, len(ids), qos=1)
    assert subscriber.streams[0].received == len(ids)
    assert answers == b"".join(b"\x40\x02" + packet_id.to_bytes(2, "big") for packet_id in ids)


def test_of_many_subscribers_each_is_checked_alone() -> None:
    sent = [b"".join(map(_publish, numbers)) for numbers in ([0, 1, 2], [0, 2, 1], [0, 0, 1])]
    with _broker(0, sent, bytearray()) as address:
        subscriber = MqttSubscriber(address, pairs=1, qos=0, subscribers=3)
        new = [0, 0, 0]
        for index, stream in enumerate(subscriber.streams):
            while stream.received + stream.duplicated < 3:
                new[index] += subscriber.take(index)
        subscriber.close()
    counted = [(stream.received, stream.duplicated, stream.disordered) for stream in subscriber.streams]
    assert counted == [(3, 0, 0), (3, 0, 1), (2, 1, 0)]
    assert new == [3, 3, 2]
