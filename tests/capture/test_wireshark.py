"""The dissector for Wireshark shows what protobuf reads, opens what the key log opens, and fails on no bytes.

Most tests write a file with many datagrams, because tshark takes long to start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from google.protobuf.message import DecodeError, Message

from hbroker._proto import packet_pb2 as pb
from hbroker.cli import main
from tests.capture.datagrams import TOPIC, datagram, publish
from tests.capture.test_associations import handshake
from tests.capture.tshark import Tshark, values_of, write_pcap
from tests.frame.checkout import ROOT
from tests.native import datagrams
from tests.needs import need_tshark
from tests.runtime.test_key_log import ALGORITHMS, ASSOCIATION, line, sealed

CLIENT, NODE, ELSEWHERE = 40_001, 7700, 9_999
"""Ports."""
REFUSED = "datagram"
"""How the reason begins why protobuf refuses a datagram, and not a serialised message in it."""
RESET, RETRY = b"\x37" + bytes(16), b"\x2f" + bytes(29)


@pytest.fixture
def tshark() -> Tshark:
    return Tshark(need_tshark())


@pytest.fixture
def opening(tmp_path: Path) -> Tshark:
    """With a key log for AES-128-GCM."""
    (tmp_path / "keys.log").write_text(line())
    return Tshark(need_tshark(), tmp_path / "keys.log")


def pcap(folder: Path, datagrams: Iterable[bytes], port: int = NODE) -> Path:
    return write_pcap(folder / "capture.pcap", datagrams, CLIENT, port)


def like_the_one_before() -> bytes:
    """Three messages on one topic, of which two are `again`."""
    first = publish(delivery=0)
    first.publish.ClearField("qos")
    return datagram(first, pb.Packet(again=b"off"), pb.Packet(again=b"dim"))


# Fields -----------------------------------------------------------------------------------------------------


def test_every_field_has_the_value_that_protobuf_reads(tshark: Tshark, tmp_path: Path) -> None:
    rng = Random(1)
    messages = [datagrams.datagram(rng) for _ in range(400)]
    shown = tshark.show(pcap(tmp_path, (each.SerializeToString() for each in messages)))
    names: set[str] = set()
    for message, found in zip(messages, shown, strict=True):
        values, is_valid = values_of(message)
        assert found.is_malformed == (not is_valid)
        names.update(values)
        if is_valid:
            assert found.fields == values
    assert len(names) > 200, "nearly all fields were there"


def test_what_protobuf_refuses_is_malformed_and_nothing_else(tshark: Tshark, tmp_path: Path) -> None:
    rng = Random(2)
    written = [datagrams.odd_datagram(rng) for _ in range(400)]
    for depth in (99, 100, 101):
        written.append(b"\xf3\x01" * depth + b"\xf4\x01" * depth)
    written += [
        datagrams.mutated(rng, *rng.sample((datagrams.datagram(rng).SerializeToString(), odd), 2))
        for odd in written * 3
    ]
    written = [data for data in written if data and data[0] & 0x07 != 0x07]  # An association's begin so.
    refused = 0
    for data, found in zip(written, tshark.show(pcap(tmp_path, written)), strict=True):
        try:
            pb.Datagram.FromString(data)
            is_refused = False
        except DecodeError:
            is_refused = True
        refused += is_refused
        assert any(note.startswith(REFUSED) for note in found.notes) == is_refused, data.hex()
    assert 300 < refused < len(written) - 300


def test_what_is_malformed_names_the_field(tshark: Tshark, tmp_path: Path) -> None:
    within = pb.Packet(authenticated=pb.Authenticated(packet=b"\x42\x03\x0a\x01\xff"))
    bad_topic = publish().SerializeToString().replace(b"home", b"h\xffme")
    cases = {
        datagram(publish())[:-1]: "datagram.packets is longer than what it is in",
        b"\x12" + bytes([len(bad_topic)]) + bad_topic: "datagram.packets.publish.topic is not UTF-8",
        b"\x0a\x02\x18\xff": "datagram.header.number ends within a number",
        datagram(within): "packet.publish.topic is not UTF-8",
        sealed(1, b"")[:28]: "sealed is too short",
        RESET + b"\0": "reset is too long",
        handshake(token=bytes(21))[:40]: "handshake.token is longer than the datagram",
    }
    shown = tshark.show(pcap(tmp_path, cases))
    assert [(found.is_malformed, *found.notes) for found in shown] == [
        (True, each) for each in cases.values()
    ]
    assert shown[0].fields["hbroker.header.incarnation"], "what stands before is shown"


def test_a_message_like_the_one_before_is_shown_as_a_publish(tshark: Tshark, tmp_path: Path) -> None:
    alone = datagram(pb.Packet(again=b"off"))
    first, second = tshark.show(pcap(tmp_path, [like_the_one_before(), alone]))
    assert first.fields["hbroker.publish.topic"] == [TOPIC] * 3
    assert first.fields["hbroker.publish.sequence"] == ["9", "10", "11"]
    assert first.fields["hbroker.publish.payload"] == [b"on".hex(), b"off".hex(), b"dim".hex()]
    assert first.info == f"PUBLISH {TOPIC} 2 bytes | AGAIN {TOPIC} 3 bytes | AGAIN {TOPIC} 3 bytes"
    assert "hbroker.publish.topic" not in second.fields


def test_a_text_cannot_write_to_the_terminal(tshark: Tshark, tmp_path: Path) -> None:
    evil = datagram(publish(topic="a\x1b[31m\r\n\0b" + "é" * 100))
    (found,) = tshark.show(pcap(tmp_path, [evil]))
    assert found.info.startswith("PUBLISH a?[31m???bé")
    assert "\x1b" not in tshark.run(pcap(tmp_path, [evil]), "-V")


def test_the_filters_of_the_documentation_are_valid(tshark: Tshark, tmp_path: Path) -> None:
    filters = re.findall(
        r"^\| `(hbroker\..+?)` \|", (ROOT / "docs" / "wireshark.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(filters) > 5
    moved = pb.Transfer(subscriptions=[pb.SubscriptionRecord(filter="home/#")])
    packets = [publish(), pb.Packet(transfer=moved), pb.Packet(puback=pb.PubAck(reason=pb.REASON_OVERLAP))]
    packets[0].publish.qos = pb.QOS_EXACTLY_ONCE
    header = pb.Header(session=0x5D3C0F7E11A2B9C4, incarnation=1)
    written = [pb.Datagram(header=header, packets=packets).SerializeToString()]
    written += [handshake(), sealed(1, b"data"), b"\xff"]
    passed = tshark.run(pcap(tmp_path, written), "-Y", " || ".join(filters))
    assert passed.count("\n") == len(written)


def test_the_command_prints_where_the_dissector_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--wireshark"]) == 0
    assert "register_heuristic" in Path(capsys.readouterr().out.strip()).read_text("utf-8")


# Recognition ------------------------------------------------------------------------------------------------


def test_datagrams_are_recognised_on_any_port(opening: Tshark, tmp_path: Path) -> None:
    written = [datagram(publish()), sealed(1, datagram(publish())), handshake(token=bytes(21)), RETRY, RESET]
    shown = opening.show(pcap(tmp_path, written, ELSEWHERE))
    assert [found.is_ours for found in shown] == [True] * len(written)
    assert [found.info for found in shown] == [
        f"PUBLISH {TOPIC} 2 bytes",
        f"PUBLISH {TOPIC} 2 bytes",
        "handshake, 12 bytes",
        "retry",
        "reset",
    ]


def test_foreign_datagrams_are_left_alone(opening: Tshark, tmp_path: Path) -> None:
    foreign = [
        b"GET / HTTP/1.1\r\n\r\n",
        pb.Datagram(header=pb.Header(session=1)).SerializeToString(),  # Without an incarnation.
        datagram() + b"\x7a\x00",  # With a field that the protocol does not have.
        datagram(publish())[:-1],
        b"\x07" + bytes(60),  # Sealed, but with no known key.
        handshake(0),
    ]
    assert not [found for found in opening.show(pcap(tmp_path, foreign, ELSEWHERE)) if found.is_ours]


def test_the_rest_of_a_conversation_is_recognised(tshark: Tshark, tmp_path: Path) -> None:
    written = [datagram(publish()), datagram(publish())[:-1], sealed(1, b"data"), b"\xff\xff"]
    shown = tshark.show(pcap(tmp_path, written, ELSEWHERE))
    assert [(found.is_ours, found.is_malformed) for found in shown] == [
        (True, False),
        (True, True),
        (True, False),
        (True, True),
    ]


def test_a_train_is_shown_as_its_datagrams(opening: Tshark, tmp_path: Path) -> None:
    bodies = [datagram(publish(payload=bytes([number]) * 9), number=number) for number in range(1, 6)]
    bodies[-1] = datagram(number=5)
    clear, closed = b"".join(bodies), b"".join(sealed(number, body) for number, body in enumerate(bodies))
    for found in opening.show(pcap(tmp_path, [clear, closed], ELSEWHERE), "hbroker.association.number"):
        assert found.fields["hbroker.header.number"] == ["1", "2", "3", "4", "5"]
        assert len(found.fields["hbroker.publish.payload"]) == 4
        assert found.info.count(" || ") == 4
        assert not found.notes


# Decryption -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_sealed_is_opened_in_any_order_and_over_epochs(algorithm: str, tmp_path: Path) -> None:
    rng = Random(3)
    lengths = [*range(70), 1_199, 1_200, 1_201]
    numbers = range(2**32 - 30, 2**32 - 30 + len(lengths))
    written = [
        (pb.Datagram(header=pb.Header(incarnation=number), padding=rng.randbytes(length)), number)
        for number, length in zip(numbers, lengths, strict=True)
    ]
    for at in range(0, len(written), 10):
        written[at : at + 10] = rng.sample(written[at : at + 10], len(written[at : at + 10]))
    (tmp_path / "keys.log").write_text(line(algorithm))
    shown = Tshark(need_tshark(), tmp_path / "keys.log").show(
        pcap(
            tmp_path,
            (
                sealed(
                    number,
                    message.SerializeToString(),
                    epoch=(number - numbers[0]) // 20,
                    algorithm=algorithm,
                )
                for message, number in written
            ),
            ELSEWHERE,
        ),
        "hbroker.association.whole_number",
        "hbroker.association.to",
    )
    for (message, number), found in zip(written, shown, strict=True):
        outer = [found.fields.pop(f"hbroker.association.{name}") for name in ("whole_number", "to")]
        assert outer == [[str(number)], [f"{ASSOCIATION:#018x}"]]
        assert found.fields == values_of(message)[0]


def test_a_capture_that_begins_late_finds_the_epoch_by_the_number(opening: Tshark, tmp_path: Path) -> None:
    (found,) = opening.show(pcap(tmp_path, [sealed(3 * 2**22 + 7, datagram(publish()), epoch=3)]))
    assert found.fields["hbroker.publish.topic"] == [TOPIC]


def test_what_was_changed_is_not_shown(opening: Tshark, tmp_path: Path) -> None:
    rng, original = Random(4), sealed(1, datagram(publish()))
    changed = []
    for at in range(len(original)):
        data = bytearray(original)
        data[at] ^= 1 << rng.randrange(8)
        changed.append(bytes(data))
    # A change of the kind may make it another one, which is then malformed.
    for found in opening.show(pcap(tmp_path, changed))[1:]:
        assert found.is_unopened
        assert "cannot be decrypted" in found.info
        assert not found.fields


def test_why_a_datagram_is_not_opened(opening: Tshark, tshark: Tshark, tmp_path: Path) -> None:
    foreign = b"\x07" + bytes(8) + sealed(1, b"data")[9:]
    file = pcap(tmp_path, [foreign])
    (no_key,), (no_log,) = opening.show(file), tshark.show(file)
    assert no_key.notes == ["cannot be decrypted: the key log has no key for this association"]
    assert no_log.notes == ["cannot be decrypted: there is no key log"]
    (no_file,) = tshark.show(file, HBROKER_KEYLOG="/nowhere/keys.log")
    assert "/nowhere/keys.log: No such file or directory" in no_file.notes[0]


def test_the_key_log_is_that_of_the_environment(tshark: Tshark, tmp_path: Path) -> None:
    log = tmp_path / "keys.log"
    log.write_text(
        f"# a comment\nSEAL zz AES-128-GCM 00\nSEAL {ASSOCIATION:016x} ROT13 00\n{line()}SEAL incompl"
    )
    file = pcap(tmp_path, [sealed(1, datagram(publish())), sealed(2, b""), sealed(3, b"\x1a\x00")])
    shown = tshark.show(file, HBROKER_KEYLOG=str(log))
    assert [found.info for found in shown] == [f"PUBLISH {TOPIC} 2 bytes", "answer to a probe", "probe"]


# Any bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [NODE, ELSEWHERE])
def test_no_bytes_are_an_error_of_lua(opening: Tshark, tmp_path: Path, port: int) -> None:
    rng = Random(5)
    whole = [
        sealed(1, datagram(publish(), ack=3, padding=5)),
        handshake(token=bytes(21)),
        like_the_one_before(),
        sealed(2, like_the_one_before()) * 3,
        *(sealed(number, rng.randbytes(rng.randrange(60))) for number in range(3, 100)),
        *(sealed(number, datagrams.odd_datagram(rng)) for number in range(100, 400)),
    ]
    truncated = [data[:length] for data in whole[:4] for length in range(1, len(data))]
    kinds = b"\x07\x0f\x17\x1f\x27\x2f\x37"
    noise = [rng.randbytes(rng.randrange(1, 90)) for _ in range(300)]
    noise += [bytes([rng.choice(kinds)]) + rng.randbytes(rng.randrange(60)) for _ in range(300)]
    file = pcap(tmp_path, [*whole, *truncated, *noise], port)
    opening.run(file, "-V")  # It fails if there is such an error.


def torn(rng: Random, message: Message) -> bytes:
    """A message that ends early, or has in it one that does. All lengths around that are right."""
    inner = [(field, value) for field, value in message.ListFields() if isinstance(value, Message)]
    if not inner or rng.random() < 0.3:
        whole = message.SerializeToString()
        return whole[: rng.randrange(len(whole) + 1)]
    field, value = rng.choice(inner)
    content = torn(rng, value)
    return datagrams.varint(field.number << 3 | 2) + datagrams.varint(len(content)) + content


def test_no_torn_packet_is_an_error_of_lua(tshark: Tshark, tmp_path: Path) -> None:
    rng, written = Random(6), []
    for kind in pb.Packet.DESCRIPTOR.oneofs_by_name["body"].fields:
        packet = pb.Packet(again=bytes(9))
        if kind.message_type is not None:
            getattr(packet, kind.name).SetInParent()
            datagrams.fill(rng, getattr(packet, kind.name), chance=1.0)
        for _ in range(80):
            content = torn(rng, packet)
            written.append(datagram() + b"\x12" + datagrams.varint(len(content)) + content)
            written.append(datagram(pb.Packet(authenticated=pb.Authenticated(packet=content))))
    shown = tshark.show(pcap(tmp_path, written))
    assert all(found.is_ours and len(found.notes) >= found.is_malformed for found in shown)
    assert 1_000 < sum(found.is_malformed for found in shown) < len(written)


def test_a_datagram_that_was_captured_in_part_is_no_malformed_one(tshark: Tshark, tmp_path: Path) -> None:
    file = pcap(tmp_path, [datagram(publish())])
    data = bytearray(file.read_bytes())
    captured = int.from_bytes(data[32:36], "little") - 5
    data[32:36] = captured.to_bytes(4, "little")
    file.write_bytes(data[:-5])
    (found,) = tshark.show(file)
    assert (found.is_ours, found.is_malformed, found.notes) == (True, False, ["captured in part"])
