"""A broker with the protocol of NATS whose treatment of each message is chosen by the test."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from typing import TypeAlias

Behaviour: TypeAlias = Callable[[int, bytes], list[bytes]]
"""The payloads that the broker sends for the message with this number."""


class _Connection(socketserver.StreamRequestHandler):
    server: _Broker

    def handle(self) -> None:
        self.wfile.write(b"INFO {}\r\n")
        for line in self.rfile:
            verb, *fields = line.split()
            if verb == b"SUB":
                self.server.subscribers.append((fields[0], self.wfile))
            elif verb == b"PING":
                self.wfile.write(b"PONG\r\n")
            elif verb == b"PUB":
                payload = self.rfile.read(int(fields[1]) + 2)[:-2]
                self.server.publish(fields[0], payload)


class _Broker(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.subscribers: list[tuple[bytes, BufferedIOBase]] = []
        self._behaviour = behaviour
        self._count = 0
        self._lock = threading.Lock()

    def publish(self, subject: bytes, payload: bytes) -> None:
        with self._lock:
            for one in self._behaviour(self._count, payload):
                for wanted, to in self.subscribers:
                    if wanted == subject or (wanted.endswith(b".>") and subject.startswith(wanted[:-1])):
                        to.write(b"MSG %b 1 %d\r\n%b\r\n" % (subject, len(one), one))
            self._count += 1


@contextmanager
def broker_with(behaviour: Behaviour) -> Iterator[str]:
    """Runs a broker, and yields its address."""
    with _Broker(behaviour) as broker:
        thread = threading.Thread(target=broker.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{broker.server_address[1]}"
        finally:
            broker.shutdown()
            thread.join()
