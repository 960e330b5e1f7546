"""The core refuses wrong passwords beyond the limits without asking the gateway's control."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hbroker._native import Attempts
from hbroker.gateway.access.password_checks import ADDRESS, ASKED, BUSY, PAIR, Bound, new_attempts
from hbroker.runtime.control_loop import clock
from tests.gateway_native.gateway_with_node import GatewayWithNode, gateway_up
from tests.gateway_native.wire import CONNACK, Raw, packet, text

REFUSED_BY_CONTROL = b"\x00\x87"
HERE, THERE = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def setup() -> Iterator[GatewayWithNode]:
    """A gateway that refuses every CONNECT that reaches its control."""
    with gateway_up(lambda event, session: 0x87 if event.version == 5 else 5) as setup:
        yield setup


@pytest.fixture
def attempts(setup: GatewayWithNode) -> Attempts:
    """The limit of wrong passwords for `ann` from this address is reached."""
    attempts = new_attempts(1)
    for _ in range(PAIR.burst):
        assert attempts.take(clock(), attempts.source(HERE, "ann")) is None
    setup.gateway.refuse_guesses(attempts)
    return attempts


def log_in(
    port: int,
    name: str | None,
    password: str | None = "guess",
    *,
    level: int = 5,
    properties: bytes = b"",
    host: str = HERE,
) -> bytes:
    """Sends CONNECT, and returns the body of CONNACK."""
    flags = 0x02 | (0x80 if name is not None else 0) | (0x40 if password is not None else 0)
    body = text("MQTT") + bytes([level, flags, 0, 0])
    if level == 5:
        body += bytes([len(properties)]) + properties
    body += text("client") + b"".join(text(field) for field in (name, password) if field is not None)
    with Raw(port, level=level, host=host) as client:
        client.send(packet(0x10, body))
        answer = client.expect(CONNACK)
        assert client.at_end()
    return answer


def test_a_guess_beyond_the_limit_is_refused_without_asking_the_control(
    setup: GatewayWithNode, attempts: Attempts
) -> None:
    port = setup.open()
    answer = log_in(port, "ann")
    assert answer[:2] == b"\x00\x9f"
    assert Bound.PAIR.value.encode() in answer
    assert log_in(port, "ann", properties=b"\x17\x00") == b"\x00\x9f\x00", "it wants no text"
    assert log_in(port, "ann", level=4) == b"\x00\x03"
    assert setup.connects == []
    assert dict(attempts.refused())[Bound.PAIR.value] == 3


MAY_BE_NO_GUESS: list[dict[str, Any]] = [
    {"name": "bob"},
    {"name": "ann", "host": THERE},
    {"name": "ann", "password": "right"},
    {"name": "ann", "password": None},
    {"name": None, "password": None},
    {"name": None, "password": "guess"},
    {"name": "ann", "properties": b"\x15\x00\x01m"},
]
"""Another name or address, a cached right password, and an authentication without a password."""


def test_a_connect_that_may_be_no_guess_is_passed_to_the_control(
    setup: GatewayWithNode, attempts: Attempts
) -> None:
    attempts.remember("ann", b"right")
    port = setup.open()
    for number, fields in enumerate(MAY_BE_NO_GUESS, 1):
        assert log_in(port, **fields)[:2] == REFUSED_BY_CONTROL, fields
        assert len(setup.connects) == number
    assert sum(times for _, times in attempts.refused()) == 0


def test_an_address_with_many_attempts_is_refused_while_too_many_checks_wait(
    setup: GatewayWithNode, attempts: Attempts
) -> None:
    port = setup.open()
    for n in range(ASKED.burst):
        source = attempts.source(THERE, f"n{n}")
        assert attempts.take(clock(), source) is None
        attempts.give_back(clock(), source)
    assert log_in(port, "bob", host=THERE)[:2] == REFUSED_BY_CONTROL
    attempts.set_full(True)
    answer = log_in(port, "bob", host=THERE)
    assert answer[:2] == b"\x00\x89"
    assert BUSY.encode() in answer
    assert log_in(port, "bob")[:2] == REFUSED_BY_CONTROL


def test_without_limits_every_connect_is_passed_to_the_control(
    setup: GatewayWithNode, attempts: Attempts
) -> None:
    port = setup.open()
    for n in range(ADDRESS.burst - PAIR.burst):
        attempts.take(clock(), attempts.source(HERE, f"n{n}"))
    assert log_in(port, "bob")[:2] == b"\x00\x9f"
    setup.gateway.refuse_guesses(None)
    assert log_in(port, "ann")[:2] == log_in(port, "bob")[:2] == REFUSED_BY_CONTROL
