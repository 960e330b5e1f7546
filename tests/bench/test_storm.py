"""The reconnect storm of the measurement counts the answers of the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from bench.connects.storm import Plan, Storm
from hbroker.bench.plan import Address
from hbroker.sim.rooms.mqtt.packets import Will, connect, subscribe

_ACCEPTED, _RESUMED, _REFUSED = b"\x20\x03\x00\x00\x00", b"\x20\x03\x01\x00\x00", b"\x20\x03\x00\x87\x00"


@contextmanager
def _server(answers: list[bytes], received: list[bytes]) -> Iterator[Address]:
    """A server that gives each connection the next answer. An empty answer closes the connection."""

    def serve() -> None:
        with server:
            kept = []
            for answer in answers:
                connection, _ = server.accept()
                kept.append(connection)
                received.append(connection.recv(256))
                connection.sendall(answer)
                if not answer:
                    connection.close()
            for connection in kept:
                if connection.fileno() >= 0:
                    connection.recv(1)
                    connection.close()

    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, daemon=True)
    server.settimeout(10)
    thread.start()
    yield server.getsockname()
    thread.join(10)
    assert not thread.is_alive()


def test_the_connack_of_each_client_is_counted() -> None:
    received: list[bytes] = []
    answers = [_ACCEPTED, _REFUSED, _RESUMED, b"", _ACCEPTED]
    with _server(answers, received) as address, closing(Storm(address, Plan(5, window=2))) as storm:
        result = storm.run()
    assert (result.accepted, result.present, result.refused) == (3, 1, 2)
    assert sorted(received) == [connect(f"device-{n:06}", keep_alive_s=0) for n in range(5)]


def test_a_subscribing_client_is_accepted_with_its_suback() -> None:
    received: list[bytes] = []
    granted, refused = b"\x90\x04\x00\x01\x00\x01", b"\x90\x04\x00\x01\x00\x80"
    answers = [_ACCEPTED + granted, _ACCEPTED + refused, _RESUMED + granted, _REFUSED]
    plan = Plan(4, window=1, expiry_s=7, has_subscriptions=True, has_wills=True)
    with _server(answers, received) as address, closing(Storm(address, plan)) as storm:
        result = storm.run()
    assert (result.accepted, result.present, result.refused) == (2, 1, 2)
    names = [f"device-{n:06}" for n in range(4)]
    assert received == [_resuming(name) + subscribe(1, f"own/{name}", 1) for name in names]


def _resuming(name: str) -> bytes:
    """CONNECT of a client with a session and a will."""
    will = Will(f"state/{name}", b"gone")
    return connect(name, keep_alive_s=0, clean_start=False, session_expiry_s=7, will=will)


def test_clients_connect_at_the_given_rate() -> None:
    with _server([_ACCEPTED] * 11, []) as address, closing(Storm(address, Plan(11, rate=50.0))) as storm:
        result = storm.run()
    assert result.accepted == 11
    assert result.seconds >= 0.2
