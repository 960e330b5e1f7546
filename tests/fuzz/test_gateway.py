"""A gateway among strangers: nothing crashes, hangs or grows, and its clients notice nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.assault import Attack, assail
from tests.fuzz.captures import captured
from tests.fuzz.packets import script
from tests.interop.clients import PATIENCE_S
from tests.interop.house import House
from tests.interop.peer import Peer, connected

SHORT, LONG = 40_000, 1_000_000
"""Packets."""
MOST_GROWTH = 16 * 2**20
"""Bytes of a process in the second half: what it keeps for strangers is bounded, and there by then."""
HANG_S = 20.0
"""What takes longer is not slow but stuck."""


class Beside:
    """A pair of clients of the same gateway, QoS 2, for as long as the attack lasts."""

    def __init__(self, publisher: Peer, subscriber: Peer) -> None:
        self.sent = 0
        self._publisher = publisher
        self.subscriber = subscriber
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self.subscriber.subscribe(("home/kitchen/beside", 2))
        self._thread.start()

    def stop(self) -> None:
        """Returns when all that was sent has come."""
        self._ending.set()
        self._thread.join(PATIENCE_S)
        self.subscriber.await_received(self.sent)

    def _run(self) -> None:
        while not self._ending.wait(0.01):
            self._publisher.client.publish("home/kitchen/beside", str(self.sent).encode(), 2)
            self.sent += 1


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, with_mosquitto: None) -> Iterator[House]:
    """One of its own: it is measured. Sessions of strangers are kept for a second, and not for an hour."""
    house = House(tmp_path_factory.mktemp("fuzz"), {"session_expiry": 1})
    yield house
    house.close()


@pytest.fixture(scope="module")
def captures(house: House) -> list[list[bytes]]:
    return captured(house, "two")


def scripts(seed: int, captures: Sequence[Sequence[bytes]], packets: int) -> Iterator[list[bytes]]:
    """Connections' worth of packets, until there are so many."""
    random = Random(seed)
    while packets > 0:
        one = script(random, captures)
        packets -= len(one)
        yield one


def resident(house: House) -> dict[str, int]:
    return {name: process.memory_info().rss for name, process in house.processes().items()}


@pytest.mark.timeout(1_800)
def test_broken_captures(house: House, captures: list[list[bytes]], is_long: bool) -> None:
    place = house.place("one", "")
    address = (place.host, place.port)
    before = house.processes()
    with (
        connected(house.place("one", "beside-publisher")) as publisher,
        connected(house.place("one", "beside-subscriber")) as subscriber,
    ):
        beside = Beside(publisher, subscriber)
        beside.start()
        half = (LONG if is_long else SHORT) // 2
        attacks = [assail(address, scripts(1, captures, half), HANG_S)]
        then = resident(house)
        attacks.append(assail(address, scripts(2, captures, half), HANG_S))
        beside.stop()
    growth = {name: size - then[name] for name, size in resident(house).items()}
    _tell(attacks, then, growth, beside)
    assert house.processes() == before, "nothing has ended"
    assert [message.payload for message in subscriber.received] == [
        str(n).encode() for n in range(beside.sent)
    ]
    assert subscriber.is_session_present == publisher.is_session_present == [False], "nobody was cut off"
    assert {name: size for name, size in growth.items() if size > MOST_GROWTH} == {}
    assert [word for word in ("Traceback", "panicked") if word in house.log("one")] == []


def _tell(attacks: list[Attack], then: dict[str, int], growth: dict[str, int], beside: Beside) -> None:
    """For `pytest -s`."""
    for attack in attacks:
        print(attack)
    print({name: f"{size >> 20} MiB, then {growth[name] / 2**20:+.1f}" for name, size in then.items()})
    print(f"beside: {beside.sent} messages")


@given(data=st.lists(st.binary(max_size=300), max_size=4))
def test_any_bytes(house: House, data: list[bytes]) -> None:
    place = house.place("one", "")
    assail((place.host, place.port), [data], HANG_S)
