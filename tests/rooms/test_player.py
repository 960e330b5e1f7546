"""The player of one client, over links that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import cast

import pytest

from hbroker.errors import Unreachable
from hbroker.sim.rooms import player as module
from hbroker.sim.rooms.delivery_counters import DeliveryCounters
from hbroker.sim.rooms.links import Links, OnLost, OnMessage, OnResult
from hbroker.sim.rooms.model.device import Connect, Disconnect, Publish
from hbroker.sim.rooms.plan import Client, Plan, Stream
from hbroker.sim.rooms.player import MOST_WAITING, TRIES, Player, Troubles
from hbroker.sim.rooms.scenario.settings import Scenario
from hbroker.sim.rooms.stamp import Stamp, add_stamp, read_stamp
from tests.waiting import eventually

RUN = 3
STATUS, WILL, READINGS, ANSWER = (
    Stream(0, "r/d/status", 1, True, "r"),
    Stream(1, "r/d/status", 1, True, "r"),
    Stream(2, "r/d/x", 1, False, "r"),
    Stream(3, "r/d/state", 1, False, "r"),
)
ORDER = Stream(4, "r/d/set", 1, False, "r")
DEVICE = Client(
    0, "r/d", "lamp", "r", True, True, lambda: iter(()), (STATUS, WILL, READINGS, ANSWER),
    birth=0, will=1, answers={ORDER.topic: 3}, filters=(ORDER.topic,), qos=2,
)  # fmt: skip


class FakeLink:
    """Records what is published. It has room while `room` lasts."""

    def __init__(self, will: tuple[Stream, bytes] | None) -> None:
        self.will = will
        self.room = 1_000_000
        self.published: list[tuple[Stream, bytes, OnResult]] = []
        self.filters: tuple[str, ...] = ()
        self.ended = ""

    def publish(self, stream: Stream, payload: bytes, on_result: OnResult) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.published.append((stream, payload, on_result))
        return True

    async def subscribe(self, filters: Sequence[str], qos: int, *, no_local: bool) -> None:
        self.filters = tuple(filters)

    async def close(self) -> None:
        self.ended = "closed"

    def vanish(self) -> None:
        self.ended = "vanished"

    def numbers(self, stream: Stream) -> list[int]:
        stamps = [read_stamp(payload) for published, payload, _ in self.published if published is stream]
        return [stamp.number for stamp in stamps if stamp is not None]


class FakeLinks:
    """Links whose opening fails `failures` times first."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.opened: list[FakeLink] = []
        self.on_message: OnMessage = lambda topic, payload: None
        self.on_lost: OnLost = lambda text: None

    async def open(
        self,
        client: Client,
        run: int,
        will: tuple[Stream, bytes] | None,
        on_message: OnMessage,
        on_lost: OnLost,
    ) -> FakeLink:
        await asyncio.sleep(0)  # lets other tasks run, as the real one does
        if self.failures:
            self.failures -= 1
            raise Unreachable("nobody is there", 1)
        self.on_message, self.on_lost = on_message, on_lost
        self.opened.append(FakeLink(will))
        return self.opened[-1]


@pytest.fixture
def counters() -> DeliveryCounters:
    streams = (STATUS, WILL, READINGS, ANSWER, ORDER)
    receivers: tuple[tuple[int, ...], ...] = ((), (), (), (), (0,))
    return DeliveryCounters(Plan(Scenario("s", "r", {}, ()), (DEVICE,), streams, receivers, 0.0), RUN)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.001)


def _player(links: FakeLinks, counters: DeliveryCounters, troubles: Troubles | None = None) -> Player:
    clock = count(1_000)
    return Player(DEVICE, RUN, cast(Links, links), counters, lambda: next(clock), troubles or Troubles())


async def _connected(
    counters: DeliveryCounters, troubles: Troubles | None = None
) -> tuple[FakeLinks, Player]:
    links = FakeLinks()
    player = _player(links, counters, troubles)
    await player.connect(1)
    return links, player


async def test_the_player_subscribes_publishes_its_birth_and_then_the_waiting_messages(
    counters: DeliveryCounters,
) -> None:
    links = FakeLinks()
    player = _player(links, counters)
    for number in range(3):
        player.act(Publish(2, b"%d" % number), number + 1)
    await player.connect(9)
    (link,) = links.opened
    assert link.filters == (ORDER.topic,)
    assert [stream for stream, _, _ in link.published] == [STATUS, READINGS, READINGS, READINGS]
    dues = [stamp.due_us for _, payload, _ in link.published if (stamp := read_stamp(payload)) is not None]
    assert dues == [9, 1, 2, 3]
    assert link.numbers(READINGS) == [0, 1, 2]
    assert player.was_connected


async def test_messages_without_room_wait_in_order_and_are_numbered_once(
    counters: DeliveryCounters,
) -> None:
    links, player = await _connected(counters)
    (link,) = links.opened
    link.room = 2
    for number in range(6):
        player.act(Publish(2, b"%d" % number), number + 2)
    assert link.numbers(READINGS) == [0, 1]
    assert player.has_queued
    link.room = 100
    await eventually(lambda: not player.has_queued, "it waits for nothing", 10)
    assert link.numbers(READINGS) == list(range(6))
    assert [payload[-1:] for stream, payload, _ in link.published if stream is READINGS] == [
        b"%d" % number for number in range(6)
    ]
    total = counters.sums([READINGS])
    assert (total.asked, total.published, total.unsent) == (6, 6, 0)


async def test_waiting_messages_are_bounded_and_further_ones_counted(counters: DeliveryCounters) -> None:
    player = _player(FakeLinks(), counters)
    for number in range(MOST_WAITING + 7):
        player.act(Publish(2, b""), number + 1)
    await player.connect(1)
    total = counters.sums([READINGS])
    assert (total.asked, total.published, total.unsent) == (MOST_WAITING + 7, MOST_WAITING, 7)


async def test_each_abrupt_end_makes_one_will_due(counters: DeliveryCounters) -> None:
    links, player = await _connected(counters)
    player.act(Publish(2, b"x"), 2)
    player.act(Disconnect(is_abrupt=True), 3)
    player.act(Connect(), 4)
    player.act(Disconnect(is_abrupt=False), 5)
    player.act(Connect(), 6)
    player.act(Disconnect(is_abrupt=True), 7)
    await player.wait_until_idle()
    assert [link.ended for link in links.opened] == ["vanished", "closed", "vanished"]
    wills = [read_stamp(link.will[1]) for link in links.opened if link.will is not None]
    assert wills == [Stamp(RUN, 1, number, 0) for number in (0, 1, 1)]
    total = counters.sums([WILL])
    assert (total.published, total.acknowledged, total.unanswered) == (2, 2, 0)
    assert counters.sums([STATUS]).published == 3


async def test_an_unacknowledged_message_is_not_expected_at_its_receivers(
    counters: DeliveryCounters,
) -> None:
    links, player = await _connected(counters)
    for number in range(3):
        player.act(Publish(2, b""), number + 2)
    on_result = [on_result for stream, _, on_result in links.opened[0].published if stream is READINGS]
    on_result[0](True)
    on_result[1](False)
    on_result[2](None)
    total = counters.sums([READINGS])
    assert (total.acknowledged, total.rejected, total.unanswered) == (1, 1, 2)
    assert counters.awaited == 1, "of its birth"


async def test_a_command_is_answered_once(counters: DeliveryCounters) -> None:
    links, _ = await _connected(counters)
    counters.count_published(ORDER, 20)
    for _ in range(2):
        links.on_message(ORDER.topic, add_stamp(Stamp(RUN, ORDER.number, 0, 5), b"on"))
    links.on_message(ORDER.topic, add_stamp(Stamp(RUN + 1, ORDER.number, 0, 5), b"on"))
    answers = [payload for stream, payload, _ in links.opened[0].published if stream is ANSWER]
    assert [payload[-2:] for payload in answers] == [b"on"]
    assert counters.foreign == 1


async def test_a_lost_connection_is_counted_and_opened_again(counters: DeliveryCounters) -> None:
    troubles = Troubles()
    links, player = await _connected(counters, troubles)
    links.failures = 2
    links.on_lost("the server closed the connection")
    assert not player.is_connected
    player.act(Publish(2, b"meanwhile"), 5)
    await player.wait_until_idle()
    assert links.opened[1].numbers(READINGS) == [0]
    assert (troubles.lost_connections, troubles.retried_connections, troubles.failed) == (1, 2, {})
    will = counters.sums([WILL])
    assert (will.published, will.unanswered) == (1, 1), "it may come, and nobody promised it"


async def test_the_player_gives_up_after_some_tries_and_reports_why(counters: DeliveryCounters) -> None:
    troubles = Troubles()
    await _player(FakeLinks(failures=TRIES), counters, troubles).connect(1)
    assert troubles.failed == {"r/d": "nobody is there"}
    assert troubles.retried_connections == TRIES - 1
