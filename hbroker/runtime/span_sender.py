"""Sends the spans of messages to an OpenTelemetry collector (OTLP over HTTP; docs/traces.md): the extra
`traces`.

A message has spans if it carries a sampled `traceparent` (W3C Trace Context), as a user property. No process
knows all of a message's spans, and none changes the property. So the ids of spans that others are below are
derived from what each process knows of the message:

    the publisher's span, as `traceparent` says
        gateway     the first 8 bytes of SHA-256 (trace, parent, publisher, sequence number, "gateway")
            owner       the same with "owner"; below the publisher's span if no gateway has sent the message
                delivery    random: nothing is below it
                client      random; at the gateway of the subscriber
"""

from __future__ import annotations

import asyncio
import struct
from hashlib import sha256
from typing import Final, Protocol

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    set_span_in_context,
)

from hbroker._native import Span
from hbroker.runtime.logs import EventLog

__all__ = ["EVERY_S", "SpanSender", "SpanSource", "span_id"]

EVERY_S: Final = 1.0
"""Seconds between two looks for spans."""
_OPERATIONS: Final = {
    "gateway": ("publish", SpanKind.SERVER),
    "owner": ("process", SpanKind.INTERNAL),
    "delivery": ("send", SpanKind.PRODUCER),
    "client": ("send", SpanKind.PRODUCER),
}
"""The operation of each kind of span, as OpenTelemetry's conventions for messaging call it, and its kind."""
_DERIVED: Final = ("gateway", "owner")


class SpanSource(Protocol):
    """The native configuration of a process (`hbroker._native.Config`)."""

    def take_spans(self) -> tuple[list[Span], int]:
        """The spans since the last call, and how many were dropped."""


def span_id(span: Span, kind: str) -> int:
    """The id of a span of this kind of the same message."""
    message = struct.pack(">QQ", span.publisher, span.sequence)
    digest = sha256(b"".join((span.trace, span.parent, message, kind.encode()))).digest()
    return int.from_bytes(digest[:8], "big") or 1


class SpanSender:
    """Sends the spans of one process. `kind`: `node` or `gateway`. `name`: of it. `unix_offset_us`: the wall
    clock less the clock of the native core. `exporter`: None: to the collector at `endpoint`, an URL as
    `http://127.0.0.1:4318/v1/traces`; headers, timeouts and certificates are as OpenTelemetry's environment
    variables say (`OTEL_EXPORTER_OTLP_HEADERS`)."""

    def __init__(
        self,
        source: SpanSource,
        kind: str,
        name: str,
        endpoint: str,
        unix_offset_us: int,
        exporter: SpanExporter | None = None,
    ) -> None:
        self._source = source
        self._unix_offset_us = unix_offset_us
        self._ids = _Ids()
        resource = Resource.create({"service.name": f"hbroker-{kind}", "service.instance.id": name})
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        exporter = exporter or OTLPSpanExporter(endpoint=endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("hbroker")
        self._log = EventLog("traces")

    async def run(self) -> None:
        """Sends spans until it is cancelled."""
        while True:
            self.send()
            await asyncio.sleep(EVERY_S)

    def send(self) -> None:
        """Gives the spans of the last moments to the sender, which has a thread of its own."""
        spans, dropped = self._source.take_spans()
        for span in spans:
            self._record(span)
        if dropped:
            self._log.warning("spans_dropped", count=dropped)

    def stop(self) -> None:
        """Sends what is left, for a few seconds at most."""
        self.send()
        self._provider.shutdown()

    def _record(self, span: Span) -> None:
        trace = int.from_bytes(span.trace, "big")
        sampled = TraceFlags(TraceFlags.SAMPLED)
        parent = NonRecordingSpan(SpanContext(trace, _parent_of(span), is_remote=True, trace_flags=sampled))
        self._ids.next_span = span_id(span, span.kind) if span.kind in _DERIVED else None
        operation, kind = _OPERATIONS[span.kind]
        attributes: dict[str, str | int] = {
            "messaging.system": "hbroker",
            "messaging.operation.name": operation,
            "messaging.destination.name": span.topic,
            "messaging.message.id": f"{span.publisher:x}-{span.sequence}",
            "messaging.hbroker.qos": span.qos,
        }
        if span.peer is not None:
            attributes["network.peer.address"] = span.peer
        recorded = self._tracer.start_span(
            f"{operation} {span.topic}",
            context=set_span_in_context(parent),
            kind=kind,
            attributes=attributes,
            start_time=self._unix_ns(span.started),
        )
        recorded.end(self._unix_ns(span.ended))

    def _unix_ns(self, time: int) -> int:
        return (time + self._unix_offset_us) * 1000


class _Ids(IdGenerator):
    """Gives each span the id that is derived for it, or a random one."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.next_span: int | None = None

    def generate_span_id(self) -> int:
        """The id of the next span."""
        return self.next_span or self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        """Each span has a parent, and the trace of that."""
        raise AssertionError("a span has a parent")


def _parent_of(span: Span) -> int:
    """The id of the span above."""
    if span.kind in ("delivery", "client"):
        return span_id(span, "owner")
    if span.kind == "owner" and span.is_from_gateway:
        return span_id(span, "gateway")
    return int.from_bytes(span.parent, "big")
