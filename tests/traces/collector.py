"""A collector of spans (OTLP over HTTP), as a stand-in."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collected", "Collector", "collector"]


@dataclass(frozen=True)
class Collected:
    """A span. `service`: of the process that sent it, and its name. Times are nanoseconds since 1970."""

    service: tuple[str, str]
    name: str
    trace: str
    id: str
    parent: str
    started: int
    ended: int
    attributes: dict[str, str | int]


class Collector:
    """The spans that came. `url`: where processes send them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Collected] = []

    def take(self, body: bytes) -> None:
        """Takes a request."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            of = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    values = {
                        each.key: each.value.string_value or each.value.int_value for each in span.attributes
                    }
                    self.spans.append(
                        Collected(
                            (of["service.name"], of["service.instance.id"]),
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano,
                            span.end_time_unix_nano,
                            values,
                        )
                    )


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free port of this host."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Collector(f"http://127.0.0.1:{server.server_port}/v1/traces")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
