"""Which datagrams belong to associations, and what the dissector shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import UDP

from hbroker.capture.associations import AssociationDatagram, Associations
from hbroker.capture.dissector import HBroker, bind
from hbroker.runtime.key_log import KeyLog
from tests.capture.datagrams import datagram, publish, sent
from tests.runtime.test_key_log import ASSOCIATION, line, sealed

CLIENT, BROKER = ("127.0.0.1", 40_001), ("127.0.0.1", 7700)


def handshake(sender: int = ASSOCIATION, *, token: bytes = b"") -> bytes:
    ids = (7).to_bytes(8, "big") + sender.to_bytes(8, "big")
    return b"\x27" + ids + bytes([len(token)]) + token + bytes(8) + b"bytes of TLS"


@pytest.fixture
def key_log(tmp_path: Path) -> KeyLog:
    file = tmp_path / "keys.log"
    file.write_text(line())
    return KeyLog(file)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = list(UDP.payload_guess)
    yield
    bind()
    UDP.payload_guess[:] = before


def test_a_sealed_datagram_is_recognised_by_its_key_or_its_handshake(key_log: KeyLog) -> None:
    bytes_sealed = sealed(1, b"data")
    assert Associations().look(bytes_sealed) is None
    with_key = Associations(key_log).look(bytes_sealed)
    assert with_key == AssociationDatagram("sealed", ASSOCIATION, b"data")
    with_handshake = Associations()
    assert with_handshake.look(handshake(token=bytes(21))) == AssociationDatagram("handshake", 7)
    assert with_handshake.look(bytes_sealed) == AssociationDatagram("sealed", ASSOCIATION)


def test_other_kinds_are_recognised_by_their_lengths() -> None:
    look = Associations().look
    assert look(b"\x2f" + bytes(7) + b"\x05" + bytes(21)) == AssociationDatagram("retry", 5)
    assert look(b"\x37" + bytes(16)) == AssociationDatagram("reset")
    for strange in (b"", b"\x2f" + bytes(30), b"\x37", handshake(0), handshake(token=bytes(5))):
        assert look(strange) is None


@given(st.binary(max_size=80))
def test_no_bytes_are_an_error(data: bytes) -> None:
    associations = Associations()
    for kind in (b"", b"\x07", b"\x1f", b"\x27", b"\x2f", b"\x37"):
        associations.look(kind + data)


def test_what_is_sealed_is_dissected_with_its_key(key_log: KeyLog) -> None:
    bind(key_log=key_log)
    layer = sent(CLIENT, BROKER, sealed(1, datagram(publish())))[HBroker]
    assert layer.association == f"sealed {ASSOCIATION:016x}"
    assert layer.packets[0].topic == "home/kitchen/lamp"
    assert "PUBLISH" in layer.mysummary()


def test_of_what_cannot_be_opened_the_length_is_shown() -> None:
    bind()
    assert "handshake 0000000000000007" in sent(CLIENT, BROKER, handshake())[HBroker].mysummary()
    bytes_sealed = sealed(1, b"data")
    layer = sent(CLIENT, BROKER, bytes_sealed)[HBroker]
    assert layer.mysummary() == f"HBroker sealed {ASSOCIATION:016x} {len(bytes_sealed)} bytes"
    assert bytes(layer) == bytes_sealed
