"""Wills (MQTT 5 §3.1.2.5, §3.1.3.2.2)."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.conformance.client import Client, P, Properties, Will, publish
from tests.conformance.holds import holds
from tests.gateway_native.wire import DISCONNECT

Dial = Callable[[], Client]
KEPT = (P.SESSION_EXPIRY, 600)
RETAIN_AS_PUBLISHED = 0x08


@holds("MQTT-3.1.2-7", "MQTT-3.1.2-8", "MQTT-3.1.2-10", "MQTT-3.1.2-14")
def test_a_will_is_published_once_when_the_connection_is_lost(dial: Dial, other: Client, name: str) -> None:
    other.subscribe(f"{name}/#", options=2 | RETAIN_AS_PUBLISHED)
    properties: Properties = ((P.CONTENT_TYPE, "w"), (P.USER, ("b", "1")), (P.USER, ("a", "2")))
    device = dial().opened(f"{name}d", will=Will(f"{name}/will", b"gone", 2, False, properties))
    device.socket.close()
    will = other.take()
    assert (will.topic, will.payload, will.qos, will.retain) == (f"{name}/will", b"gone", 2, False)
    assert will.properties == properties
    dial().opened(f"{name}d", clean=False).leave()
    other.send(publish(f"{name}/end"))
    assert other.take().topic == f"{name}/end"


@holds("MQTT-3.1.2-15")
def test_a_will_can_be_retained(dial: Dial, other: Client, name: str) -> None:
    other.subscribe(f"{name}/#", options=1 | RETAIN_AS_PUBLISHED)
    dial().opened(f"{name}d", will=Will(f"{name}/will", retain=True)).socket.close()
    assert other.take().retain
    dial().opened(f"{name}e", will=Will(f"{name}/plain")).socket.close()
    assert not other.take().retain
    late = dial().opened(f"{name}l")
    late.subscribe(f"{name}/#")
    message = late.take()
    assert (message.topic, message.retain) == (f"{name}/will", True)
    late.ping()


@holds("MQTT-3.14.4-3", "MQTT-3.1.2-10", "MQTT-3.1.2-8")
def test_disconnect_deletes_the_will_except_with_reason_code_4(dial: Dial, other: Client, name: str) -> None:
    other.subscribe(f"{name}/#")
    dial().opened(f"{name}d", will=Will(f"{name}/will")).leave()
    other.send(publish(f"{name}/after"))
    assert other.take().topic == f"{name}/after"
    dial().opened(f"{name}d", will=Will(f"{name}/will")).leave(0x04)
    assert other.take().topic == f"{name}/will"


@holds("MQTT-3.1.3-9", "MQTT-3.1.2-8")
def test_the_will_of_a_client_that_reconnects_within_the_delay_is_not_published(
    dial: Dial, other: Client, name: str
) -> None:
    other.subscribe(f"{name}/#")
    delayed = Will(f"{name}/will", properties=((P.WILL_DELAY, 1),))
    dial().opened(name, properties=(KEPT,), will=delayed).socket.close()
    back = dial().opened(name, clean=False, properties=(KEPT,))
    # The will of another client, with the same delay, is published. It is the only one.
    dial().opened(
        f"{name}e", properties=(KEPT,), will=Will(f"{name}/other", properties=delayed.properties)
    ).socket.close()
    began = time.monotonic()
    assert other.take().topic == f"{name}/other"
    assert time.monotonic() - began > 0.8
    back.ping()


@holds("MQTT-3.1.2-8")
def test_a_will_is_published_at_the_end_of_the_session_before_its_delay(
    dial: Dial, other: Client, name: str
) -> None:
    other.subscribe(f"{name}/#")
    delayed = Will(f"{name}/will", properties=((P.WILL_DELAY, 600),))
    dial().opened(name, will=delayed).socket.close()
    assert other.take().topic == f"{name}/will"


@holds("MQTT-3.1.2-8")
def test_the_will_of_a_connection_that_is_taken_over_is_published(
    dial: Dial, other: Client, name: str
) -> None:
    other.subscribe(f"{name}/#")
    first = dial().opened(name, properties=(KEPT,), will=Will(f"{name}/will"))
    dial().opened(name, clean=False, properties=(KEPT,))
    assert first.answer(DISCONNECT).code == 0x8E
    assert other.take().topic == f"{name}/will"
