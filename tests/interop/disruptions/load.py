"""A client that publishes all the time, while something happens to the network."""

from __future__ import annotations

from collections.abc import Sequence

from tests import waiting
from tests.background import Background
from tests.interop.clients import PATIENCE_S
from tests.interop.peer import Peer

PAUSE_S = 0.002
"""The pause between two messages."""


class Load(Background):
    """A publisher that does not wait for acknowledgements and publishes until it is stopped. It publishes
    on one topic of each place in turn. Payloads are its name and a number."""

    def __init__(self, peer: Peer, name: str, qos: int, places: Sequence[str]) -> None:
        super().__init__()
        self.sent: list[tuple[int, bytes]] = []
        """Packet id and payload. The list only grows, so other threads may read it while the publisher
        runs."""
        self._answered: set[int] = set()
        peer.client.on_publish = lambda _client, _userdata, mid, *_: self._answered.add(mid)
        self._peer = peer
        self._name = name
        self._qos = qos
        self._places = places

    def acknowledged(self) -> set[bytes]:
        """The messages that the broker has acknowledged."""
        return {payload for mid, payload in tuple(self.sent) if mid in self._answered}

    def await_acknowledged(self, count: int) -> None:
        """Returns when `count` messages are acknowledged."""
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
