"""A minimal WebSocket client (RFC 6455): it sends bytes in frames, and reads the bytes of received frames."""

from __future__ import annotations

import os
import socket
from typing import BinaryIO

CONTINUATION, TEXT, BINARY, CLOSE = 0, 1, 2, 8
KEY = "MDEyMzQ1Njc4OWFiY2RlZg=="


class Framed:
    """A byte stream over a WebSocket, after the handshake."""

    def __init__(self, connection: socket.socket, *, path: str = "/mqtt", subprotocols: str = "mqtt") -> None:
        self.below = connection
        self._file: BinaryIO = connection.makefile("rb")
        self._rest = b""
        offer = f"Sec-WebSocket-Protocol: {subprotocols}\r\n" if subprotocols else ""
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{offer}\r\n".encode()
        )
        self.status = int(self._file.readline().split()[1])
        lines = (line.decode().rstrip().partition(": ") for line in iter(self._file.readline, b"\r\n"))
        self.headers = {name.lower(): value for name, _, value in lines}

    def sendall(self, data: bytes) -> None:
        """Sends one frame with all of the data."""
        self.below.sendall(frame(data))

    def recv(self, count: int) -> bytes:
        """Bytes of binary frames. Returns none if the server has closed the connection."""
        while not self._rest:
            head = self._file.read(2)
            if len(head) < 2 or head[0] & 0xF == CLOSE:
                return b""
            length = head[1]
            if length >= 126:
                length = int.from_bytes(self._file.read(2 if length == 126 else 8), "big")
            self._rest = self._file.read(length)
        data, self._rest = self._rest[:count], self._rest[count:]
        return data

    def close(self) -> None:
        """Closes the connection."""
        self._file.close()
        self.below.close()


def frame(data: bytes, opcode: int = BINARY, *, is_final: bool = True, declares: int | None = None) -> bytes:
    """One frame, masked like a client's. `declares`: the length in its header, if it is not the true one."""
    length = len(data) if declares is None else declares
    mask = os.urandom(4)
    if length < 126:
        head = bytes([0x80 | length])
    elif length < 1 << 16:
        head = bytes([0x80 | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([0x80 | 127]) + length.to_bytes(8, "big")
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    return bytes([opcode | is_final << 7]) + head + mask + masked
