"""Many concurrent connections, each of which sends a script of packets and shuts down.

The last packet is a PINGREQ: its answer shows that the gateway has read everything. Where a fault makes the
gateway wait for more bytes, the connection shuts down after a time of silence. In every case the gateway must
then close the connection. A long time until that close reveals a hang.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Final

_READ: Final = 65_536
_PINGREQ, _PINGRESP = b"\xc0\x00", b"\xd0\x00"
_SILENCE_S: Final = 2.0
_AT_ONCE: Final = 256
_SOURCES: Final = [f"127.0.0.{host}" for host in range(2, 250)]
"""One address does not have enough ports, because the kernel keeps a closed connection's port for some
time."""


@dataclass
class Attack:
    """The result. `packets`: the number of sent packets. `answered`: connections whose PINGREQ was
    answered. `closed`: connections that the gateway closed by itself. `slowest_s`: the longest time from
    the shutdown to the gateway's close."""

    connections: int = 0
    packets: int = 0
    answered: int = 0
    closed: int = 0
    slowest_s: float = 0.0


@dataclass
class _Connection:
    socket: socket.socket
    unsent: bytes
    received: bytes = b""
    active_at: float = field(default_factory=time.monotonic)
    shut_down_at: float | None = None

    def serve(self) -> bool:
        """Sends and reads what is possible. Returns whether the connection is still open."""
        try:
            if self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
                self.active_at = time.monotonic()
            while data := self.socket.recv(_READ):
                self.received = (self.received + data)[-len(_PINGRESP) :]
                self.active_at = time.monotonic()
        except BlockingIOError:
            return True
        except OSError:  # A reset: the gateway did not read the bytes after a fault.
            pass
        return False

    def shut_down(self) -> None:
        self.shut_down_at = time.monotonic()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    @property
    def is_answered(self) -> bool:
        return not self.unsent and self.received == _PINGRESP


def run_attack(address: tuple[str, int], scripts: Iterable[list[bytes]], patience_s: float) -> Attack:
    """Sends all scripts. Fails if a connection is still open `patience_s` after its shutdown."""
    attack = Attack()
    waiting = iter(scripts)
    sources = cycle(_SOURCES)
    with selectors.DefaultSelector() as selector:
        while True:
            connections = [key.data for key in selector.get_map().values()]
            for script in islice(waiting, _AT_ONCE - len(connections)):
                attack.connections += 1
                attack.packets += len(script)
                _open(selector, address, next(sources), b"".join(script))
            if not selector.get_map():
                return attack
            for key, _ in selector.select(0.1):
                if not key.data.serve():
                    _close(selector, key.data, attack)
                elif not key.data.unsent:
                    selector.modify(key.fd, selectors.EVENT_READ, key.data)
            for connection in connections:
                _check(connection, attack, patience_s)


def _open(selector: selectors.BaseSelector, address: tuple[str, int], source: str, data: bytes) -> None:
    opened = socket.socket()
    opened.bind((source, 0))
    opened.setblocking(False)
    with suppress(BlockingIOError):
        opened.connect(address)
    selector.register(
        opened, selectors.EVENT_READ | selectors.EVENT_WRITE, _Connection(opened, data + _PINGREQ)
    )


def _close(selector: selectors.BaseSelector, connection: _Connection, attack: Attack) -> None:
    selector.unregister(connection.socket)
    connection.socket.close()
    if connection.shut_down_at is None:
        attack.closed += 1
    else:
        attack.slowest_s = max(attack.slowest_s, time.monotonic() - connection.shut_down_at)


def _check(connection: _Connection, attack: Attack, patience_s: float) -> None:
    """Shuts the connection down when it is done, and then checks how long the gateway takes to close it."""
    now = time.monotonic()
    if connection.shut_down_at is not None:
        waited = now - connection.shut_down_at
        assert waited < patience_s or connection.socket.fileno() < 0, f"not closed after {waited:.0f} s"
    elif connection.is_answered:
        attack.answered += 1
        connection.shut_down()
    elif now - connection.active_at > _SILENCE_S:
        connection.shut_down()
