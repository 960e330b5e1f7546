"""Sessions: clean start, resumption, expiry (MQTT 5 §3.1.2.4, §3.1.2.11.2, MQTT 5 §4.1, MQTT 5 §4.4)."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.client import FOR_EVER_S, Client, P, ack, publish
from tests.conformance.holds import holds
from tests.gateway_native.wire import PUBACK, PUBCOMP, PUBREC, PUBREL
from tests.waiting import until

Dial = Callable[[], Client]
KEPT = ((P.SESSION_EXPIRY, 600),)


@holds("MQTT-3.1.2-4", "MQTT-3.1.4-4", "MQTT-3.2.2-2")
def test_a_clean_start_discards_the_session(dial: Dial, other: Client, name: str) -> None:
    first = dial().opened(name, properties=KEPT)
    first.subscribe(f"{name}/t")
    first.leave()
    assert other.publish(f"{name}/t", b"while offline") == 0
    again = dial().opened(name, clean=True, properties=KEPT)
    assert again.connack.flags == 0
    other.publish(f"{name}/t", b"after")
    again.ping()
    # The new session can be resumed, and has no subscription of the former one.
    again.leave()
    last = dial().opened(name, clean=False)
    assert last.connack.flags == 1
    other.publish(f"{name}/t", b"after")
    last.ping()


@holds("MQTT-3.1.2-5", "MQTT-3.2.2-3", "MQTT-3.1.2-23", "MQTT-3.1.3-2", "MQTT-4.5.0-1")
def test_a_session_is_resumed_with_its_subscriptions_and_messages(
    dial: Dial, other: Client, name: str
) -> None:
    first = dial().opened(name, properties=KEPT)
    first.subscribe(f"{name}/t")
    first.leave()
    other.publish(f"{name}/t", b"while offline")
    again = dial().opened(name, clean=False, properties=KEPT)
    assert again.connack.flags == 1
    assert again.take().payload == b"while offline"
    other.publish(f"{name}/t", b"after")
    assert again.take().payload == b"after"


@holds("MQTT-3.1.2-23", "MQTT-4.5.0-1")
def test_no_message_is_lost_while_a_session_disconnects(dial: Dial, other: Client, name: str) -> None:
    for number in range(20):
        first = dial().opened(f"{name}{number}", properties=KEPT)
        first.subscribe(f"{name}/{number}")
        first.leave()
        other.publish(f"{name}/{number}", b"just behind")
        again = dial().opened(f"{name}{number}", clean=False, properties=KEPT)
        assert again.take().payload == b"just behind"


@holds("MQTT-3.1.2-6", "MQTT-3.2.2-3")
def test_a_session_begins_where_none_exists(dial: Dial, name: str) -> None:
    client = dial().opened(name, clean=False)
    assert client.connack.flags == 0
    assert client.subscribe(f"{name}/t") == [1]
    client.publish(f"{name}/t", b"x", qos=0)
    assert client.take().payload == b"x"


@holds("MQTT-4.1.0-2")
def test_a_session_ends_at_its_expiry(dial: Dial, name: str) -> None:
    first = dial().opened(name, properties=((P.SESSION_EXPIRY, 1),))
    first.subscribe(f"{name}/t")
    first.leave()

    def is_gone() -> bool:
        probe = dial().opened(name, clean=False, properties=((P.SESSION_EXPIRY, 1),))
        present = probe.connack.flags
        probe.socket.close()
        return not present

    until(is_gone, "the session ends", 10, glance_s=1.2)
    # With expiry 0, and without an expiry, the session ends with the connection.
    for properties in ((), ((P.SESSION_EXPIRY, 0),)):
        client = dial().opened(f"{name}x", properties=properties)
        client.subscribe(f"{name}/t")
        client.leave()
        assert dial().opened(f"{name}x", clean=False).connack.flags == 0


@holds("MQTT-4.1.0-1")
def test_a_session_does_not_expire_while_its_connection_is_open(dial: Dial, other: Client, name: str) -> None:
    client = dial().opened(name, properties=((P.SESSION_EXPIRY, 1),))
    client.subscribe(f"{name}/t")
    short = dial().opened(f"{name}s", properties=((P.SESSION_EXPIRY, 1),))
    short.subscribe(f"{name}/u")
    short.leave()
    until(
        lambda: dial().opened(f"{name}s", clean=False).connack.flags == 0, "the other ends", 10, glance_s=1.2
    )
    other.publish(f"{name}/t", b"still")
    assert client.take().payload == b"still"


@holds("MQTT-3.1.2-23", "MQTT-3.2.2-3")
def test_an_unlimited_session_expiry_is_answered_with_the_limit(dial: Dial, name: str) -> None:
    client = dial().opened(name, properties=((P.SESSION_EXPIRY, FOR_EVER_S),))
    assert client.connack.get(P.SESSION_EXPIRY) == 604_800
    client.leave()
    assert dial().opened(name, clean=False).connack.flags == 1


@holds("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.2-3", "MQTT-4.3.3-3", "MQTT-4.3.3-5", "MQTT-4.3.3-6")
def test_unacknowledged_messages_are_sent_again_after_a_reconnect(
    dial: Dial, other: Client, name: str
) -> None:
    first = dial().opened(name, properties=KEPT)
    first.subscribe(f"{name}/t", options=2)
    for payload, qos in [(b"a", 1), (b"b", 2), (b"c", 2), (b"d", 1)]:
        other.publish(f"{name}/t", payload, qos=qos)
    a, b, c, d = (first.next() for _ in range(4))
    assert not any(message.dup for message in (a, b, c, d))
    first.send(ack(PUBREC, c.packet_id))
    assert first.answer(PUBREL, c.packet_id).code == 0
    first.ping()
    first.socket.close()
    again = dial().opened(name, clean=False, properties=KEPT)
    assert again.connack.flags == 1
    assert again.answer(PUBREL, c.packet_id).code == 0
    repeated = [again.next() for _ in range(3)]
    assert [(m.payload, m.packet_id, m.dup) for m in repeated] == [
        (m.payload, m.packet_id, True) for m in (a, b, d)
    ]
    again.ping()  # No message is sent again while the connection is open.


@holds("MQTT-4.4.0-2")
def test_a_message_that_the_client_refused_is_not_sent_again(dial: Dial, other: Client, name: str) -> None:
    first = dial().opened(name, properties=KEPT)
    first.subscribe(f"{name}/t", options=2)
    other.publish(f"{name}/t", b"a", qos=1)
    other.publish(f"{name}/t", b"b", qos=2)
    first.send(ack(PUBACK, first.next().packet_id, 0x80))
    first.send(ack(PUBREC, first.next().packet_id, 0x83))
    first.ping()
    first.leave()
    again = dial().opened(name, clean=False, properties=KEPT)
    assert again.connack.flags == 1
    other.publish(f"{name}/t", b"c")
    assert again.take().payload == b"c"


@holds("MQTT-4.3.3-10", "MQTT-4.3.3-12")
def test_a_qos_2_message_is_delivered_once_over_two_connections(dial: Dial, other: Client, name: str) -> None:
    other.subscribe(f"{name}/t", options=2)
    first = dial().opened(name, properties=KEPT)
    message = publish(f"{name}/t", b"once", qos=2, packet_id=9)
    first.send(message)
    assert first.answer(PUBREC, 9).code == 0
    first.socket.close()
    again = dial().opened(name, clean=False, properties=KEPT)
    assert again.connack.flags == 1
    again.send(publish(f"{name}/t", b"once", qos=2, packet_id=9, dup=True))
    assert again.answer(PUBREC, 9).code == 0
    again.send(ack(PUBREL, 9))
    assert again.answer(PUBCOMP, 9).code == 0
    again.publish(f"{name}/t", b"anew", qos=2, packet_id=9)
    assert [other.take().payload for _ in range(2)] == [b"once", b"anew"]
    other.ping()


@holds("MQTT-3.3.2-7")
def test_topic_aliases_end_with_the_connection(dial: Dial, name: str) -> None:
    first = dial().opened(name, properties=KEPT)
    first.publish(f"{name}/t", qos=1, properties=((P.ALIAS, 1),))
    first.leave()
    again = dial().opened(name, clean=False, properties=KEPT)
    again.send(publish("", qos=1, properties=((P.ALIAS, 1),)))
    assert again.is_disconnected(0x82)
