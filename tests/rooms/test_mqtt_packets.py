"""The codec of the MQTT clients: written packets are read back from a stream in any pieces, and invalid
bytes raise only `MalformedPacket`."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker.sim.rooms.mqtt.packets import (
    Kind,
    MalformedPacket,
    Splitter,
    Will,
    acknowledgement,
    connect,
    ping,
    publish,
    read_acknowledgement,
    read_connack,
    read_publish,
    read_suback,
    subscribe,
)

topics = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
messages = st.tuples(
    topics, st.binary(max_size=300), st.integers(0, 2), st.booleans(), st.integers(1, 65_535)
)


@given(st.lists(messages, max_size=6), st.lists(st.integers(1, 50), min_size=1, max_size=10))
def test_packets_are_read_from_a_stream_in_any_pieces(
    sent: list[tuple[str, bytes, int, bool, int]], cuts: list[int]
) -> None:
    stream = b"".join(
        publish(topic, payload, qos, retain=retain, packet_id=packet_id)
        for topic, payload, qos, retain, packet_id in sent
    )
    splitter, found, at, turn = Splitter(), [], 0, 0
    while at < len(stream):
        length = cuts[turn % len(cuts)]
        turn += 1
        found += [read_publish(first, body) for first, body in splitter.feed(stream[at : at + length])]
        at += length
    assert [(m.topic, m.payload, m.qos, m.retain, m.packet_id) for m in found] == [
        (topic, payload, qos, retain, packet_id if qos else 0)
        for topic, payload, qos, retain, packet_id in sent
    ]


def test_a_large_message_is_read_from_many_pieces() -> None:
    packet = publish("a", bytes(3_000_000), 1, packet_id=9) + ping()
    splitter = Splitter()
    found = [part for at in range(0, len(packet), 65_536) for part in splitter.feed(packet[at : at + 65_536])]
    assert [first >> 4 for first, _ in found] == [Kind.PUBLISH, Kind.PINGREQ]
    assert len(read_publish(*found[0]).payload) == 3_000_000


def test_packets_are_encoded_as_in_the_specification() -> None:
    """The expected bytes were computed by hand from MQTT 5 §3."""
    will = Will("w", b"!", qos=1, retain=True)
    assert connect("c", keep_alive_s=10, session_expiry_s=1, clean_start=False, will=will) == bytes.fromhex(
        "10 1a 0004 4d515454 05 2c 000a 05 11 00000001 0001 63 00 0001 77 0001 21"
    )
    assert publish("t", b"p", 1, packet_id=7) == bytes.fromhex("32 07 0001 74 0007 00 70")
    assert publish("t", b"p", 0, retain=True) == bytes.fromhex("31 05 0001 74 00 70")
    assert subscribe(5, "a/#", 2, no_local=True) == bytes.fromhex("82 09 0005 00 0003 612f23 26")
    assert acknowledgement(Kind.PUBREL, 258) == bytes.fromhex("62 02 0102")
    assert acknowledgement(Kind.PUBACK, 258) == bytes.fromhex("40 02 0102")


def test_packets_of_the_server_are_decoded() -> None:
    connack = read_connack(bytes.fromhex("01 00 0d 21 0014 13 003c 26 0001 61 0001 62"))
    assert (connack.reason, connack.receive_maximum) == (0, 20)
    assert read_connack(b"\x00\x87\x00").reason == 0x87
    assert read_acknowledgement(b"\x00\x05") == (5, 0)
    assert read_acknowledgement(b"\x00\x05\x10\x00") == (5, 0x10)
    assert read_suback(b"\x00\x05\x00\x80") == (5, 0x80)


@given(st.binary(max_size=60), st.integers(0, 255))
def test_random_bytes_raise_only_malformed(body: bytes, first: int) -> None:
    for read in (read_connack, lambda data: read_publish(first, data), read_acknowledgement, read_suback):
        with suppress(MalformedPacket):
            read(body)
    with suppress(MalformedPacket):
        list(Splitter().feed(body))


@pytest.mark.parametrize("body", ["ff ff ff ff 01", "80 80 80 80"])
def test_a_length_of_more_than_four_bytes_is_malformed(body: str) -> None:
    with pytest.raises(MalformedPacket):
        list(Splitter().feed(b"\x30" + bytes.fromhex(body)))
