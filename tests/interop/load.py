"""A client that publishes all the time, while something happens to the network."""

from __future__ import annotations

from collections.abc import Sequence

from tests import waiting
from tests.background import Background
from tests.interop.clients import PATIENCE_S
from tests.interop.peer import Peer

PAUSE_S = 0.002
"""Between two messages."""


class Load(Background):
    """A publisher that goes on, without waiting for acknowledgements, until it is stopped. On one topic of
    each place, in turns; payloads are the name and a number."""

    def __init__(self, peer: Peer, name: str, qos: int, places: Sequence[str]) -> None:
        super().__init__()
        self.sent: list[tuple[int, bytes]] = []
        """Packet id and payload. It only grows, so that others may read while the publisher goes on."""
        self._answered: set[int] = set()
        peer.client.on_publish = lambda _client, _userdata, mid, *_: self._answered.add(mid)
        self._peer = peer
        self._name = name
        self._qos = qos
        self._places = places

    def acknowledged(self) -> set[bytes]:
        """The messages that the broker has answered for."""
        return {payload for mid, payload in tuple(self.sent) if mid in self._answered}

    def await_acknowledged(self, count: int) -> None:
        """Returns once it is so many."""
        waiting.until(
            lambda: len(self._answered) >= count,
            f"{count} acknowledgements",
            PATIENCE_S,
            found=lambda: len(self._answered),
        )

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(PAUSE_S):
            topic = f"{self._places[number % len(self._places)]}/load/{self._name}"
            payload = f"{self._name} {number}".encode()
            self.sent.append((self._peer.client.publish(topic, payload, self._qos).mid, payload))
            number += 1
