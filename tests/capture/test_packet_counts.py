"""Counting packets between brokers: a PUBLISH between two brokers is noticed."""

from __future__ import annotations

import json
import random

import pytest

from hbroker.addresses import Address
from hbroker.capture.frames import PcapFile, seen_at
from hbroker.capture.packet_counts import PacketCounts
from hbroker.cli import main
from tests.capture.datagrams import datagram, publish, sent

ROOT, KITCHEN, CLIENT = ("127.0.0.1", 7700), ("127.0.0.1", 7701), ("127.0.0.1", 40_001)
BROKERS = {ROOT, KITCHEN}


def test_a_publish_between_brokers_is_counted() -> None:
    packet_counts = PacketCounts()
    packet_counts.add(CLIENT, ROOT, ["PUBLISH", "PUBLISH"])
    packet_counts.add(ROOT, CLIENT, ["PUBLISH"])
    packet_counts.add(KITCHEN, ROOT, ["JOIN"])
    assert packet_counts.between("PUBLISH", BROKERS) == 0
    packet_counts.add(ROOT, KITCHEN, ["PING", "PUBLISH"])
    assert packet_counts.between("PUBLISH", BROKERS) == 1
    assert packet_counts.between("JOIN", BROKERS) == 1
    assert (packet_counts.seen("PUBLISH"), packet_counts.datagrams) == (4, 4)


def test_a_broker_is_recognised_by_address_and_port() -> None:
    packet_counts = PacketCounts()
    packet_counts.add(("127.0.0.2", 7700), ROOT, ["PUBLISH"])
    assert packet_counts.between("PUBLISH", BROKERS) == 0


def test_counts_agree_with_a_plain_count() -> None:
    draw = random.Random(1)
    places: list[Address] = [ROOT, KITCHEN, CLIENT, ("::1", 7700)]
    flows = [(draw.choice(places), draw.choice(places), draw.choice(("PUBLISH", "PING"))) for _ in range(500)]
    packet_counts = PacketCounts()
    for source, destination, kind in flows:
        packet_counts.add(source, destination, [kind])
    assert packet_counts.between("PUBLISH", BROKERS) == sum(
        1 for source, destination, kind in flows if kind == "PUBLISH" and {source, destination} <= BROKERS
    )
    assert PacketCounts.from_json(json.loads(json.dumps(packet_counts.to_json()))) == packet_counts


@pytest.fixture
def capture_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pcap file with one PUBLISH between brokers and other packets."""
    path = str(tmp_path_factory.mktemp("capture") / "house.pcap")
    file = PcapFile(path)
    for at, (source, destination) in enumerate([(CLIENT, ROOT), (ROOT, KITCHEN), (ROOT, CLIENT)]):
        packet = sent(source, destination, datagram(publish(delivery=at + 1)))
        packet.time = 1_000 + at / 4
        file.write(packet)
    file.write(sent(CLIENT, ROOT, b"not ours"))
    file.write(sent(("::1", 40_001), ("::1", 7700), datagram(publish())))
    file.close()
    return path


def test_packets_in_a_file_are_counted(capture_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "-r", capture_file, "--count", "--json"]) == 0
    packet_counts = PacketCounts.from_json(json.loads(capsys.readouterr().out))
    assert (
        packet_counts.datagrams,
        packet_counts.seen("PUBLISH"),
        packet_counts.between("PUBLISH", BROKERS),
    ) == (4, 4, 1)


def test_one_line_is_printed_for_each_datagram(capture_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "-r", capture_file, "--port", "7701"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "127.0.0.1:7700 > 127.0.0.1:7701 HBroker #7 PUBLISH" in line


def test_datagrams_are_printed_as_json(capture_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "-r", capture_file, "--json", "--limit", "2"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["time"], second["time"]) == (1_000.0, 1_000.25)
    assert second["packets"][0]["body"]["topic"] == "home/kitchen/lamp"


def test_a_written_file_prints_the_same_lines(
    capture_file: str, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = str(tmp_path_factory.mktemp("copy") / "copy.pcap")
    assert main(["capture", "-r", capture_file, "-w", copy]) == 0
    lines = capsys.readouterr().out
    assert main(["capture", "-r", copy]) == 0
    assert capsys.readouterr().out == lines


@pytest.mark.parametrize("content", [b"", b"no pcap file at all, whatever its name"])
def test_a_file_that_is_not_a_capture_is_refused(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    path = tmp_path_factory.mktemp("broken") / "broken.pcap"
    path.write_bytes(content)
    assert main(["capture", "-r", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("microsecond", range(0, 1_000_000, 7_919))
def test_a_timestamp_keeps_its_microseconds(microsecond: int) -> None:
    packet = sent(CLIENT, ROOT, b"")
    packet.time = 1_700_000_000 + microsecond / 1_000_000
    assert seen_at(packet) == (1_700_000_000, microsecond)
