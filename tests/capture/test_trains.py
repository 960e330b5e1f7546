"""A train, which a capture shows as one datagram, is dissected as the datagrams that it consists of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import UDP
from scapy.packet import Packet

from hbroker.capture.dissector import HBroker, bind
from hbroker.capture.frames import PcapFile
from hbroker.capture.trains import first_size
from hbroker.cli import main
from hbroker.runtime.key_log import KeyLog
from tests.capture.datagrams import datagram, publish, sent
from tests.capture.test_associations import handshake
from tests.runtime.test_key_log import line, sealed

CLIENT, BROKER = ("127.0.0.1", 40_001), ("127.0.0.1", 7700)
BODIES = [datagram(publish(), number=1), datagram(publish(), number=2), datagram(number=3, padding=4)]
CLEAR = b"".join(BODIES)
SEALED = b"".join(sealed(number, body) for number, body in enumerate(BODIES))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys.log"
    file.write_text(line())
    return file


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = list(UDP.payload_guess)
    yield
    bind()
    UDP.payload_guess[:] = before


def layers(packet: Packet) -> list[HBroker]:
    """The datagrams in an IP packet."""
    return [layer for layer in packet[UDP].iterpayloads() if isinstance(layer, HBroker)]


@pytest.mark.parametrize("train", [CLEAR, SEALED])
def test_each_datagram_of_a_train_is_a_layer(train: bytes, keys: Path) -> None:
    bind(key_log=KeyLog(keys))
    packet = sent(CLIENT, BROKER, train)
    assert [layer.number for layer in layers(packet)] == [1, 2, 3]
    assert [len(layer.packets) for layer in layers(packet)] == [1, 1, 0]
    assert bytes(packet[UDP].payload) == train


@pytest.mark.parametrize("train", [CLEAR, SEALED])
def test_each_datagram_of_a_train_is_printed_and_counted(
    train: bytes, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = PcapFile(str(tmp_path / "train.pcap"))
    packet = sent(CLIENT, BROKER, train)
    packet.time = 1.0
    file.write(packet)
    file.close()
    command = ["capture", "--read", str(tmp_path / "train.pcap"), "--key-log", str(keys), "--json"]
    assert main(command) == 0
    entries = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [entry["number"] for entry in entries] == [1, 2, 3]
    assert main([*command, "--count"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert (counted["datagrams"], [flow["count"] for flow in counted["flows"]]) == (3, [2])
    assert main([*command, "--limit", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_train_of_handshakes_is_one_too() -> None:
    one = handshake(token=bytes(21))
    assert first_size(one * 3) == len(one)


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x0a", b"\x07", b"\x27", CLEAR, SEALED]))
def test_the_first_datagram_of_any_bytes_is_some_of_them(data: bytes, before: bytes) -> None:
    whole = before + data
    assert min(1, len(whole)) <= first_size(whole) <= len(whole)
