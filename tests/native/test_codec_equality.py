"""The native codec and Python's protobuf accept the same datagrams, and read the same values (§2.1).

Protobuf is the reference. `header_values` and `packet_values` say what the native view of a parsed datagram
must be. The invariant, `assert_equal`, is checked for valid, odd and mutated bytes. Then protobuf reads what
the core writes.
"""

from collections.abc import Iterator
from ipaddress import ip_address
from random import Random
from typing import Any, TypeAlias

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._native import decode, encode
from hbroker._proto import packet_pb2 as pb
from tests.native import datagrams

Values: TypeAlias = tuple[Any, ...]
"""A header or a packet, as `decode` returns it."""

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)

seeds = st.randoms(use_true_random=False)


@given(seeds)
def test_valid_datagrams_have_equal_values(rng: Random) -> None:
    assert assert_equal(datagrams.datagram(rng).SerializeToString())


@given(st.binary(max_size=64))
def test_random_bytes_are_decoded_equally(data: bytes) -> None:
    assert_equal(data)


@given(seeds)
def test_odd_datagrams_are_decoded_equally(rng: Random) -> None:
    assert_equal(datagrams.odd_datagram(rng))


@pytest.mark.parametrize("seed", range(8))
def test_many_odd_and_mutated_datagrams_are_decoded_equally(seed: int) -> None:
    rng = Random(seed)
    accepted = refused = 0
    for _ in range(1000):
        valid = datagrams.datagram(rng).SerializeToString()
        odd = datagrams.odd_datagram(rng)
        for data in (valid, odd, *(datagrams.mutated(rng, *rng.sample((valid, odd), 2)) for _ in range(4))):
            if assert_equal(data):
                accepted += 1
            else:
                refused += 1
    # Neither may be rare, or the test would not prove much.
    assert accepted > 1_500
    assert refused > 1_500


@pytest.mark.parametrize("depth", range(90, 105))
@pytest.mark.parametrize(
    "path", [(), (1,), (2,), (1, 4), (2, 8), (2, 8, 15), (2, 8, 9), (2, 9, 3, 3), (2, 11, 5, 5)]
)
def test_the_nesting_depth_is_limited_equally(path: tuple[int, ...], depth: int) -> None:
    data = b"\xf3\x01" * depth + b"\xf4\x01" * depth
    for number in reversed(path):
        data = datagrams.varint(number << 3 | 2) + datagrams.varint(len(data)) + data
    assert assert_equal(data) == (depth + len(path) <= 100)


def test_every_truncation_of_every_packet_is_decoded_equally() -> None:
    rng = Random(1)
    for kind in (field.name for field in pb.Packet.DESCRIPTOR.oneofs_by_name["body"].fields):
        packet = pb.Packet(delivery=300)
        if kind == "again":
            packet.again = bytes(9)
        else:
            getattr(packet, kind).SetInParent()
            datagrams.fill(rng, getattr(packet, kind), chance=1.0)
        data = pb.Datagram(packets=[packet]).SerializeToString()
        for length in range(len(data) + 1):
            assert_equal(data[:length])


def test_a_publish_in_several_fields_is_relayed_completely() -> None:
    first = pb.Packet(publish=pb.Publish(topic="a", user_properties=[pb.UserProperty(name="1")]))
    second = pb.Packet(publish=pb.Publish(sequence=7, user_properties=[pb.UserProperty(name="2")]))
    torn = first.SerializeToString() + pb.Packet(delivery=5).SerializeToString() + second.SerializeToString()
    packet = datagrams.varint(2 << 3 | 2) + datagrams.varint(len(torn)) + torn
    view = decode(packet)
    assert view is not None
    [[delivery, _, _, _, content]] = view[1]
    assert delivery == 5
    assert content[-1] == first.SerializeToString() + second.SerializeToString()
    assert assert_equal(packet)


# Emission ---------------------------------------------------------------------------------------------------

addresses = st.none() | st.tuples(st.ip_addresses().map(str), st.integers(0, 2**16 - 1))
cuts = st.tuples(st.text(), st.text(), addresses, U64)
properties = st.tuples(
    st.text(),
    st.none() | I32,
    st.text(),
    st.binary(),
    st.lists(st.tuples(st.text(), st.text()), max_size=3),
    U64,
)
fragments = st.none() | st.tuples(U32, U32, U64)


@st.composite
def runs(draw: st.DrawFn, gap: int) -> list[tuple[int, int]]:
    """Inclusive ranges, ascending from 1, with at least `gap` numbers between two of them."""
    edges = sorted(
        draw(st.sets(st.integers(1, 2**63), max_size=8)) | draw(st.sets(st.integers(1, 60), max_size=20))
    )
    ranges: list[tuple[int, int]] = []
    for first, last in zip(edges[::2], edges[1::2], strict=False):
        if not ranges or first > ranges[-1][1] + gap:
            ranges.append((first, last))
    return ranges


@st.composite
def acks(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int]]] | None:
    ranges = draw(runs(gap=1))[::-1]
    return (ranges[0][1], draw(U64), ranges) if ranges else None


bodies = st.one_of(
    st.tuples(st.just(""), st.none()),
    st.tuples(
        st.just("publish"),
        st.tuples(
            st.text(),
            st.binary(max_size=300),
            st.tuples(U64, U64),
            st.tuples(st.integers(0, 255), st.booleans(), st.booleans()),
            U64,
            st.none() | U32,
            fragments,
            properties,
            st.just(b""),
        ),
    ),
    st.tuples(st.just("again"), st.binary(max_size=300)),
    st.tuples(st.just("puback"), st.tuples(I32, st.text(), runs(gap=0), st.none() | cuts)),
    st.tuples(st.sampled_from(["ping", "pong"]), U64),
    st.tuples(st.just("reset"), st.tuples(U64, st.binary(), I32)),
    st.tuples(st.just("challenge"), st.tuples(st.binary(), U32)),
    st.tuples(st.just("credit"), st.tuples(U32, U64, st.booleans())),
)
meant_for = st.tuples(st.none() | U64, st.just(0)) | st.tuples(st.none(), U32)
packets = st.builds(lambda head, body: (*head, *body), st.tuples(U64, U64, meant_for), bodies)
headers = st.tuples(U64, U64, U64, acks(), st.binary(max_size=40), U32)


@given(headers, st.lists(packets, max_size=4))
@settings(max_examples=500)
def test_protobuf_reads_what_the_core_writes(header: Values, packets: list[Values]) -> None:
    written = pb.Datagram.FromString(encode(header, packets))
    assert header_values(written) == comparable(header)
    assert [packet_values(packet) for packet in written.packets] == [comparable(packet) for packet in packets]
    # The core writes no default values and no field twice, so protobuf's encoding has the same length.
    assert written.ByteSize() == len(encode(header, packets))


@given(seeds)
def test_control_packets_are_passed_on_unchanged(rng: Random) -> None:
    packet = pb.Packet(subscribe=pb.Subscribe())
    datagrams.fill(rng, packet.subscribe, chance=0.7)
    data = encode((1, 2, 3, None, b"", 0), [(7, 6, (None, 0), "subscribe", packet.SerializeToString())])
    packet.delivery, packet.after = 7, 6
    assert list(pb.Datagram.FromString(data).packets) == [packet]


@pytest.mark.parametrize("padding", [*range(300), *range(16_380, 16_400), 60_000])
def test_padding_has_the_exact_size(padding: int) -> None:
    header = (1, 2, 3, None, b"", 0)
    data = encode(header, [], padding)
    assert len(data) - len(encode(header, [])) == (padding if padding != 1 else 0)
    assert assert_equal(data)


# The invariant, and what the view must hold -----------------------------------------------------------------


def assert_equal(data: bytes) -> bool:
    """Both codecs accept the datagram with equal values, or both refuse it. Returns whether they accepted
    it."""
    view = decode(data)
    try:
        parsed = pb.Datagram.FromString(data)
    except DecodeError:
        assert view is None, data.hex()
        return False
    assert view is not None, data.hex()
    header, packets = view
    assert comparable(header) == header_values(parsed), data.hex()
    assert [comparable(packet) for packet in packets] == [packet_values(p) for p in parsed.packets], (
        data.hex()
    )
    for values, packet in zip(packets, parsed.packets, strict=True):
        if packet.HasField("publish"):
            # A copied message means the same, with all unknown fields.
            assert pb.Packet.FromString(values[4][-1]) == pb.Packet(publish=packet.publish), data.hex()
    return True


def header_values(datagram: pb.Datagram) -> Values:
    header = datagram.header
    ack = (
        (header.ack.largest, header.ack.delay_us, list(ack_ranges(header.ack)))
        if header.HasField("ack")
        else None
    )
    return header.session, header.incarnation, header.number, ack, header.token, header.ack_every


def packet_values(packet: pb.Packet) -> Values:
    kind = packet.WhichOneof("body") or ""
    retained_for = packet.retained_for if packet.HasField("retained_for") else None
    return (
        packet.delivery,
        packet.after,
        (retained_for, packet.shared_for),
        kind,
        content_values(packet, kind),
    )


def content_values(packet: pb.Packet, kind: str) -> object:
    match kind:
        case "":
            return None
        case "publish":
            return publish_values(packet.publish)
        case "again":
            return packet.again
        case "puback":
            puback = packet.puback
            referral = cut_values(puback.referral) if puback.HasField("referral") else None
            return puback.reason, puback.topic, list(delivery_ranges(puback)), referral
        case "ping" | "pong":
            return getattr(packet, kind).sent_at_us
        case "reset":
            return packet.reset.session, packet.reset.token, packet.reset.reason
        case "challenge":
            return packet.challenge.token, packet.challenge.lifetime_s
        case "credit":
            return packet.credit.messages, packet.credit.bytes, packet.credit.for_many
    return packet


def publish_values(message: pb.Publish) -> Values:
    part = message.fragment
    return (
        message.topic,
        message.payload,
        (message.publisher, message.sequence),
        (
            message.qos if 0 <= message.qos < 256 else 255,
            message.retain,
            message.ack_mode == pb.ACK_MODE_QUEUED,
        ),
        message.published_at_us,
        message.expiry_s if message.HasField("expiry_s") else None,
        (part.index, part.count, part.total) if message.HasField("fragment") else None,
        (
            message.content_type,
            message.payload_format if message.HasField("payload_format") else None,
            message.response_topic,
            message.correlation_data,
            [(each.name, each.value) for each in message.user_properties],
            message.origin,
        ),
    )


def cut_values(cut: pb.Cut) -> Values:
    valid = len(cut.address.ip) in (4, 16) and cut.address.port < 2**16
    address = (ip_address(cut.address.ip), cut.address.port) if valid else None
    return cut.subtree, cut.node, address, cut.epoch


def ack_ranges(ack: pb.Ack) -> Iterator[tuple[int, int]]:
    """RFC 9000 §19.3.1, up to the first range that would begin below 0."""
    counts = [*(ack.ranges or [0])]
    high = ack.largest
    while counts and high >= (length := counts.pop(0)):
        yield high - length, high
        high -= length + 2 + (counts.pop(0) if counts else 0)


def delivery_ranges(puback: pb.PubAck) -> Iterator[tuple[int, int]]:
    """Up to the first range that is empty, does not lie above the one before, or ends beyond 64 bits."""
    end = 0
    for step, length in zip(puback.ranges[::2], puback.ranges[1::2], strict=False):
        first, last = end + step, end + step + length - 1
        if step == 0 or length == 0 or last >= 2**64:
            return
        yield first, last
        end = last


def comparable(values: Values) -> Values:
    """The native codec's tuple of a header or a packet, in the form of `header_values` and
    `packet_values`."""
    match values:
        case (_, _, _, "publish", (*content, _)):
            return *values[:4], tuple(content)
        case (_, _, _, "again", _):
            return values
        case (_, _, _, "puback", (*content, (subtree, node, address, epoch))):
            address = address and (ip_address(address[0]), address[1])
            return *values[:4], (*content, (subtree, node, address, epoch))
        case (_, _, _, str(), bytes(raw)):
            return *values[:4], pb.Packet.FromString(raw)
    return values
