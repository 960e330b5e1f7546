"""A program that guesses passwords: `guesser PORT RATE KIND`, at a listener with the PROXY protocol.

RATE: guesses per second, or 0 for as many as it can. Each guess is a connection of its own with one CONNECT.
The program does not wait for answers, and has at most 1,000 guesses open. KIND: `one` guesses one name from
one address, `names` many names from one address, `many` many names from 200 addresses. Twice a second it
writes a JSON object on one line: `{"guesses", "codes": {reason code: how many}}`. A connection that ended
without an answer counts as `none`. The program ends with its input.

A guess should cost little more than its connection costs the kernel, because the gateway shares the
processors. So packets are made of prepared pieces, and an answer that has arrived by its turn needs no poll.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import cache

from tests.gateway.transports.test_proxy_protocol import header
from tests.gateway_native.wire import packet, text

TOGETHER = 64
MOST_OPEN = 1_000
READ_AFTER = 256
"""The answer to a guess is read when this many more guesses were made."""
EVERY_S = 0.5
PATIENCE_S = 30.0
GUESSER = "203.0.113.9"
NUMBER = "0000000000"

KINDS: dict[str, Callable[[int], tuple[str, bool]]] = {
    "one": lambda n: (GUESSER, False),
    "names": lambda n: (GUESSER, True),
    "many": lambda n: (f"10.0.0.{n % 200}", True),
}
"""For each kind: the address of a guess, and whether its name is one of many."""


def connect_as(source: str, client_id: str, name: str, password: str) -> bytes:
    """A PROXY header, and a CONNECT of MQTT 5."""
    body = text("MQTT") + b"\x05\xc2\x00\x00\x00" + text(client_id) + text(name) + text(password)
    return header(source) + packet(0x10, body)


@cache
def pieces(source: str, has_many: bool) -> list[bytes]:
    """The bytes before, between and after the number of a guess."""
    name = f"n{NUMBER}" if has_many else "mallory"
    return connect_as(source, f"guess-{NUMBER}", name, "guess").split(NUMBER.encode())


class Guesses:
    """The open guesses, and the answers."""

    def __init__(self, port: int) -> None:
        self._address = "127.0.0.1", port
        self._young: deque[socket.socket] = deque()
        self._late: dict[int, socket.socket] = {}
        """Guesses whose answer had not arrived at its turn."""
        self._poll = select.epoll()
        self.made = 0
        self.codes: Counter[str] = Counter()

    def make(self, guess: bytes) -> None:
        """Makes one more guess. Waits while the maximum is open."""
        if len(self._young) >= READ_AFTER:
            self._look(self._young.popleft())
        while len(self._late) >= MOST_OPEN - READ_AFTER:
            self.read(PATIENCE_S)
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.connect(self._address)
        connection.send(guess)
        self._young.append(connection)
        self.made += 1

    def read(self, timeout_s: float = 0.0) -> None:
        """Reads the late answers that have arrived."""
        for number, _ in self._poll.poll(timeout_s):
            self._look(self._late.pop(number))

    def _look(self, connection: socket.socket) -> None:
        try:
            answer = connection.recv(64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._late[connection.fileno()] = connection
            self._poll.register(connection.fileno(), select.EPOLLIN)
            return
        except OSError:
            answer = b""
        connection.close()
        self.codes[f"{answer[3]:#04x}" if len(answer) > 3 else "none"] += 1


def main() -> None:
    """See the module."""
    port, rate, kind = int(sys.argv[1]), float(sys.argv[2]), KINDS[sys.argv[3]]
    guesses = Guesses(port)
    began = told = time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(TOGETHER):
            number = guesses.made
            guesses.make((b"%0*d" % (len(NUMBER), number)).join(pieces(*kind(number))))
        guesses.read()
        now = time.monotonic()
        if now >= told + EVERY_S:
            print(json.dumps({"guesses": guesses.made, "codes": guesses.codes}), flush=True)
            told = now
        if rate:
            time.sleep(max(0.0, began + guesses.made / rate - now))  # keeps to its rate


if __name__ == "__main__":
    main()
