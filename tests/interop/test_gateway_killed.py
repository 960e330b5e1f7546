"""`kill -9` of a gateway under load: its clients resume their sessions at the other, and nothing is lost."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from tests import waiting
from tests.interop.clients import PATIENCE_S
from tests.interop.house import PLACES, House
from tests.interop.peer import Peer, connected

BEFORE = 300
"""Messages that are acknowledged before the gateway is killed, at least; and as many again after that."""


class Load:
    """A publisher that goes on, without waiting for acknowledgements, until it is stopped. On one topic of
    each owner, in turns; payloads are numbers."""

    def __init__(self, peer: Peer, name: str, qos: int) -> None:
        self.sent: list[tuple[int, bytes]] = []
        """Packet id and payload. It only grows, so that others may read while the publisher goes on."""
        self._answered: set[int] = set()
        peer.client.on_publish = lambda _client, _userdata, mid, *_: self._answered.add(mid)
        self._peer = peer
        self._name = name
        self._qos = qos
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def acknowledged(self) -> set[bytes]:
        """The messages that the broker has answered for."""
        return {payload for mid, payload in tuple(self.sent) if mid in self._answered}

    def await_acknowledged(self, count: int) -> None:
        """Returns once it is so many."""
        waiting.until(
            lambda: len(self.acknowledged()) >= count,
            f"{count} acknowledgements",
            PATIENCE_S,
            found=lambda: len(self.acknowledged()),
        )

    def stop(self) -> None:
        """No more are sent."""
        self._ending.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        number = 0
        while not self._ending.wait(0.002):
            topic = f"{PLACES[number % len(PLACES)]}/load/{self._name}"
            payload = f"{self._name} {number}".encode()
            self.sent.append((self._peer.client.publish(topic, payload, self._qos).mid, payload))
            number += 1


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_resumes_at_the_other_gateway_and_nothing_is_lost(house: House, qos: int) -> None:
    with (
        connected(house.place("one", f"kept-{qos}", kept=True)) as kept,
        connected(house.place("one", f"here-{qos}")) as here,
        connected(house.place("two", f"there-{qos}")) as there,
        ExitStack() as running,
    ):
        kept.subscribe(*((f"{place}/load/+", qos) for place in PLACES))
        loads = [
            running.enter_context(Load(peer, f"{name}{qos}", qos))
            for peer, name in ((here, "here"), (there, "there"))
        ]
        for load in loads:
            load.await_acknowledged(BEFORE)
        kept.turn_to(house.place("two", f"kept-{qos}", kept=True))
        house.kill("one")
        loads[1].await_acknowledged(len(loads[1].acknowledged()) + BEFORE)
        kept.await_connections(2)
        loads[1].await_acknowledged(len(loads[1].acknowledged()) + BEFORE)
        for load in loads:
            load.stop()
        loads[1].await_acknowledged(len(loads[1].sent))
        owed = set().union(*(load.acknowledged() for load in loads))
        waiting.until(
            lambda: not owed - kept.payloads(),
            "all that was acknowledged has come",
            PATIENCE_S,
            found=lambda: sorted(owed - kept.payloads())[:5],
        )
    assert kept.is_session_present == [False, True]
