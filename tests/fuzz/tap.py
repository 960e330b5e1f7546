"""A relay between clients and a gateway that records the bytes of the clients."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final, Self

_READ: Final = 65_536


class Tap:
    """Listens on `port` on loopback. `streams`: the bytes of each client connection."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.streams: list[bytearray] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Returns when all clients have disconnected."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # The socket was closed.
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                stream = bytearray()
                self.streams.append(stream)
                self._start(self._pass, client, server, stream)
                self._start(self._pass, server, client, bytearray())

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket, stream: bytearray) -> None:
        """Closes the socket that it reads from. The other direction does the same with the other socket."""
        with source, suppress(OSError):
            while data := source.recv(_READ):
                stream += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
