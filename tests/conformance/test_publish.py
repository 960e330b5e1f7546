"""PUBLISH in both directions (MQTT 5 §3.3)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.client import Client, P, Properties, ack, publish
from tests.conformance.holds import holds
from tests.gateway_native.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, packet, text

Dial = Callable[[], Client]
RETAIN_AS_PUBLISHED = 0x08
LATER, NEVER = 0x10, 0x20
"""Retain handling 1 (only with a new subscription) and 2 (never)."""


@holds("MQTT-3.3.1-5", "MQTT-3.3.1-8", "MQTT-3.3.1-9")
def test_the_last_retained_message_is_kept(client: Client, other: Client, name: str) -> None:
    client.publish(f"{name}/t", b"1", retain=True)
    client.publish(f"{name}/t", b"2", retain=True)
    client.publish(f"{name}/t", b"3")
    client.publish(f"{name}/t", b"")
    other.subscribe(f"{name}/t")
    message = other.take()
    assert (message.payload, message.retain) == (b"2", True)
    other.ping()


@holds("MQTT-3.3.1-6", "MQTT-3.3.1-7")
def test_an_empty_payload_removes_the_retained_message(client: Client, other: Client, name: str) -> None:
    client.subscribe(f"{name}/#")
    client.publish(f"{name}/t", b"1", retain=True)
    client.publish(f"{name}/t", b"", retain=True)
    assert [client.take().payload for _ in range(2)] == [b"1", b""]
    client.publish(f"{name}/u", b"sign", retain=True)
    other.subscribe(f"{name}/#")
    assert other.take().topic == f"{name}/u"


@holds("MQTT-3.3.1-10", "MQTT-3.3.1-11", "MQTT-3.8.4-4")
def test_retain_handling_decides_when_the_retained_message_is_sent(
    client: Client, other: Client, name: str
) -> None:
    client.publish(f"{name}/t", b"kept", retain=True)
    other.subscribe(f"{name}/t", options=NEVER | 1)
    other.subscribe(f"{name}/t", options=LATER | 1)
    client.publish(f"{name}/t", b"new")
    assert other.take().payload == b"new", "neither has brought what is retained"
    other.subscribe(f"{name}/t", options=1)
    assert other.take().payload == b"kept", "0: whenever it is asked for"
    other.unsubscribe(f"{name}/t")
    other.subscribe(f"{name}/t", options=LATER | 1)
    assert other.take().payload == b"kept", "1: the subscription is new"


@holds("MQTT-3.3.1-12", "MQTT-3.3.1-13")
def test_retain_as_published_keeps_the_retain_flag(client: Client, dial: Dial, name: str) -> None:
    plain, kept = dial().opened(f"{name}1"), dial().opened(f"{name}2")
    plain.subscribe(f"{name}/t", options=1)
    kept.subscribe(f"{name}/t", options=RETAIN_AS_PUBLISHED | 1)
    for retain in (True, False):
        client.publish(f"{name}/t", b"x", retain=retain)
        assert (plain.take().retain, kept.take().retain) == (False, retain)


@holds("MQTT-3.3.1-2", "MQTT-3.3.1-3", "MQTT-4.3.1-1", "MQTT-2.2.1-2", "MQTT-4.3.2-2", "MQTT-4.3.3-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_dup_flag_is_not_forwarded(client: Client, other: Client, name: str, qos: int) -> None:
    other.subscribe(f"{name}/t", options=2)
    client.publish(f"{name}/t", b"x", qos=qos, dup=qos > 0)
    message = other.take()
    assert (message.qos, message.dup, bool(message.packet_id)) == (qos, False, qos > 0)


@holds("MQTT-3.3.1-4", "MQTT-3.3.2-1", "MQTT-3.3.2-2", "MQTT-3.3.2-8", "MQTT-3.3.2-13")
@holds("MQTT-3.3.2-14", "MQTT-3.3.2-19", "MQTT-3.3.4-6", "MQTT-4.7.0-1", "MQTT-4.7.3-1", "MQTT-4.7.3-2")
@holds("MQTT-1.5.4-1", "MQTT-1.5.4-2", "MQTT-1.5.7-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize(
    ("first", "body", "code"),
    [
        pytest.param(0x36, text("t") + b"\0\x01\0", 0x81, id="QoS 3"),
        pytest.param(0x38, text("t") + b"\0", 0x81, id="DUP at QoS 0"),
        pytest.param(0x32, text("t") + b"\0\0\0", 0x81, id="packet id 0"),
        pytest.param(0x30, text(b"\xff") + b"\0", 0x81, id="topic not UTF-8"),
        pytest.param(0x30, text(b"\xed\xbf\xbf") + b"\0", 0x81, id="surrogate"),
        pytest.param(0x30, text(b"a\0") + b"\0", 0x81, id="NUL"),
        pytest.param(0x30, text("a/#") + b"\0", 0x90, id="wildcard #"),
        pytest.param(0x30, text("+/a") + b"\0", 0x90, id="wildcard +"),
        pytest.param(0x30, text("") + b"\0", 0x82, id="no topic and no alias"),
        pytest.param(0x30, text("t") + b"\3\x23\0\0", 0x94, id="alias 0"),
        pytest.param(0x30, text("t") + b"\3\x23\xff\xff", 0x94, id="alias over the maximum"),
        pytest.param(0x30, text("") + b"\3\x23\0\x05", 0x82, id="unknown alias"),
        pytest.param(0x30, text("t") + b"\5\x08\0\x02\xff\xff", 0x81, id="response topic not UTF-8"),
        pytest.param(0x30, text("t") + b"\4\x08\0\x01#", 0x82, id="response topic with wildcard"),
        pytest.param(0x30, text("t") + b"\4\x03\0\x01\xff", 0x81, id="content type not UTF-8"),
        pytest.param(0x30, text("t") + b"\2\x0b\x01", 0x82, id="subscription identifier"),
        pytest.param(0x30, text("t") + b"\2\x01\x02", 0x82, id="payload format 2"),
        pytest.param(0x30, text("t") + b"\7\x26\0\x01\xff\0\x01v", 0x81, id="user property not UTF-8"),
    ],
)
def test_an_invalid_publish_closes_the_connection(client: Client, first: int, body: bytes, code: int) -> None:
    client.send(packet(first, body))
    assert client.is_disconnected(code)


@holds("MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-20")
@holds("MQTT-3.1.3-10", "MQTT-1.5.4-3")
@pytest.mark.parametrize("retain", [False, True])
def test_properties_are_forwarded_unchanged_and_user_properties_in_order(
    client: Client, dial: Dial, name: str, retain: bool
) -> None:
    sent: Properties = (
        (P.PAYLOAD_FORMAT, 1),
        (P.CONTENT_TYPE, "text/\ufeffplain"),
        (P.RESPONSE_TOPIC, "answers/\U0010ffff"),
        (P.CORRELATION_DATA, b"\xff\0\x01"),
        *((P.USER, pair) for pair in [("b", "2"), ("a", "1"), ("b", "1"), ("", "\ufeff"), ("b", "2")]),
    )
    readers = [dial().opened(f"{name}{number}") for number in range(2)]
    if not retain:
        [reader.subscribe(f"{name}/\ufefft") for reader in readers]
    client.publish(f"{name}/\ufefft", b"text", properties=sent, retain=retain)
    for reader in readers:
        if retain:
            reader.subscribe(f"{name}/\ufefft")
        message = reader.take()
        assert message.topic == f"{name}/\ufefft"
        assert sorted(message.properties[:4]) == sorted(sent[:4])
        assert message.all(P.USER) == [value for id, value in sent if id == P.USER]


@holds("MQTT-3.3.2-6", "MQTT-3.3.2-5")
def test_the_message_expiry_interval_counts_down_and_the_message_expires(
    client: Client, other: Client, name: str
) -> None:
    client.publish(f"{name}/long", b"l", retain=True, properties=((P.MESSAGE_EXPIRY, 100),))
    client.publish(f"{name}/short", b"s", retain=True, properties=((P.MESSAGE_EXPIRY, 1),))
    time.sleep(1.1)  # The message expires.
    other.subscribe(f"{name}/#")
    message = other.take()
    assert message.payload == b"l"
    assert 90 <= message.get(P.MESSAGE_EXPIRY) <= 99
    client.publish(f"{name}/end", b"x")
    assert other.take().payload == b"x"


@holds("MQTT-3.3.2-5")
def test_an_expired_message_is_not_delivered(client: Client, other: Client, name: str) -> None:
    other.subscribe(f"{name}/#")
    client.publish(f"{name}/dead", b"x", properties=((P.MESSAGE_EXPIRY, 0),))
    client.publish(f"{name}/alive", b"x")
    assert other.take().topic == f"{name}/alive"


@holds("MQTT-3.3.2-12")
def test_every_topic_alias_up_to_the_maximum_is_accepted(client: Client, other: Client, name: str) -> None:
    most = client.connack.get(P.ALIAS_MAXIMUM)
    other.subscribe(f"{name}/#")
    for alias in (1, most):
        client.publish(f"{name}/{alias}", b"", properties=((P.ALIAS, alias),))
        client.publish("", b"again", properties=((P.ALIAS, alias),))
    client.publish(f"{name}/anew", b"", properties=((P.ALIAS, 1),))
    client.publish("", b"again", properties=((P.ALIAS, 1),))
    topics = [f"{name}/1"] * 2 + [f"{name}/{most}"] * 2 + [f"{name}/anew"] * 2
    messages = [other.take() for _ in topics]
    assert [message.topic for message in messages] == topics
    assert not any(message.all(P.ALIAS) for message in messages), "an alias is of one connection"


@holds("MQTT-3.1.2-26", "MQTT-3.1.2-27", "MQTT-3.3.2-11", "MQTT-3.3.2-8")
@pytest.mark.parametrize("most", [0, 1, 2])
def test_topic_aliases_to_the_client_stay_within_its_maximum(
    client: Client, dial: Dial, name: str, most: int
) -> None:
    reader = dial().opened(f"{name}r", properties=((P.ALIAS_MAXIMUM, most),) if most else ())
    reader.subscribe(f"{name}/#")
    topics = [f"{name}/{number}" for number in (1, 2, 3, 1, 2, 3)]
    known: dict[int, str] = {}
    for topic in topics:
        client.publish(topic, b"")
        message = reader.take()
        alias = message.get(P.ALIAS)
        assert alias is None or 1 <= alias <= most
        if alias and message.topic:
            known[alias] = message.topic
        assert (message.topic or known[alias or 0]) == topic
    assert bool(known) == bool(most)


@holds("MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_only_messages_that_exceed_the_maximum_packet_size_are_left_out(
    client: Client, dial: Dial, name: str
) -> None:
    reader = dial().opened(f"{name}r", properties=((P.MAXIMUM_PACKET, 100), (P.RECEIVE_MAXIMUM, 1)))
    reader.subscribe(f"{name}/#")
    for size in (10, 500, 20, 90, 1):
        client.publish(f"{name}/t", bytes(size))
    assert [len(reader.take().payload) for _ in range(3)] == [10, 20, 1]
    reader.ping()


@holds("MQTT-3.3.2-3", "MQTT-4.7.3-4")
def test_topics_are_matched_byte_by_byte_and_forwarded_unchanged(
    client: Client, other: Client, name: str
) -> None:
    odd = [f"{name}/a//b", f"{name}/A/b", f"{name}/a/b/", f"{name}/e\u0301", f"{name}/\u00e9", f"{name}/ a"]
    for number, topic in enumerate(odd):
        other.subscribe(topic, packet_id=number + 1)
    for topic in [f"{name}/a/b", *odd, f"{name}/a", f"/{name}/a//b"]:
        client.publish(topic, b"")
    assert [other.take().topic for _ in odd] == odd
    other.ping()


@holds("MQTT-3.3.4-1", "MQTT-2.2.1-5", "MQTT-4.3.2-4", "MQTT-4.3.3-8", "MQTT-4.3.3-11")
def test_a_publish_of_each_qos_has_its_acknowledgement(client: Client, name: str) -> None:
    client.subscribe(f"{name}/#", options=0)
    client.send(publish(f"{name}/t", qos=0))
    assert client.take().qos == 0
    client.ping()
    for packet_id in (1, 65_535, 256):
        assert client.publish(f"{name}/t", qos=1, packet_id=packet_id) == 0
        assert client.publish(f"{name}/t", qos=2, packet_id=packet_id) == 0


@holds("MQTT-3.3.4-2", "MQTT-3.3.4-3", "MQTT-3.3.4-5")
def test_overlapping_subscriptions_get_one_copy_each(client: Client, other: Client, name: str) -> None:
    for number, (filter, qos) in enumerate([("+/t", 0), ("a/#", 2), ("a/t", 1)], 1):
        identifier = () if number == 3 else ((P.IDENTIFIER, number * 100),)
        other.subscribe(f"{name}/{filter}", options=qos, packet_id=number, properties=identifier)
    client.publish(f"{name}/a/t", b"x", qos=2)
    client.publish(f"{name}/end", b"x", qos=2)
    client.publish(f"{name}/a/end", b"x", qos=2)
    copies = []
    while (message := other.take()).topic == f"{name}/a/t":
        copies.append((message.qos, message.all(P.IDENTIFIER)))
    assert message.all(P.IDENTIFIER) == [200]
    assert copies[0] == (2, [200]), "that of the highest quality comes first"
    assert sorted(copies[1:]) == [(0, [100]), (1, [])]


@holds("MQTT-3.3.4-9", "MQTT-3.3.4-10", "MQTT-4.9.0-1", "MQTT-4.9.0-2", "MQTT-4.9.0-3")
def test_the_receive_maximum_of_the_client_is_respected(client: Client, dial: Dial, name: str) -> None:
    reader = dial().opened(f"{name}r", properties=((P.RECEIVE_MAXIMUM, 2),))
    reader.subscribe(f"{name}/#", options=2)
    for number in range(5):
        client.publish(f"{name}/t", bytes([number]), qos=1 + number % 2)
    first, second = reader.next(), reader.next()
    reader.ping()
    assert reader.subscribe(f"{name}/other", packet_id=5) == [1]
    reader.publish("elsewhere", b"", qos=2)
    client.publish(f"{name}/free", b"", qos=0)
    assert reader.next().topic == f"{name}/free"
    # PUBREC does not free a slot of the receive maximum, PUBCOMP does.
    reader.send(ack(PUBREC, second.packet_id))
    assert reader.answer(PUBREL, second.packet_id).code == 0
    reader.ping()
    reader.send(ack(PUBACK, first.packet_id))
    assert reader.next().payload == b"\x02"
    reader.ping()
    reader.send(ack(PUBCOMP, second.packet_id))
    third = reader.next()
    assert third.payload == b"\x03"
    reader.send(ack(PUBREC, third.packet_id, 0x80))
    assert reader.next().payload == b"\x04"
