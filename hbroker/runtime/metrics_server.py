"""Serves the metrics of one process at `/metrics`, for Prometheus: of a node, or of a gateway.

One thread answers one scrape at a time. A scraper that is slow or silent delays the next by `TIMEOUT_S` at
most, and nothing grows. The metrics are read in the event loop of the process, which they are of.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

from hbroker.addresses import Address

__all__ = ["TIMEOUT_S", "MetricsServer"]

TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.1
_PLAIN: Final = "text/plain; charset=utf-8"


class MetricsServer:
    """Serves what `render(accept)` returns, in the event loop in which it was made: the text, and its media
    type. `accept`: what the scraper reads (RFC 9110 §12.5.1). Raises OSError if the address cannot be
    bound."""

    def __init__(self, address: Address, render: Callable[[str], tuple[bytes, str]]) -> None:
        loop = asyncio.get_running_loop()

        async def rendered(accept: str) -> tuple[bytes, str]:
            return render(accept)

        def read(accept: str) -> tuple[bytes, str]:
            return asyncio.run_coroutine_threadsafe(rendered(accept), loop).result(TIMEOUT_S)

        handler = type("Handler", (_Handler,), {"read": staticmethod(read)})

        class Server(_Server):
            address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

        self._server = Server(address, handler)
        threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True
        ).start()

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), port

    async def stop(self) -> None:
        """Ends it. A scrape that is under way is finished before."""
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()


class _Server(HTTPServer):
    def process_request(self, request: Any, client_address: Any) -> None:
        """Ends the connection when its time is over, however little and often it sends."""
        deadline = threading.Timer(TIMEOUT_S, _break, [request])
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request(request, client_address)
        finally:
            deadline.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off is nothing to tell."""


def _break(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request, and closes the connection."""

    read: Callable[[str], tuple[bytes, str]]

    def do_GET(self) -> None:
        """Answers GET."""
        if self.path.partition("?")[0] != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, b"only /metrics is here\n", _PLAIN)
            return
        try:
            text, media_type = self.read(self.headers.get("Accept", ""))
        except Exception as error:  # The loop ends, or the metrics have a defect: the process goes on.
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error!r}\n".encode(), _PLAIN)
            return
        self._answer(HTTPStatus.OK, text, media_type)

    def log_message(self, *_: object) -> None:
        """Scrapes are not logged."""

    def version_string(self) -> str:
        """The value of `Server`."""
        return "hbroker"

    def _answer(self, status: HTTPStatus, text: bytes, media_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
