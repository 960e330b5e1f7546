"""CONNECT (MQTT 5 §3.1) and the server's answer to it (MQTT 5 §3.2)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.client import PINGREQ, Client, P, connect, publish, subscribe, unsubscribe
from tests.conformance.holds import holds
from tests.conformance.policy import WHY
from tests.gateway_native.wire import (
    CONNACK,
    DISCONNECT,
    PINGRESP,
    PUBACK,
    PUBREC,
    SUBACK,
    UNSUBACK,
    packet,
    text,
)

Dial = Callable[[], Client]

HEAD = text("MQTT") + b"\x05"


@holds("MQTT-3.1.0-1")
@pytest.mark.parametrize("first", [PINGREQ, publish("t"), subscribe(1, "t"), b"\xe0\x00"])
def test_a_connection_that_does_not_begin_with_connect_is_closed(dial: Dial, first: bytes) -> None:
    client = dial()
    client.send(first)
    assert client.at_end()


@holds("MQTT-3.1.0-2", "MQTT-4.13.1-1")
def test_a_second_connect_closes_the_connection(client: Client, name: str) -> None:
    client.send(connect(f"{name}c"))
    assert client.is_disconnected(0x82)


@holds("MQTT-3.1.2-1", "MQTT-3.1.2-2")
@pytest.mark.parametrize("head", [text("MQTT") + b"\x06", text("MQTT") + b"\xff", text("MQTX") + b"\x05"])
def test_an_unknown_protocol_name_or_version_closes_the_connection(dial: Dial, head: bytes) -> None:
    client = dial()
    client.send(packet(0x10, head + b"\x02\0\0\0" + text("c")))
    if head.startswith(text("MQTT")):
        assert client.answer(CONNACK).code == 0x84
    assert client.at_end()


def _refused(client: Client, body: bytes) -> bool:
    """Whether the server refuses a CONNECT and closes the connection, with or without a CONNACK."""
    client.send(packet(0x10, body))
    try:
        return client.answer(CONNACK).code >= 0x80 and client.at_end()
    except (EOFError, ConnectionResetError):
        return True


@holds("MQTT-3.1.2-3", "MQTT-2.1.3-1", "MQTT-3.1.4-1")
def test_a_reserved_flag_that_is_set_is_refused(dial: Dial) -> None:
    assert _refused(dial(), HEAD + b"\x03\0\0\0" + text("c"))
    client = dial()
    client.send(b"\x11" + connect("c")[1:])
    assert client.at_end()


@holds("MQTT-3.1.2-9", "MQTT-3.1.2-11", "MQTT-3.1.2-12", "MQTT-3.1.2-13", "MQTT-3.1.3-11", "MQTT-3.1.3-1")
@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(0x06, text("c"), id="no will"),
        pytest.param(0x06, text("c") + text("t") + text(b"p"), id="no will properties"),
        pytest.param(0x06, text("c") + b"\0" + text("t"), id="no will payload"),
        pytest.param(0x0A, text("c"), id="QoS without a will"),
        pytest.param(0x22, text("c"), id="retain without a will"),
        pytest.param(0x1E, text("c") + b"\0" + text("t") + text(b"p"), id="QoS 3"),
        pytest.param(0x06, text("c") + b"\0" + text(b"\xff") + text(b"p"), id="topic not UTF-8"),
        pytest.param(0x06, text("c") + b"\0" + text(b"\xed\xa0\x80") + text(b"p"), id="surrogate"),
        pytest.param(0x06, b"\0" + text("t") + text(b"p") + text("c"), id="another order"),
    ],
)
def test_an_incomplete_will_is_refused(dial: Dial, flags: int, payload: bytes) -> None:
    assert _refused(dial(), HEAD + bytes([flags]) + b"\0\0\0" + payload)


@holds("MQTT-3.1.2-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_with_any_qos_is_accepted(dial: Dial, name: str, qos: int) -> None:
    body = HEAD + bytes([6 | qos << 3]) + b"\0\0\0" + text(name) + b"\0" + text("t") + text(b"p")
    client = dial()
    client.send(packet(0x10, body))
    assert client.answer(CONNACK).code == 0


@holds("MQTT-3.1.2-16", "MQTT-3.1.2-17", "MQTT-3.1.2-18", "MQTT-3.1.2-19", "MQTT-3.1.3-12")
@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(0x02, text("c") + text("u"), id="a name that no flag tells"),
        pytest.param(0x82, text("c"), id="no name"),
        pytest.param(0x82, text("c") + text("u") + text("p"), id="a password that no flag tells"),
        pytest.param(0xC2, text("c") + text("u"), id="no password"),
        pytest.param(0x82, text("c") + text(b"\xff"), id="a name not UTF-8"),
        pytest.param(0x82, text("c") + text(b"\0"), id="a name with NUL"),
    ],
)
def test_a_user_name_or_password_that_does_not_match_the_flags_is_refused(
    dial: Dial, flags: int, payload: bytes
) -> None:
    assert _refused(dial(), HEAD + bytes([flags]) + b"\0\0\0" + payload)


@holds("MQTT-3.1.3-3", "MQTT-3.1.3-4", "MQTT-1.5.4-1", "MQTT-1.5.4-2")
@pytest.mark.parametrize("payload", [b"", text(b"\xff"), text(b"\xed\xa0\x80"), text(b"a\0b"), b"\0\x05ab"])
def test_a_missing_or_malformed_client_id_is_refused(dial: Dial, payload: bytes) -> None:
    assert _refused(dial(), HEAD + b"\x02\0\0\0" + payload)


@holds("MQTT-3.1.3-5", "MQTT-3.1.4-5", "MQTT-3.2.2-1")
@pytest.mark.parametrize(
    "id", ["0", "abcdefghijklmnopqrstuvw", "xyzABCDEFGHIJKLMNOPQRST", "UVWXYZ0123456789"]
)
def test_a_client_id_of_letters_and_digits_is_accepted(dial: Dial, id: str) -> None:
    client = dial().opened(id)
    assert client.connack.flags == 0
    assert client.connack.get(P.ASSIGNED_CLIENT_ID) is None


@holds("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16")
def test_an_empty_client_id_is_replaced_by_an_assigned_one(dial: Dial, name: str) -> None:
    first, second = dial().opened(""), dial().opened("", properties=((P.SESSION_EXPIRY, 60),))
    ids = [client.connack.get(P.ASSIGNED_CLIENT_ID) for client in (first, second)]
    assert all(ids)
    assert ids[0] != ids[1]
    # The assigned id is the session's: a client that connects with it resumes the session.
    second.subscribe(f"{name}/t")
    second.leave()
    again = dial().opened(ids[1], clean=False)
    assert again.connack.flags == 1
    assert again.connack.get(P.ASSIGNED_CLIENT_ID) is None


@holds("MQTT-3.1.3-8", "MQTT-3.2.2-7")
def test_a_client_id_that_is_too_long_closes_the_connection(dial: Dial) -> None:
    client = dial()
    client.send(connect("x" * 60_000))
    assert client.answer(CONNACK).code == 0x85
    assert client.at_end()


@holds("MQTT-3.1.4-2", "MQTT-3.1.4-6", "MQTT-3.2.2-6", "MQTT-3.2.2-8", "MQTT-4.13.2-1", "MQTT-3.14.0-1")
def test_no_packet_of_a_refused_client_is_processed(dial: Dial, client: Client, name: str) -> None:
    refused = dial()
    behind = publish(f"{name}/t", b"no", retain=True)
    refused.send(connect(f"{name}m", clean=False, user="mallory", password=b"x") + behind + PINGREQ)
    told = refused.answer(CONNACK)
    assert (told.code, told.flags, told.get(P.REASON)) == (0x86, 0, WHY)
    assert refused.at_end()
    client.subscribe(f"{name}/t")
    client.publish(f"{name}/t", b"yes", qos=0)
    assert client.take().payload == b"yes"


@holds("MQTT-3.2.0-1", "MQTT-3.2.0-2", "MQTT-3.1.4-5")
def test_connack_is_sent_first_and_once(dial: Dial, name: str) -> None:
    client = dial()
    pipelined = subscribe(1, f"{name}/u") + publish(f"{name}/t", b"1", qos=1) + PINGREQ
    client.send(connect(name) + pipelined)
    kinds = [client.read()[0] >> 4 for _ in range(4)]
    assert kinds[0] == CONNACK
    assert {SUBACK, PUBACK, PINGRESP} <= {*kinds}


@holds("MQTT-3.1.4-3", "MQTT-3.14.4-1", "MQTT-3.14.4-2", "MQTT-3.14.2-1", "MQTT-3.14.2-2")
def test_a_later_connection_takes_the_session_over(dial: Dial, client: Client, name: str) -> None:
    dial().opened(f"{name}c")
    told = client.answer(DISCONNECT)
    assert (told.code, told.get(P.SESSION_EXPIRY)) == (0x8E, None)
    assert client.at_end()


@holds("MQTT-3.1.2-22", "MQTT-3.2.2-22")
def test_a_connection_closes_after_one_and_a_half_times_the_keep_alive(dial: Dial, name: str) -> None:
    client = dial().opened(name, keep_alive=1)
    assert client.connack.get(P.SERVER_KEEP_ALIVE) is None
    client.ping()
    began = time.monotonic()
    told = client.answer(DISCONNECT)
    waited = time.monotonic() - began
    assert told.code == 0x8D
    assert client.at_end()
    assert 1.4 < waited < 3


@holds("MQTT-3.1.2-28")
@pytest.mark.parametrize("properties", [(), ((P.WANTS_RESPONSE, 0),)])
def test_response_information_is_not_sent_without_a_request(
    dial: Dial, name: str, properties: tuple[tuple[P, int]]
) -> None:
    assert dial().opened(name, properties=properties).connack.get(P.RESPONSE_INFORMATION) is None


@holds("MQTT-3.1.2-29")
def test_reason_strings_are_not_sent_to_a_client_that_refuses_them(dial: Dial, name: str) -> None:
    client = dial().opened(name, properties=((P.WANTS_PROBLEMS, 0),))
    client.send(subscribe(1, "denied/x"))
    assert client.expect(SUBACK) == b"\0\x01\0\x87"
    client.send(publish("denied/x", qos=2, packet_id=2))
    assert client.answer(PUBREC, 2).properties == ()
    client.send(unsubscribe(3, "no"))
    assert client.expect(UNSUBACK) == b"\0\x03\0\x11"


@holds("MQTT-3.2.2-19")
def test_a_reason_string_that_exceeds_the_maximum_packet_size_is_left_out(dial: Dial, name: str) -> None:
    client = dial()
    client.send(connect(name, user="mallory", properties=((P.MAXIMUM_PACKET, 20),)))
    told = client.answer(CONNACK)
    assert (told.code, told.get(P.REASON)) == (0x86, None)


@holds("MQTT-2.2.2-1", "MQTT-1.5.5-1", "MQTT-1.5.7-1", "MQTT-3.1.4-1")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(HEAD + b"\x02\0\0", id="no length of properties, no payload"),
        pytest.param(HEAD + b"\x02\0\0\x80\x00" + text("c"), id="a length that is longer than need be"),
        pytest.param(HEAD + b"\x02\0\0\x07\x26\0\x01\xff\0\x01v" + text("c"), id="a name not UTF-8"),
        pytest.param(HEAD + b"\x02\0\0\x07\x26\0\x01n\0\x01\0" + text("c"), id="a value with NUL"),
        pytest.param(HEAD + b"\x02\0\0\x02\x7f\0" + text("c"), id="a property that is none"),
    ],
)
def test_a_malformed_property_is_refused(dial: Dial, body: bytes) -> None:
    assert _refused(dial(), body)


@holds("MQTT-1.5.5-1")
def test_a_remaining_length_with_needless_bytes_is_malformed(client: Client) -> None:
    client.send(b"\xc0\x80\x00")
    assert client.is_disconnected(0x81)
