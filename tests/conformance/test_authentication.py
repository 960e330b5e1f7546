"""Enhanced authentication (MQTT 5 §3.15, MQTT 5 §4.12), with the method of `policy`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.client import Client, P, Properties, auth, connect, decode
from tests.conformance.holds import holds
from tests.conformance.policy import METHOD
from tests.gateway_native.wire import AUTH, CONNACK, DISCONNECT, packet

Dial = Callable[[], Client]
BEGIN, CONTINUE, AGAIN = 0x00, 0x18, 0x19


def _with(data: bytes, method: str = METHOD) -> Properties:
    return ((P.METHOD, method), (P.DATA, data))


def _challenged(client: Client, code: int = CONTINUE) -> bytes:
    """The data of the next packet, which is AUTH."""
    first, body = client.read()
    assert (first, body[0]) == (AUTH << 4, code)
    properties, rest = decode(body[1:])
    assert rest == b""
    assert dict(properties)[P.METHOD] == METHOD
    return bytes(dict(properties).get(P.DATA, b""))


def _admitted(client: Client, name: str) -> Client:
    client.send(connect(name, properties=_with(b"right")))
    client.send(auth(CONTINUE, _with(_challenged(client)[::-1])))
    assert dict(client.answer(CONNACK).properties)[P.METHOD] == METHOD
    return client


@holds("MQTT-4.12.0-2", "MQTT-4.12.0-5", "MQTT-3.15.2-1", "MQTT-3.2.0-1")
def test_a_client_is_challenged_and_admitted(dial: Dial, name: str) -> None:
    _admitted(dial(), name).ping()


@holds("MQTT-4.12.0-4", "MQTT-4.13.2-1")
def test_a_wrong_response_to_the_challenge_closes_the_connection(dial: Dial, name: str) -> None:
    client = dial()
    client.send(connect(name, properties=_with(b"right")))
    _challenged(client)
    client.send(auth(CONTINUE, _with(b"wrong")))
    assert client.answer(CONNACK).code == 0x87
    assert client.at_end()


@holds("MQTT-4.12.0-1")
def test_an_unknown_authentication_method_closes_the_connection(dial: Dial, name: str) -> None:
    client = dial()
    client.send(connect(name, properties=_with(b"", "scent")))
    assert client.answer(CONNACK).code == 0x8C
    assert client.at_end()


@holds("MQTT-4.12.0-6", "MQTT-4.12.0-5")
def test_a_client_without_an_authentication_method_must_not_send_auth(client: Client) -> None:
    assert client.connack.get(P.METHOD) is None
    client.send(auth(AGAIN, _with(b"right")))
    assert client.is_disconnected(0x82)


@holds("MQTT-4.12.0-5", "MQTT-4.12.1-2", "MQTT-3.15.2-1")
def test_a_client_authenticates_again(dial: Dial, name: str) -> None:
    client = _admitted(dial(), name)
    client.send(auth(AGAIN, _with(b"right")))
    client.send(auth(CONTINUE, _with(_challenged(client)[::-1])))
    _challenged(client, BEGIN)
    client.ping()
    client.send(auth(AGAIN, _with(b"right")))
    client.send(auth(CONTINUE, _with(_challenged(client))))
    assert client.answer(DISCONNECT).code == 0x87
    assert client.at_end()


@holds("MQTT-3.15.1-1", "MQTT-4.12.0-5")
@pytest.mark.parametrize(
    ("bytes", "code"),
    [
        pytest.param(b"\xf1\0", 0x81, id="flags"),
        pytest.param(packet(0xF0, b"\x01\0"), 0x81, id="a reason that is none"),
        pytest.param(auth(AGAIN, ()), 0x82, id="no method"),
        pytest.param(auth(AGAIN, _with(b"", "scent")), 0x82, id="another method"),
        pytest.param(auth(BEGIN, _with(b"")), 0x82, id="a reason of servers"),
    ],
)
def test_an_invalid_auth_closes_the_connection(dial: Dial, name: str, bytes: bytes, code: int) -> None:
    client = _admitted(dial(), name)
    client.send(bytes)
    assert client.is_disconnected(code)
