"""A real network, captured: tshark recognises every datagram, finds none malformed, and reads in all what
`hbroker capture` reads."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.json_format import ParseDict
from scapy.layers.inet import UDP

from hbroker import sync
from hbroker._proto import packet_pb2 as pb
from hbroker.bench.launching import free_port
from hbroker.capture.dissector import bind
from hbroker.capture.frames import CaptureRefused, Interface, PcapFile
from hbroker.cli import main
from tests.capture.tshark import Shown, Tshark, Values, values_of
from tests.needs import need, need_tshark
from tests.product.home import next_payload
from tests.product.network import PATIENCE, network_up, run_hbroker

TOPOLOGY = """
security: {security}
nodes:
  - {{name: root, subtree: "", listen: "127.0.0.1:{ports[0]}"}}
  - {{name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:{ports[1]}"}}
  - {{name: attic, subtree: home/attic, listen: "127.0.0.1:{ports[2]}"}}
"""
LARGE = random.Random(1).randbytes(60_000)
SEEN = {"PUBLISH", "PUBACK", "SUBSCRIBE", "SUBACK", "CHALLENGE", "JOIN", "JOINACK", "TRANSFER", "ORDER"}
"""Kinds of packets that are in each capture."""


@contextmanager
def captured(ports: list[int], file: Path) -> Iterator[None]:
    """Writes the datagrams from and to these ports to a file."""
    try:
        interface = Interface("lo", ports)
    except CaptureRefused as refusal:
        need(False, str(refusal))
        raise
    pcap, is_over = PcapFile(str(file)), threading.Event()

    def run() -> None:
        while (packet := interface.read(0.1)) is not None or not is_over.is_set():
            if packet is not None:
                pcap.write(packet)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(PATIENCE)
        assert interface.missed == 0
        interface.close()
        pcap.close()


def use_network(root: str, directory: Path) -> None:
    """Messages of all kinds, and a subtree that moves with what is retained in it."""
    with sync.connect(root) as client:
        client.publish("home/attic/moves/lamp", "kept", qos=1, retain=True)
        with client.subscribe("home/#", qos=2) as messages:
            for qos in (0, 1, 2):
                client.publish("home/kitchen/oven", f"at {qos}", qos=qos, user_properties=[("unit", "°C")])
            client.publish_many([("home/attic/lamp", str(number)) for number in range(50)])
            client.publish("home/kitchen/camera", LARGE, qos=1)
            flags = ("--root", root, "--state-dir", directory)
            run_hbroker("move", "home/attic/moves", "kitchen", *flags, check=True)
            client.publish("home/attic/moves/lamp", "moved", qos=1)
            received = list(iter(lambda: next_payload(messages), b"moved"))
    assert {b"kept", b"at 0", b"at 1", b"at 2", LARGE} <= set(received)


class Capture(NamedTuple):
    """A file, its key log, and what both programs say of it: tshark of each frame, `hbroker capture` of each
    datagram."""

    pcap: Path
    keys: Path
    shown: list[Shown]
    entries: list[dict[str, Any]]


@pytest.fixture(scope="module", params=["on", "off"])
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """A capture of a network, with security on or off."""
    tshark, folder = need_tshark(), tmp_path_factory.mktemp(f"security-{request.param}")
    keys, pcap, file = folder / "keys.log", folder / "house.pcap", folder / "house.yaml"
    keys.touch()
    ports = [free_port(udp=True) for _ in range(3)]
    file.write_text(TOPOLOGY.format(security=request.param, ports=ports))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HBROKER_KEYLOG", str(keys))
        with captured(ports, pcap), network_up(file, folder / "state", ()) as (network, root):
            use_network(root, network.directory)
    return Capture(pcap, keys, Tshark(tshark, keys).show(pcap), said_by_capture(pcap, keys))


def said_by_capture(pcap: Path, keys: Path) -> list[dict[str, Any]]:
    """What `hbroker capture --json` says of each datagram."""
    before, output = list(UDP.payload_guess), StringIO()
    with redirect_stdout(output):
        assert main(["capture", "--read", str(pcap), "--key-log", str(keys), "--json"]) == 0
    bind()
    UDP.payload_guess[:] = before
    return [json.loads(line) for line in output.getvalue().splitlines()]


def values_of_entry(entry: dict[str, Any]) -> Values:
    """The values of a datagram, as `hbroker capture` says them."""
    header = pb.Header(session=entry["session"], incarnation=entry["incarnation"], number=entry["number"])
    header.ack.largest = entry["ack"]
    datagram = pb.Datagram(header=header)
    for said in entry["packets"]:
        packet = datagram.packets.add(delivery=said["delivery"], after=said["after"])
        ParseDict(said["body"], getattr(packet, said["kind"].lower()))
    return values_of(datagram)[0]


def joined(each: Iterable[Values]) -> Values:
    """The values of all datagrams, in their order, without those of AUTHENTICATED, of which `hbroker capture`
    shows only what is in it."""
    found: Values = defaultdict(list)
    for values in each:
        for name, more in values.items():
            if not name.startswith("hbroker.authenticated."):
                found[name] += more
    return found


def test_every_datagram_is_recognised_and_none_is_malformed(capture: Capture) -> None:
    shown = capture.shown
    assert not [found for found in shown if not found.is_ours or found.is_malformed or found.notes]
    kinds = Counter(packet["kind"] for entry in capture.entries for packet in entry["packets"])
    assert set(kinds) >= SEEN
    assert any("hbroker.packet.again" in found.fields for found in shown), "messages like the one before"
    assert any("hbroker.fragment.index" in found.fields for found in shown), "parts of a large message"


def test_every_field_has_the_value_that_the_capture_shows(capture: Capture) -> None:
    shown = joined(found.fields for found in capture.shown)
    said = joined(values_of_entry(entry) for entry in capture.entries if entry["incarnation"])
    for name, values in said.items():
        assert shown[name] == values, name
    assert len(said) > 80


def test_without_the_keys_sealed_datagrams_are_recognised_by_their_handshakes(capture: Capture) -> None:
    shown = Tshark(need_tshark()).show(capture.pcap)
    assert not [found for found in shown if not found.is_ours or found.is_malformed]
    is_sealed = bool(capture.keys.read_text())
    assert any(found.is_unopened for found in shown) == is_sealed
    assert any("hbroker.publish.topic" in found.fields for found in shown) != is_sealed
