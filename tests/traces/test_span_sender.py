"""Spans as OpenTelemetry has them, in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hbroker._native import Config, Span
from hbroker.errors import ConfigError
from hbroker.runtime.span_sender import SpanSender, span_id
from hbroker.runtime.traces import span_sender

OFFSET_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Fake:
    """What `hbroker._native.Span` has."""

    kind: str
    trace: bytes = bytes(range(1, 17))
    parent: bytes = bytes(range(1, 9))
    publisher: int = 7
    sequence: int = 9
    topic: str = "a/b"
    qos: int = 1
    is_from_gateway: bool = False
    started: int = 5
    ended: int = 8
    peer: str | None = None


class Source:
    """Gives spans once."""

    def __init__(self, *spans: Fake, dropped: int = 0) -> None:
        self._spans, self._dropped = list(spans), dropped

    def take_spans(self) -> tuple[list[Span], int]:
        spans, self._spans = self._spans, []
        return cast("list[Span]", spans), self._dropped


def sent(*spans: Fake, dropped: int = 0) -> tuple[ReadableSpan, ...]:
    exporter = InMemorySpanExporter()
    sender = SpanSender(Source(*spans, dropped=dropped), "node", "root", "", OFFSET_US, exporter)
    sender.stop()
    return exporter.get_finished_spans()


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def test_processes_that_know_nothing_of_each_other_make_one_tree() -> None:
    message = Fake("owner", is_from_gateway=True)
    (gateway,) = sent(replace(message, kind="gateway", is_from_gateway=False))
    owner, *deliveries = sent(message, replace(message, kind="delivery"), replace(message, kind="delivery"))
    (client,) = sent(replace(message, kind="client"))
    assert parent_of(gateway) == int.from_bytes(message.parent, "big")
    assert parent_of(owner) == id_of(gateway)
    assert {parent_of(each) for each in (*deliveries, client)} == {id_of(owner)}
    everything = (gateway, owner, *deliveries, client)
    assert len({id_of(each) for each in everything}) == 5
    assert {each.context.trace_id for each in everything if each.context} == {
        int.from_bytes(message.trace, "big")
    }


def test_two_messages_of_one_publisher_span_have_spans_of_their_own() -> None:
    one = Fake("owner")
    messages = [one, replace(one, sequence=10), replace(one, publisher=8), replace(one, parent=bytes(8))]
    ids = {span_id(cast("Span", each), kind) for each in messages for kind in ("owner", "gateway")}
    assert len(ids) == 8
    assert 0 not in ids


def test_times_and_attributes() -> None:
    (span,) = sent(Fake("delivery", peer="192.0.2.7:1"))
    assert (span.name, span.start_time, span.end_time) == (
        "send a/b",
        (OFFSET_US + 5) * 1000,
        (OFFSET_US + 8) * 1000,
    )
    assert span.attributes is not None
    assert span.attributes["network.peer.address"] == "192.0.2.7:1"
    assert span.resource.attributes["service.name"] == "hbroker-node"
    assert span.resource.attributes["service.instance.id"] == "root"


def test_what_was_dropped_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert sent(dropped=3) == ()
    assert "spans_dropped" in caplog.text


def test_without_an_endpoint_nothing_is_loaded_and_without_libraries_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = cast(Config, Source())
    assert span_sender(config, "node", "root", "", 0) is None
    monkeypatch.setitem(__import__("sys").modules, "hbroker.runtime.span_sender", None)
    with pytest.raises(ConfigError, match="the extra `traces` is not installed"):
        span_sender(config, "node", "root", "http://127.0.0.1:1/v1/traces", 0)
