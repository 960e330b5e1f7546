"""Invalid arguments of a message or a subscription raise in the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbroker._native import Endpoint, Engine
from hbroker.errors import InvalidTopic, PayloadTooLarge
from hbroker.runtime.client.delivery import options_of
from hbroker.runtime.client.dispatcher import Dispatcher, config_of
from hbroker.runtime.client.identity import Identity
from hbroker.runtime.client.publication import Batch, encoded

LARGEST = 2_000


@pytest.fixture
def dispatcher() -> Dispatcher:
    """A dispatcher in virtual time."""
    identity = Identity.of(max_message_bytes=LARGEST)
    engine: Any = Engine(config_of(identity))
    endpoint: Endpoint = engine
    return Dispatcher(endpoint, ("127.0.0.1", 7700), identity, on_unblocked=lambda: None)


def publish(dispatcher: Dispatcher, topic: str, payload: bytes, properties: Any) -> object:
    return dispatcher.publish(topic, payload, properties)


def publish_many(dispatcher: Dispatcher, topic: str, payload: bytes, properties: Any) -> None:
    dispatcher.publish_many([(topic, payload)], properties, Batch(lambda: None))


@pytest.mark.parametrize("verb", [publish, publish_many])
@pytest.mark.parametrize(
    ("topic", "payload", "properties", "error"),
    [
        ("a/+", b"", {}, InvalidTopic),
        ("a", bytes(LARGEST + 1), {}, PayloadTooLarge),
        ("a", b"", {"user_properties": [("name", "x" * 70_000)]}, PayloadTooLarge),
        ("a", 5, {}, TypeError),
        ("a", None, {}, TypeError),
        ("a", [1, 2], {}, TypeError),
        ("a", b"", {"qos": 3}, ValueError),
        ("a", b"", {"qos": -1}, ValueError),
        ("a", b"", {"expiry_s": -1}, ValueError),
        ("a", b"", {"expiry_s": 1 << 32}, ValueError),
        ("a", b"", {"content_type": 1}, TypeError),
        ("a", b"", {"origin": 1}, TypeError),
        ("a", b"", {"published_at_us": 1}, TypeError),
    ],
)
def test_an_invalid_message_raises(
    dispatcher: Dispatcher,
    verb: Callable[[Dispatcher, str, Any, Any], object],
    topic: str,
    payload: Any,
    properties: Any,
    error: type[Exception],
) -> None:
    with pytest.raises(error) as raised:
        verb(dispatcher, topic, payload, properties)
    assert raised.type is error
    assert dispatcher.counters()["waiting"] == 0
    verb(dispatcher, "a", b"", {"qos": 2, "expiry_s": (1 << 32) - 1, "content_type": "text/plain"})
    assert dispatcher.counters()["waiting"] == 1


@pytest.mark.parametrize("payload", [b"21.5", "21.5", bytearray(b"21.5"), memoryview(b"21.5")])
def test_a_payload_is_bytes_or_text(payload: Any) -> None:
    assert encoded(payload) == b"21.5"


@pytest.mark.parametrize(
    "delivery",
    [
        {"qos": 3},
        {"qos": -1},
        {"overflow": "drop"},
        {"retain_handling": 3},
        {"queue_messages": -1},
        {"queue_messages": 1 << 32},
        {"queue_bytes": -1},
    ],
)
def test_an_invalid_subscription_option_raises(delivery: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        options_of(delivery)


def test_an_unknown_subscription_option_raises() -> None:
    wanted: Any = {"quality": 1}
    with pytest.raises(TypeError, match="quality"):
        options_of(wanted)
