"""Guesses beyond the bounds end where they come in: their gateway's control is not asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hbroker._native import Attempts
from hbroker.gateway.access.attempt_limits import ADDRESS, ASKED, BUSY, PAIR, Bound, new_attempts
from hbroker.runtime.control_loop import clock
from tests.gateway_native.house import House, house
from tests.gateway_native.wire import CONNACK, Raw, packet, text

ASKED_THE_HOUSE = b"\x00\x87"
HERE, THERE = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def it() -> Iterator[House]:
    """A house that refuses all whom it is asked about."""
    with house(lambda event, session: 0x87 if event.version == 5 else 5) as it:
        yield it


@pytest.fixture
def attempts(it: House) -> Attempts:
    """The bound of `ann` from here is reached."""
    attempts = new_attempts(1)
    for _ in range(PAIR.burst):
        assert attempts.take(clock(), attempts.source(HERE, "ann")) is None
    it.gateway.refuse_guesses(attempts)
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
    """What CONNACK says."""
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


def test_a_guess_too_many_ends_without_a_question(it: House, attempts: Attempts) -> None:
    port = it.open()
    answer = log_in(port, "ann")
    assert answer[:2] == b"\x00\x9f"
    assert Bound.PAIR.value.encode() in answer
    assert log_in(port, "ann", properties=b"\x17\x00") == b"\x00\x9f\x00", "it wants no text"
    assert log_in(port, "ann", level=4) == b"\x00\x03"
    assert it.connects == []
    assert dict(attempts.refused())[Bound.PAIR.value] == 3


MAY_BE_NONE: list[dict[str, Any]] = [
    {"name": "bob"},
    {"name": "ann", "host": THERE},
    {"name": "ann", "password": "right"},
    {"name": "ann", "password": None},
    {"name": None, "password": None},
    {"name": None, "password": "guess"},
    {"name": "ann", "properties": b"\x15\x00\x01m"},
]
"""Another name or address, a password that was right before, and what is decided by something else."""


def test_whatever_may_be_no_guess_is_asked_about(it: House, attempts: Attempts) -> None:
    attempts.remember("ann", b"right")
    port = it.open()
    for number, who in enumerate(MAY_BE_NONE, 1):
        assert log_in(port, **who)[:2] == ASKED_THE_HOUSE, who
        assert len(it.connects) == number
    assert sum(times for _, times in attempts.refused()) == 0


def test_while_too_many_wait_who_asked_a_lot_is_told_so(it: House, attempts: Attempts) -> None:
    port = it.open()
    for n in range(ASKED.burst):
        source = attempts.source(THERE, f"n{n}")
        assert attempts.take(clock(), source) is None
        attempts.give_back(clock(), source)
    assert log_in(port, "bob", host=THERE)[:2] == ASKED_THE_HOUSE
    attempts.set_full(True)
    answer = log_in(port, "bob", host=THERE)
    assert answer[:2] == b"\x00\x89"
    assert BUSY.encode() in answer
    assert log_in(port, "bob")[:2] == ASKED_THE_HOUSE


def test_nobody_is_refused_where_the_policy_may_know_better(it: House, attempts: Attempts) -> None:
    port = it.open()
    for n in range(ADDRESS.burst - PAIR.burst):
        attempts.take(clock(), attempts.source(HERE, f"n{n}"))
    assert log_in(port, "bob")[:2] == b"\x00\x9f"
    it.gateway.refuse_guesses(None)
    assert log_in(port, "ann")[:2] == log_in(port, "bob")[:2] == ASKED_THE_HOUSE
