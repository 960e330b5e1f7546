"""A program that guesses passwords: `guesser PORT RATE KIND`, at a listener with the PROXY protocol.

RATE: guesses a second; 0: as many as it can. It does not wait for answers, and has 1,000 guesses open at
most. KIND: `one` guesses one name from one address, `names` many names from one address, `many` many names
from 200 addresses. Twice a second it writes a JSON object on one line: `{"guesses", "codes": {reason
code: how many}}`; a connection that ended without an answer is under `none`. It ends with its input.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.gateway.transports.test_proxy_protocol import header
from tests.gateway_native.wire import packet, text

TOGETHER = 64
MOST_OPEN = 1_000
EVERY_S = 0.5
PATIENCE_S = 30.0
GUESSER = "203.0.113.9"

KINDS: dict[str, Callable[[int], tuple[str, str]]] = {
    "one": lambda n: (GUESSER, "mallory"),
    "names": lambda n: (GUESSER, f"n{n}"),
    "many": lambda n: (f"10.0.0.{n % 200}", f"n{n}"),
}


def connect_as(source: str, client_id: str, name: str, password: str) -> bytes:
    """PROXY header and CONNECT of MQTT 5."""
    body = text("MQTT") + b"\x05\xc2\x00\x00\x00" + text(client_id) + text(name) + text(password)
    return header(source) + packet(0x10, body)


class Guesses:
    """Those that are open, and the answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        self.made = 0
        self.codes: Counter[str] = Counter()

    def make(self, guess: bytes) -> None:
        """One more. Waits where as many are open as may be."""
        while len(self._open) >= MOST_OPEN:
            self.read(PATIENCE_S)
        connection = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        connection.sendall(guess)
        self._open[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.EPOLLIN)
        self.made += 1

    def read(self, timeout_s: float = 0.0) -> None:
        """Takes the answers that are there."""
        for number, _ in self._poll.poll(timeout_s):
            connection = self._open.pop(number)
            try:
                answer = connection.recv(64)
            except OSError:
                answer = b""
            self.codes[f"{answer[3]:#04x}" if len(answer) > 3 else "none"] += 1
            connection.close()


def main() -> None:
    """See the module."""
    port, rate, kind = int(sys.argv[1]), float(sys.argv[2]), KINDS[sys.argv[3]]
    guesses = Guesses(port)
    began = told = time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(TOGETHER):
            guesses.make(connect_as(*_of(kind(guesses.made), guesses.made)))
        guesses.read()
        now = time.monotonic()
        if now >= told + EVERY_S:
            print(json.dumps({"guesses": guesses.made, "codes": guesses.codes}), flush=True)
            told = now
        if rate:
            time.sleep(max(0.0, began + guesses.made / rate - now))


def _of(who: tuple[str, str], number: int) -> tuple[str, str, str, str]:
    return who[0], f"guess-{number}", who[1], "guess"


if __name__ == "__main__":
    main()
