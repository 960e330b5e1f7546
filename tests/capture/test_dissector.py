"""The scapy layer shows the content of datagrams, and ignores foreign datagrams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import UDP
from scapy.packet import Raw

from hbroker._proto import packet_pb2 as pb
from hbroker.capture.dissector import HBroker, bind
from hbroker.capture.reading import detail, kind, read
from tests.capture.datagrams import TOPIC, datagram, publish, sent

CLIENT, BROKER = ("127.0.0.1", 40_001), ("127.0.0.1", 7700)
KINDS = [field.name for field in pb.Packet.DESCRIPTOR.oneofs_by_name["body"].fields]


@pytest.fixture(autouse=True)
def _bound() -> Iterator[None]:
    before = list(UDP.payload_guess)
    bind()
    yield
    UDP.payload_guess[:] = before


@pytest.mark.parametrize(
    ("source", "destination"), [(CLIENT, BROKER), (("::1", 40_001), ("2001:db8::7", 7700))]
)
def test_a_publish_is_dissected(source: tuple[str, int], destination: tuple[str, int]) -> None:
    packet = sent(source, destination, datagram(publish(), ack=12, padding=5))
    layer = packet[HBroker]
    assert (layer.session, layer.number, layer.ack, layer.padding) == (0xABC, 7, 12, 5)
    (one,) = layer.packets
    assert (one.kind, one.topic, one.qos, one.delivery, one.size) == ("PUBLISH", TOPIC, 1, 3, 2)
    assert (one.publisher, one.sequence) == (5, 9)
    assert one.body_as_dict()["topic"] == TOPIC


def test_the_summary_is_one_line_with_all_packets() -> None:
    packet = sent(CLIENT, BROKER, datagram(publish(), pb.Packet(ping=pb.Ping())))
    assert packet.summary().endswith(
        "HBroker #7 PUBLISH 'home/kitchen/lamp' AT_LEAST_ONCE 2 bytes (delivery 3) | PING"
    )


def test_the_summary_of_many_packets_is_short() -> None:
    packet = sent(CLIENT, BROKER, datagram(*[publish()] * 50))
    assert len(packet[HBroker].packets) == 50
    assert packet[HBroker].mysummary().endswith("and 46 more")
    assert "\n" not in packet.summary()


def test_the_summary_names_a_bare_acknowledgement() -> None:
    assert sent(CLIENT, BROKER, datagram(ack=4))[HBroker].mysummary() == "HBroker #7 acknowledges #4"


def test_show_prints_the_packets(capsys: pytest.CaptureFixture[str]) -> None:
    sent(CLIENT, BROKER, datagram(publish())).show()
    shown = capsys.readouterr().out
    assert TOPIC in shown
    assert "0x0000000000000abc" in shown


def test_the_dissected_bytes_are_built_again() -> None:
    data = datagram(publish(), padding=9)
    packet = sent(CLIENT, BROKER, data)
    assert bytes(packet[HBroker]) == data
    assert bytes(packet.copy()[UDP].payload) == data


@pytest.mark.parametrize("name", KINDS)
def test_every_packet_has_a_name(name: str) -> None:
    packet = pb.Packet()
    if name == "again":
        packet.again = b"on"
    else:
        getattr(packet, name).SetInParent()
    assert kind(packet) == name.upper()
    assert isinstance(detail(packet), str)
    assert sent(CLIENT, BROKER, datagram(packet))[HBroker].packets[0].kind == name.upper()


def test_an_again_packet_after_a_publish_is_dissected_as_a_publish() -> None:
    model = publish(delivery=0)
    model.publish.ClearField("qos")
    again = pb.Packet(again=b"off")
    odd = pb.Packet(again=b"off", delivery=1)
    packets = sent(CLIENT, BROKER, datagram(model, again, again, odd, again, publish(), again))[
        HBroker
    ].packets
    assert [packet.kind for packet in packets] == ["PUBLISH"] * 3 + ["AGAIN"] * 2 + ["PUBLISH", "AGAIN"]
    assert [(packet.topic, packet.sequence, packet.size) for packet in packets[:3]] == [
        (TOPIC, 9, 2),
        (TOPIC, 10, 3),
        (TOPIC, 11, 3),
    ]
    assert packets[2].body_as_dict()["payload"] == "b2Zm"
    assert packets[3].body_as_dict() == {"payload": "b2Zm"}
    assert packets[4].mysummary() == "AGAIN 3 bytes, like no message"


def test_the_packet_inside_an_authenticated_packet_is_shown() -> None:
    join = pb.Packet(join=pb.Join(node="n", subtree="a")).SerializeToString()
    authenticated = pb.Packet(delivery=3, authenticated=pb.Authenticated(sequence=1, packet=join))
    begun = pb.Packet(authenticated=pb.Authenticated(nonce=1))
    odd = pb.Packet(authenticated=pb.Authenticated(packet=b"\xff"))
    found = read(datagram(authenticated, begun, odd))
    assert found is not None
    assert [kind(packet) for packet in found.packets] == ["JOIN", "AUTHENTICATED", "AUTHENTICATED"]
    assert (found.packets[0].delivery, found.packets[0].join.subtree) == (3, "a")


def test_an_unknown_enum_value_is_shown_as_a_number() -> None:
    packet = pb.Packet.FromString(b"\x4a\x02\x10\x63")  # field 9, puback: {reason: 99}
    assert (kind(packet), detail(packet)) == ("PUBACK", "99")


@given(st.binary(max_size=300))
def test_only_valid_datagrams_are_dissected(data: bytes) -> None:
    packet = sent(CLIENT, BROKER, data)
    assert (HBroker in packet) == (read(data) is not None)
    if data and HBroker not in packet:
        assert bytes(packet[Raw]) == data


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("0a4f0100000100000000000007686272 6f6b657203636f6d0000010001".replace(" ", "")),  # DNS
        pb.Datagram(header=pb.Header(session=1)).SerializeToString(),  # without an incarnation
        datagram() + b"\x7a\x00",  # With a field that the protocol does not have.
        datagram(publish())[:-1],
    ],
)
def test_foreign_datagrams_are_not_dissected(data: bytes) -> None:
    assert HBroker not in sent(CLIENT, BROKER, data)


def test_bind_applies_to_the_given_ports_only() -> None:
    UDP.payload_guess[:] = []
    bind(7700)
    assert HBroker in sent(CLIENT, BROKER, datagram(publish()))
    assert HBroker in sent(BROKER, CLIENT, datagram(publish()))
    assert HBroker not in sent(CLIENT, ("127.0.0.1", 7701), datagram(publish()))
