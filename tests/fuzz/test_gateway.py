"""A gateway among strangers: nothing crashes, hangs or grows, and its clients notice nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from random import Random
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.background import Background
from tests.fuzz.assault import Attack, assail
from tests.fuzz.captures import captured
from tests.fuzz.packets import script
from tests.interop.clients import PATIENCE_S
from tests.interop.house import House, house_up
from tests.interop.peer import Peer, connected
from tests.memory import own_bytes
from tests.product.network import hbroker
from tests.waiting import until

SHORT, LONG = 40_000, 1_000_000
"""Packets."""
MOST_GROWTH = 16 * 2**20
"""Bytes of a process in the second half, between two times without strangers: nothing of theirs stays."""
HANG_S = 20.0
"""What takes longer is not slow but stuck."""
_BESIDE = "beside-"


class Beside(Background):
    """A pair of clients of the same gateway, QoS 2, for as long as the attack lasts."""

    def __init__(self, publisher: Peer, subscriber: Peer) -> None:
        super().__init__()
        self.sent = 0
        self._publisher = publisher
        self._subscriber = subscriber

    def __enter__(self) -> Self:
        self._subscriber.subscribe(("home/kitchen/beside", 2))
        return super().__enter__()

    def await_all(self) -> None:
        """Sends no more, and returns when all that was sent has come."""
        self.stop()
        self._subscriber.await_received(self.sent)

    def _run(self) -> None:
        while not self._is_over.wait(0.01):
            self._publisher.client.publish("home/kitchen/beside", str(self.sent).encode(), 2)
            self.sent += 1


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, with_mosquitto: None) -> Iterator[House]:
    """One of its own: it is measured. Sessions of strangers are kept for a second, and not for an hour, and
    what waits for one that does not answer is less than by default: all of them come to that."""
    limits = {"session_expiry": 1, "queue_messages": 1_000}
    with house_up(tmp_path_factory.mktemp("fuzz"), limits) as house:
        yield house


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


def memory(house: House) -> dict[str, int]:
    """Bytes of each process, when the strangers are gone and their sessions too."""
    until(lambda: not _strangers(house), "no stranger has a session", PATIENCE_S, glance_s=0.5)
    return {name: own_bytes(process.pid) for name, process in house.processes().items()}


@pytest.mark.timeout(1_800)
def test_broken_captures(house: House, captures: list[list[bytes]], is_long: bool) -> None:
    place = house.place("one", "")
    address = (place.host, place.port)
    before = house.processes()
    half = (LONG if is_long else SHORT) // 2
    with (
        connected(house.place("one", f"{_BESIDE}publisher")) as publisher,
        connected(house.place("one", f"{_BESIDE}subscriber")) as subscriber,
        Beside(publisher, subscriber) as beside,
    ):
        attacks = [assail(address, scripts(1, captures, half), HANG_S)]
        then = memory(house)
        attacks.append(assail(address, scripts(2, captures, half), HANG_S))
        growth = {name: size - then[name] for name, size in memory(house).items()}
        _tell(attacks, then, growth, beside)
        beside.await_all()
    assert house.processes() == before, "nothing has ended"
    assert [message.payload for message in subscriber.received] == [
        str(n).encode() for n in range(beside.sent)
    ]
    assert subscriber.is_session_present == publisher.is_session_present == [False], "nobody was cut off"
    assert {name: size for name, size in growth.items() if size > MOST_GROWTH} == {}
    assert [word for word in ("Traceback", "panicked") if word in house.log("one")] == []


def _strangers(house: House) -> list[str]:
    done = subprocess.run(
        [*hbroker("clients"), "--root", house.root, *house.state, "--json"],
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return [name for c in json.loads(done.stdout)["clients"] if not (name := c["client"]).startswith(_BESIDE)]


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
