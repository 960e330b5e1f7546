"""PUBACK, PUBREC, PUBREL, PUBCOMP and the levels of QoS (MQTT 5 §3.4, MQTT 5 §4.3, MQTT 5 §4.6)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.client import Client, P, ack, disconnect, publish
from tests.conformance.holds import holds
from tests.gateway_native.wire import DISCONNECT, PUBACK, PUBCOMP, PUBREC, PUBREL, packet

Dial = Callable[[], Client]


@holds("MQTT-3.6.1-1", "MQTT-2.1.3-1", "MQTT-3.14.1-1", "MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.6.2-1")
@holds("MQTT-3.7.2-1", "MQTT-3.14.2-1")
@pytest.mark.parametrize(
    ("bytes", "code"),
    [
        pytest.param(b"\x60\2\0\1", 0x81, id="PUBREL, flags 0"),
        pytest.param(b"\x63\2\0\1", 0x81, id="PUBREL, flags 3"),
        pytest.param(b"\x41\2\0\1", 0x81, id="PUBACK, flags 1"),
        pytest.param(b"\x52\2\0\1", 0x81, id="PUBREC, flags 2"),
        pytest.param(b"\x78\2\0\1", 0x81, id="PUBCOMP, flags 8"),
        pytest.param(b"\xc1\0", 0x81, id="PINGREQ, flags 1"),
        pytest.param(b"\xe1\0", 0x81, id="DISCONNECT, flags 1"),
        pytest.param(b"\x40\2\0\0", 0x81, id="packet id 0"),
        pytest.param(b"\x40\3\0\1\x92", 0x81, id="PUBACK, reason of another packet"),
        pytest.param(b"\x50\3\0\1\x92", 0x81, id="PUBREC, reason of another packet"),
        pytest.param(b"\x62\3\0\1\x87", 0x81, id="PUBREL, reason of another packet"),
        pytest.param(b"\x70\3\0\1\x10", 0x81, id="PUBCOMP, reason of another packet"),
        pytest.param(b"\xe0\1\x01", 0x81, id="DISCONNECT, a reason that is none"),
        pytest.param(b"\x00\0", 0x81, id="packet type 0"),
        pytest.param(b"\x20\3\0\0\0", 0x82, id="CONNACK from a client"),
        pytest.param(b"\x90\4\0\1\0\0", 0x82, id="SUBACK from a client"),
        pytest.param(b"\xd0\0", 0x82, id="PINGRESP from a client"),
    ],
)
def test_an_invalid_acknowledgement_or_unexpected_packet_closes_the_connection(
    client: Client, bytes: bytes, code: int
) -> None:
    client.send(bytes)
    assert client.is_disconnected(code)


@holds("MQTT-3.12.4-1")
def test_pingreq_is_answered_with_pingresp(client: Client) -> None:
    for _ in range(3):
        client.ping()


@holds("MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-4.3.3-9")
def test_a_publish_without_permission_is_answered_not_authorized(
    client: Client, other: Client, name: str
) -> None:
    assert client.publish("denied/t", qos=1) == 0x87
    assert client.publish("denied/t", qos=2, packet_id=7) == 0x87
    client.send(publish("denied/t", qos=1, packet_id=8))
    assert client.answer(PUBACK, 8).get(P.REASON)
    other.subscribe(f"{name}/t", options=2)
    # PUBREC with an error frees the packet id, without PUBREL.
    assert client.publish(f"{name}/t", b"new", qos=2, packet_id=7) == 0
    assert other.take().payload == b"new"
    assert client.publish(f"{name}/nobody", qos=1) == 0x10


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_without_a_subscription_is_answered_no_matching_subscribers(
    client: Client, other: Client, name: str, qos: int
) -> None:
    """MQTT 5 §3.4.2.1, §3.5.2.1: the owner of the topic knows this at once."""
    topic = f"{name}/t"
    assert client.publish(topic, qos=qos) == 0x10
    assert client.publish(topic, b"kept", qos=qos, retain=True) == 0x10
    assert client.publish(topic, bytes(200_000), qos=qos) == 0x10, "in parts"
    other.subscribe(topic, options=0x20)
    assert client.publish(topic, b"wanted", qos=qos) == 0
    assert other.take().payload == b"wanted"
    assert other.unsubscribe(topic) == [0]
    assert client.publish(topic, qos=qos) == 0x10
    other.subscribe(f"$share/g/{topic}")
    assert client.publish(topic, b"shared", qos=qos) == 0
    assert other.take().payload == b"shared"
    other.leave()
    code = 0
    while code == 0:  # The owner learns of the ended session a moment later.
        code = client.publish(topic, qos=qos)
    assert code == 0x10


@holds("MQTT-3.7.2-1", "MQTT-4.3.3-11", "MQTT-3.6.2-1")
def test_pubrel_and_pubrec_with_an_unknown_packet_id_are_answered_not_found(client: Client) -> None:
    client.send(ack(PUBREL, 99))
    assert client.answer(PUBCOMP, 99).code == 0x92
    client.send(ack(PUBREC, 98))
    assert client.answer(PUBREL, 98).code == 0x92
    client.send(ack(PUBACK, 97), ack(PUBCOMP, 96))
    client.ping()


@holds("MQTT-4.3.2-5", "MQTT-4.3.3-12", "MQTT-4.3.3-10")
def test_a_repeated_qos_1_message_is_new_and_a_qos_2_message_is_new_after_pubrel(
    client: Client, other: Client, name: str
) -> None:
    other.subscribe(f"{name}/#", options=2)
    # QoS 1: a message is new once the one before was acknowledged, with or without DUP.
    for dup in (False, True):
        assert client.publish(f"{name}/1", b"", qos=1, packet_id=5, dup=dup) == 0
    # QoS 2: it is the same message until PUBREL.
    for dup in (False, True, True):
        client.send(publish(f"{name}/2", b"", qos=2, packet_id=5, dup=dup))
        assert client.answer(PUBREC, 5).code == 0
    for _ in range(2):
        client.send(ack(PUBREL, 5))
        client.answer(PUBCOMP, 5)
    assert client.publish(f"{name}/2", b"again", qos=2, packet_id=5) == 0
    received = [other.take() for _ in range(4)]
    assert [(m.topic, m.payload) for m in received] == [
        (f"{name}/1", b""),
        (f"{name}/1", b""),
        (f"{name}/2", b""),
        (f"{name}/2", b"again"),
    ]
    other.ping()


@holds("MQTT-2.2.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1", "MQTT-4.3.3-4")
def test_a_packet_id_in_use_is_not_used_for_another_message(client: Client, other: Client, name: str) -> None:
    other.subscribe(f"{name}/t", options=2)
    for number in range(40):
        client.publish(f"{name}/t", bytes([number]), qos=1 + number % 2, packet_id=number + 1)
    messages = [other.next() for _ in range(20)]
    used = {message.packet_id for message in messages}
    assert len(used) == 20
    assert 0 not in used
    for message in messages:
        if message.qos == 1:
            other.send(ack(PUBACK, message.packet_id))
    later = [other.next() for _ in range(20)]
    still = {message.packet_id for message in messages if message.qos == 2}
    assert not still & {message.packet_id for message in later}
    for message in messages[1::2]:
        other.send(ack(PUBREC, message.packet_id))
        assert other.answer(PUBREL, message.packet_id).code == 0


@holds("MQTT-4.3.3-13")
def test_the_acknowledgement_of_an_expired_message_is_completed(client: Client, name: str) -> None:
    expiry = ((P.MESSAGE_EXPIRY, 1),)
    client.send(publish(f"{name}/t", qos=2, packet_id=3, properties=expiry))
    assert client.answer(PUBREC, 3).code in (0, 0x10)
    time.sleep(1.05)  # The message expires.
    client.send(publish(f"{name}/t", qos=2, packet_id=3, dup=True, properties=expiry), ack(PUBREL, 3))
    assert client.answer(PUBREC, 3).code in (0, 0x10)
    assert client.answer(PUBCOMP, 3).code == 0
    assert client.publish(f"{name}/t", qos=2, properties=((P.MESSAGE_EXPIRY, 0),)) in (0, 0x10)


@holds("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_and_their_acknowledgements_stay_in_order(
    client: Client, other: Client, name: str, qos: int
) -> None:
    other.subscribe(f"{name}/#", options=qos)
    numbers = range(1, 201)
    client.send(
        *(publish(f"{name}/t", number.to_bytes(2, "big"), qos=qos, packet_id=number) for number in numbers)
    )
    received = [int.from_bytes(other.take().payload, "big") for _ in numbers]
    assert received == [*numbers]
    # The acknowledgements are in order, too.
    if qos:
        kind = PUBACK if qos == 1 else PUBREC
        assert [client.answer(kind, number).code for number in numbers] == [0] * 200


@holds("MQTT-4.7.3-3")
def test_a_topic_of_the_greatest_length_is_refused_and_the_connection_stays_open(
    client: Client, other: Client, name: str
) -> None:
    for length, refusal in [(60_000, 0), (65_535, 0x97)]:
        topic = f"{name}/".ljust(length, "x")
        assert other.subscribe(topic) == [refusal or 1]
        assert client.publish(topic) == refusal
        assert refusal or other.take().topic == topic
    other.ping()
    # A topic with one byte more cannot be encoded: its length is read as a different one.
    client.send(packet(0x30, (65_535).to_bytes(2, "big") + b"x" * 65_534))
    assert client.is_disconnected(0x81)


@holds("MQTT-3.14.1-1", "MQTT-3.14.4-1", "MQTT-3.14.4-2")
def test_no_packet_follows_a_disconnect(client: Client, dial: Dial, name: str) -> None:
    client.send(disconnect(), b"\xc0\0")
    assert client.at_end()
    lasting = dial().opened(name)
    lasting.send(disconnect(0, ((P.SESSION_EXPIRY, 5),)))
    assert lasting.is_disconnected(0x82)


@holds("MQTT-3.14.2-3")
def test_disconnect_respects_the_maximum_packet_size_of_the_client(dial: Dial, name: str) -> None:
    client = dial().opened(name, properties=((P.MAXIMUM_PACKET, 12),))
    dial().opened(name)
    assert client.answer(DISCONNECT).code == 0x8E
    assert client.at_end()
