"""A gateway that receives malformed packets: it does not crash, hang or grow, and its other clients are
not disturbed."""

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
from tests.fuzz.attack import Attack, run_attack
from tests.fuzz.captures import captured
from tests.fuzz.packets import script
from tests.interop.clients import PATIENCE_S
from tests.interop.home import HomeNetwork, home_up
from tests.interop.peer import Peer, connected
from tests.memory import own_bytes
from tests.product.network import hbroker
from tests.waiting import until

SHORT, LONG = 40_000, 1_000_000
"""The number of packets."""
MOST_GROWTH = 16 * 2**20
"""The greatest growth of a process in the second half, in bytes. It is measured when the attacking clients
have no sessions."""
HANG_S = 20.0
"""A connection that the gateway does not close within this time is stuck."""
_OTHERS = "others-"


class OtherClients(Background):
    """A publisher and a subscriber at the same gateway with QoS 2, which run as long as the attack."""

    def __init__(self, publisher: Peer, subscriber: Peer) -> None:
        super().__init__()
        self.sent = 0
        self._publisher = publisher
        self._subscriber = subscriber

    def __enter__(self) -> Self:
        self._subscriber.subscribe(("home/kitchen/others", 2))
        return super().__enter__()

    def await_all(self) -> None:
        """Stops publishing, and returns when every sent message has been received."""
        self.stop()
        self._subscriber.await_received(self.sent)

    def _run(self) -> None:
        while not self._is_over.wait(0.01):
            self._publisher.client.publish("home/kitchen/others", str(self.sent).encode(), 2)
            self.sent += 1


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, with_mosquitto: None) -> Iterator[HomeNetwork]:
    """A separate network whose memory is measured. Sessions of attacking clients expire after a second
    instead of an hour. Their queues have a smaller limit than by default, because all of them reach it."""
    limits = {"session_expiry": 1, "queue_messages": 1_000}
    with home_up(tmp_path_factory.mktemp("fuzz"), limits) as home:
        yield home


@pytest.fixture(scope="module")
def captures(home: HomeNetwork) -> list[list[bytes]]:
    return captured(home, "two")


def scripts(seed: int, captures: Sequence[Sequence[bytes]], packets: int) -> Iterator[list[bytes]]:
    """Scripts for connections, until they have `packets` packets in total."""
    random = Random(seed)
    while packets > 0:
        one = script(random, captures)
        packets -= len(one)
        yield one


def memory(home: HomeNetwork) -> dict[str, int]:
    """The memory of each process in bytes, when the sessions of all attacking clients have ended."""
    until(lambda: not _attacking_clients(home), "no attacking client has a session", PATIENCE_S, glance_s=0.5)
    return {name: own_bytes(process.pid) for name, process in home.processes().items()}


@pytest.mark.timeout(1_800)
def test_mutated_packets_of_real_clients_do_not_disturb_a_gateway(
    home: HomeNetwork, captures: list[list[bytes]], is_long: bool
) -> None:
    place = home.place("one", "")
    address = (place.host, place.port)
    before = home.processes()
    half = (LONG if is_long else SHORT) // 2
    with (
        connected(home.place("one", f"{_OTHERS}publisher")) as publisher,
        connected(home.place("one", f"{_OTHERS}subscriber")) as subscriber,
        OtherClients(publisher, subscriber) as others,
    ):
        attacks = [run_attack(address, scripts(1, captures, half), HANG_S)]
        then = memory(home)
        attacks.append(run_attack(address, scripts(2, captures, half), HANG_S))
        growth = {name: size - then[name] for name, size in memory(home).items()}
        _print_results(attacks, then, growth, others)
        others.await_all()
    assert home.processes() == before, "nothing has ended"
    assert [message.payload for message in subscriber.received] == [
        str(n).encode() for n in range(others.sent)
    ]
    assert subscriber.is_session_present == publisher.is_session_present == [False], "nobody was cut off"
    assert {name: size for name, size in growth.items() if size > MOST_GROWTH} == {}
    assert [word for word in ("Traceback", "panicked") if word in home.log("one")] == []


def _attacking_clients(home: HomeNetwork) -> list[str]:
    done = subprocess.run(
        [*hbroker("clients"), "--root", home.root, *home.state, "--json"],
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return [name for c in json.loads(done.stdout)["clients"] if not (name := c["client"]).startswith(_OTHERS)]


def _print_results(
    attacks: list[Attack], then: dict[str, int], growth: dict[str, int], others: OtherClients
) -> None:
    """Prints results for `pytest -s`."""
    for attack in attacks:
        print(attack)
    print({name: f"{size >> 20} MiB, then {growth[name] / 2**20:+.1f}" for name, size in then.items()})
    print(f"other clients: {others.sent} messages")


@given(data=st.lists(st.binary(max_size=300), max_size=4))
def test_a_gateway_closes_a_connection_that_sends_random_bytes(home: HomeNetwork, data: list[bytes]) -> None:
    place = home.place("one", "")
    run_attack((place.host, place.port), [data], HANG_S)
