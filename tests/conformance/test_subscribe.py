"""SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK (MQTT 5 §3.8, MQTT 5 §3.10)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.client import Client, P, ack, publish, subscribe, unsubscribe
from tests.conformance.holds import holds
from tests.gateway_native.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, packet, text

Dial = Callable[[], Client]
NO_LOCAL = 0x04


@holds("MQTT-3.8.1-1", "MQTT-3.8.3-1", "MQTT-3.8.3-2", "MQTT-3.8.3-4", "MQTT-3.8.3-5", "MQTT-4.7.1-1")
@holds("MQTT-4.7.1-2", "MQTT-4.7.3-1", "MQTT-4.7.3-2", "MQTT-2.1.3-1")
@pytest.mark.parametrize(
    ("first", "body", "code"),
    [
        pytest.param(0x80, b"\0\1\0" + text("t") + b"\0", 0x81, id="flags 0"),
        pytest.param(0x83, b"\0\1\0" + text("t") + b"\0", 0x81, id="flags 3"),
        pytest.param(0x82, b"\0\0\0" + text("t") + b"\0", 0x81, id="packet id 0"),
        pytest.param(0x82, b"\0\1\0", 0x82, id="no filter"),
        pytest.param(0x82, b"\0\1\0" + text("t"), 0x81, id="no options"),
        pytest.param(0x82, b"\0\1\0" + text(b"\xff") + b"\0", 0x81, id="not UTF-8"),
        pytest.param(0x82, b"\0\1\0" + text(b"a\0") + b"\0", 0x81, id="NUL"),
        pytest.param(0x82, b"\0\1\0" + text("t") + b"\x40", 0x81, id="reserved bit 6"),
        pytest.param(0x82, b"\0\1\0" + text("t") + b"\x80", 0x81, id="reserved bit 7"),
        pytest.param(0x82, b"\0\1\0" + text("t") + b"\x03", 0x82, id="QoS 3"),
        pytest.param(0x82, b"\0\1\0" + text("t") + b"\x30", 0x82, id="retain handling 3"),
        pytest.param(0x82, b"\0\1\0" + text("$share/g/t") + b"\x04", 0x82, id="no local, shared"),
        pytest.param(0x82, b"\0\1\2\x0b\0" + text("t") + b"\0", 0x82, id="identifier 0"),
        pytest.param(0x82, b"\0\1\0" + text("") + b"\0", 0x8F, id="empty filter"),
        pytest.param(0x82, b"\0\1\0" + text("a/#/b") + b"\0", 0x8F, id="# before the end"),
        pytest.param(0x82, b"\0\1\0" + text("a#") + b"\0", 0x8F, id="# in a level"),
        pytest.param(0x82, b"\0\1\0" + text("a/b+") + b"\0", 0x8F, id="+ in a level"),
    ],
)
def test_an_invalid_subscribe_closes_the_connection(
    client: Client, first: int, body: bytes, code: int
) -> None:
    client.send(packet(first, body))
    assert client.is_disconnected(code)


@holds("MQTT-4.8.2-1", "MQTT-4.8.2-2")
def test_an_invalid_shared_subscription_is_refused_and_the_connection_stays_open(
    client: Client, name: str
) -> None:
    wrong = ["$share/g", "$share//t", "$share/g+/t", "$share/g#/t", "$share/g/", "$share/g/a#"]
    assert client.subscribe(*wrong, f"$share/g/{name}") == [0x8F] * 6 + [1]
    assert client.unsubscribe(*wrong) == [0x8F] * 6


@holds("MQTT-3.10.1-1", "MQTT-3.10.3-1", "MQTT-3.10.3-2")
@pytest.mark.parametrize(
    ("first", "body", "code"),
    [
        pytest.param(0xA0, b"\0\1\0" + text("t"), 0x81, id="flags 0"),
        pytest.param(0xAA, b"\0\1\0" + text("t"), 0x81, id="flags 10"),
        pytest.param(0xA2, b"\0\0\0" + text("t"), 0x81, id="packet id 0"),
        pytest.param(0xA2, b"\0\1\0", 0x82, id="no filter"),
        pytest.param(0xA2, b"\0\1\0" + text(b"\xff"), 0x81, id="not UTF-8"),
        pytest.param(0xA2, b"\0\1\0\0\x05ab", 0x81, id="cut"),
    ],
)
def test_an_invalid_unsubscribe_closes_the_connection(
    client: Client, first: int, body: bytes, code: int
) -> None:
    client.send(packet(first, body))
    assert client.is_disconnected(code)


@holds("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-2.2.1-6", "MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.8.4-7")
@holds("MQTT-3.9.3-1", "MQTT-3.9.3-2")
def test_suback_answers_each_filter_in_order(client: Client, name: str) -> None:
    pairs = [(f"{name}/a", 2), ("denied/a", 1), (f"{name}/b", 0), (f"{name}/c", 1), (f"{name}/a", 1)]
    payload = b"".join(text(filter) + bytes([qos]) for filter, qos in pairs)
    client.send(packet(0x82, b"\xff\xfe\0" + payload))
    assert client.codes(9, 0xFFFE) == [2, 0x87, 0, 1, 1]
    client.publish(f"{name}/a", b"x", qos=2)
    assert client.take().qos == 1, "the last of two has replaced the first"


@holds("MQTT-3.8.3-3")
def test_a_no_local_subscription_does_not_get_the_client_s_own_messages(
    client: Client, dial: Dial, name: str
) -> None:
    client.subscribe(f"{name}/#", options=NO_LOCAL | 1)
    other = dial().opened(f"{name}x")
    client.publish(f"{name}/mine", b"")
    other.publish(f"{name}/theirs", b"")
    assert client.take().topic == f"{name}/theirs"


@holds("MQTT-3.8.4-3", "MQTT-3.8.4-4")
def test_a_subscription_replaces_an_earlier_one_with_the_same_filter(
    client: Client, other: Client, name: str
) -> None:
    client.subscribe(f"{name}/t", options=2, properties=((P.IDENTIFIER, 1),))
    client.subscribe(f"{name}/t", options=1, properties=((P.IDENTIFIER, 2),))
    other.publish(f"{name}/t", b"x", qos=2)
    message = client.take()
    assert (message.qos, message.all(P.IDENTIFIER)) == (1, [2])
    client.ping()
    # No message is lost while a subscription is replaced.
    client.send(*(subscribe(number + 10, f"{name}/t") for number in range(20)))
    other.send(*(publish(f"{name}/t", bytes([number]), qos=1, packet_id=number + 1) for number in range(50)))
    payloads: list[int] = []
    while len(payloads) < 50:
        first, body = client.read()
        if first >> 4 == 3:
            payloads.append(body[-1])
            client.send(ack(PUBACK, int.from_bytes(body[2 + body[1] : 4 + body[1]], "big")))
    assert payloads == [*range(50)]


@holds("MQTT-3.8.4-8", "MQTT-4.8.2-3")
@pytest.mark.parametrize("filter", ["{}/t", "$share/g/{}/t"])
def test_the_delivered_qos_is_the_lower_of_published_and_granted_qos(
    client: Client, other: Client, name: str, filter: str
) -> None:
    for granted in range(3):
        client.subscribe(filter.format(name), options=granted)
        for sent in range(3):
            other.publish(f"{name}/t", b"x", qos=sent)
            assert client.take().qos == min(granted, sent)


@holds("MQTT-3.10.4-1", "MQTT-3.10.4-2", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.10.4-6", "MQTT-3.11.3-1")
@holds("MQTT-3.11.3-2", "MQTT-2.2.1-6")
def test_unsuback_answers_each_filter_in_order(client: Client, other: Client, name: str) -> None:
    client.subscribe(f"{name}/+", f"{name}/a", f"{name}/b")
    assert client.unsubscribe(f"{name}/a", f"{name}/A", f"{name}/+", "+", packet_id=9) == [0, 0x11, 0, 0x11]
    assert client.unsubscribe(f"{name}/a", packet_id=10) == [0x11]
    other.publish(f"{name}/a", b"")
    other.publish(f"{name}/b", b"")
    assert client.take().topic == f"{name}/b"
    client.ping()


@holds("MQTT-3.10.4-3")
def test_an_unfinished_delivery_is_completed_after_unsubscribe(
    client: Client, other: Client, name: str
) -> None:
    client.subscribe(f"{name}/t", options=2)
    other.publish(f"{name}/t", b"x", qos=2)
    message = client.next()
    client.send(unsubscribe(5, f"{name}/t"))
    assert client.codes(11, 5) == [0]
    client.send(ack(PUBREC, message.packet_id))
    assert client.answer(PUBREL, message.packet_id).code == 0
    client.send(ack(PUBCOMP, message.packet_id))
    client.ping()


@holds("MQTT-4.7.2-1")
def test_a_leading_wildcard_does_not_match_topics_that_begin_with_dollar(
    client: Client, other: Client, dial: Dial, name: str
) -> None:
    state = f"$SYS/broker/connection/{name}/state"  # The root owns this topic. Clients may publish to it.
    client.subscribe("#", "+/broker/#", f"+/broker/connection/{name}/state", "+/+/+/+/+", "+/broker/version")
    named = dial().opened(f"{name}n")
    named.subscribe("$SYS/broker/version", state)
    assert named.take().topic == "$SYS/broker/version", "the gateway itself publishes this one"
    assert other.publish(state, b"1") == 0
    message = named.take()
    assert (message.topic, message.payload, message.retain) == (state, b"1", False)
    other.publish(f"{name}/t", b"")
    # Retained messages of other tests may be received, but no topic that begins with $.
    topics = []
    while f"{name}/t" not in topics:
        topics.append(client.take().topic)
    assert not [topic for topic in topics if topic.startswith("$")]


@holds("MQTT-4.8.2-4", "MQTT-4.8.2-6")
def test_an_unacknowledged_message_of_a_shared_subscription_stays_with_its_member(
    dial: Dial, other: Client, name: str
) -> None:
    kept = ((P.SESSION_EXPIRY, 600),)
    filter = f"$share/g/{name}/t"
    one, two = (dial().opened(f"{name}{number}", properties=kept) for number in (1, 2))
    one.subscribe(filter, options=2)
    other.publish(f"{name}/t", b"first", qos=2)
    first = one.next()
    assert first.payload == b"first"
    two.subscribe(filter, options=2)
    two.ping()
    # The member disconnects with an unacknowledged message, and gets it again.
    one.socket.close()
    one = dial().opened(f"{name}1", clean=False, properties=kept)
    again = one.next()
    assert (again.payload, again.packet_id) == (b"first", first.packet_id)
    # No other member gets a message that a member has refused, also after its session has ended.
    one.send(ack(PUBREC, again.packet_id, 0x80))
    one.ping()
    one.leave(0, ((P.SESSION_EXPIRY, 0),))
    other.publish(f"{name}/t", b"second", qos=2)
    assert two.take().payload == b"second"


@holds("MQTT-4.8.2-5")
@pytest.mark.parametrize(("qos", "expected"), [(1, [b"first", b"second"]), (2, [b"second"])])
@pytest.mark.parametrize("pubrec", [False, True])
def test_a_qos_1_message_in_flight_goes_to_another_member_and_a_qos_2_message_does_not(
    dial: Dial, other: Client, name: str, qos: int, expected: list[bytes], pubrec: bool
) -> None:
    """The session of the first member ends with a message in flight."""
    kept = ((P.SESSION_EXPIRY, 600),)
    filter = f"$share/g/{name}/t"
    one, two = (dial().opened(f"{name}{number}", properties=kept) for number in (1, 2))
    one.subscribe(filter, options=qos)
    other.publish(f"{name}/t", b"first", qos=qos)
    first = one.next()
    assert first.payload == b"first"
    two.subscribe(filter, options=qos)
    if pubrec and qos == 2:
        one.send(ack(PUBREC, first.packet_id))
        one.expect(PUBREL)
    one.leave(0, ((P.SESSION_EXPIRY, 0),))
    dial().opened(f"{name}1", clean=True)  # The former session has ended at all owners after this.
    other.publish(f"{name}/t", b"second", qos=qos)
    assert [two.take().payload for _ in expected] == expected
