"""Many connections at once, each of which sends what it was given and hangs up.

The last packet is a PINGREQ: with its answer everything was read. Where a fault makes the gateway wait for
more bytes none comes, and the connection hangs up after a silence. Then, whatever came before, the gateway
must close it too: how long that takes is what tells of a hang.
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
"""One address has not ports enough for those that the kernel keeps after their end."""


@dataclass
class Attack:
    """What came of it. `packets`: what was sent. `answered`: connections whose last packet was. `closed`:
    those that the gateway closed by itself. `slowest_s`: from hanging up to the gateway's close, at most."""

    connections: int = 0
    packets: int = 0
    answered: int = 0
    closed: int = 0
    slowest_s: float = 0.0


@dataclass
class _Connection:
    socket: socket.socket
    unsent: bytes
    heard: bytes = b""
    heard_at: float = field(default_factory=time.monotonic)
    hung_up_at: float | None = None

    def serve(self) -> bool:
        """Sends and reads what it can. Whether it is still open."""
        try:
            if self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
                self.heard_at = time.monotonic()
            while data := self.socket.recv(_READ):
                self.heard = (self.heard + data)[-len(_PINGRESP) :]
                self.heard_at = time.monotonic()
        except BlockingIOError:
            return True
        except OSError:  # reset: it did not read what came after a fault
            pass
        return False

    def hang_up(self) -> None:
        self.hung_up_at = time.monotonic()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    @property
    def is_answered(self) -> bool:
        return not self.unsent and self.heard == _PINGRESP


def assail(address: tuple[str, int], scripts: Iterable[list[bytes]], patience_s: float) -> Attack:
    """Sends all of them. Fails if a connection is still there `patience_s` after it hung up."""
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
                _tend(connection, attack, patience_s)


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
    if connection.hung_up_at is None:
        attack.closed += 1
    else:
        attack.slowest_s = max(attack.slowest_s, time.monotonic() - connection.hung_up_at)


def _tend(connection: _Connection, attack: Attack, patience_s: float) -> None:
    """Hangs up when it is time, and is patient with the gateway after that."""
    now = time.monotonic()
    if connection.hung_up_at is not None:
        waited = now - connection.hung_up_at
        assert waited < patience_s or connection.socket.fileno() < 0, f"not closed after {waited:.0f} s"
    elif connection.is_answered:
        attack.answered += 1
        connection.hang_up()
    elif now - connection.heard_at > _SILENCE_S:
        connection.hang_up()
