"""Client pools: each pool client is a client of its own, whatever the others do (§§3.1, 6.4, 6.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

import hbroker
from hbroker import NotConnected, SessionTakenOver, Unreachable, Will
from hbroker.runtime.client.client_pool import ClientPool, PoolClient, PoolClientProfile, client_pool
from tests.product.node import Node, node_up
from tests.waiting import eventually

PATIENCE = 25.0


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with node_up() as node:
        yield node


@pytest.fixture
async def members(node: Node) -> AsyncIterator[ClientPool]:
    async with client_pool(node.address) as members:
        yield members


async def test_each_pool_client_receives_its_subscriptions_once(members: ClientPool) -> None:
    receivers = [await members.connect(client_id=f"r{n}") for n in range(20)]
    inboxes = [await m.subscribe(f"each/{n}/#", "each/all", qos=2) for n, m in enumerate(receivers)]
    assert len(members) == 20
    publisher = await members.connect()
    for qos in (0, 1, 2):
        await asyncio.gather(
            *(publisher.publish(f"each/{n}/x", f"{n}/{qos}", qos=qos) for n in range(20)),
            publisher.publish("each/all", f"all/{qos}", qos=qos),
        )
    for n, inbox in enumerate(inboxes):
        got = sorted([(await inbox.next(PATIENCE)).payload for _ in range(6)])
        assert got == sorted(f"{who}/{qos}".encode() for who in (n, "all") for qos in (0, 1, 2))
        assert await inbox.next(0.0) is None
    assert members.counters()["members"] >= 21


async def test_a_pool_client_and_a_client_with_its_own_socket_exchange_messages(
    node: Node, members: ClientPool
) -> None:
    member = await members.connect()
    async with hbroker.connect(node.address) as client:
        mine = await client.subscribe("both/#", qos=1)
        its = await member.subscribe("both/#", qos=1)
        await member.publish("both/a", b"1", qos=1)
        await client.publish("both/b", b"2", qos=1)
        for inbox in (mine, its):
            assert {(await inbox.next(PATIENCE)).payload for _ in range(2)} == {b"1", b"2"}


async def test_publish_then_reports_the_outcome_of_each_message(members: ClientPool) -> None:
    member = await members.connect()
    inbox = await member.subscribe("told/#", qos=2)
    told: list[int | None] = []
    for number in range(50):
        member.publish_then(told.append, "told/x", b"%d" % number, qos=1 + number % 2)
    await eventually(lambda: len(told) == 50, "all are answered", PATIENCE)
    assert set(told) == {hbroker.Reason.REASON_SUCCESS}
    assert [(await inbox.next(PATIENCE)).payload for _ in range(50)] == [b"%d" % n for n in range(50)]


async def test_a_lost_connection_publishes_the_will_and_a_disconnect_does_not(members: ClientPool) -> None:
    watcher = await members.connect()
    inbox = await watcher.subscribe("wills/#", qos=1)
    leaving = await members.connect(will=Will("wills/leaving", b"no", qos=1))
    vanishing = await members.connect(will=Will("wills/vanishing", b"yes", qos=1))
    told: list[int | None] = []
    await leaving.close()
    vanishing.vanish()
    vanishing.vanish()
    with pytest.raises(NotConnected):
        await vanishing.publish("wills/x")
    with pytest.raises(NotConnected):
        vanishing.publish_then(told.append, "wills/x", qos=1)
    will = await inbox.next(PATIENCE)
    assert will is not None
    assert (will.topic, will.payload) == ("wills/vanishing", b"yes")
    assert await inbox.next(0.5) is None
    assert len(members) == 1


async def test_a_pending_publish_ends_when_its_client_vanishes(members: ClientPool) -> None:
    """The subscriber does not acknowledge the message, so the publisher has no answer yet."""
    holding = await members.connect(acknowledge="handled")
    inbox = await holding.subscribe("held/#", qos=1)
    publisher = await members.connect()
    told: list[int | None] = []
    publisher.publish_then(told.append, "held/x", b"1", qos=1)
    assert await inbox.next(PATIENCE) is not None
    publisher.vanish()
    assert told == [None]


async def test_a_slow_pool_client_does_not_delay_the_others(members: ClientPool) -> None:
    slow, quick, publisher = [await members.connect() for _ in range(3)]
    unread = await slow.subscribe("pace/#", qos=1, queue=5)
    read = await quick.subscribe("pace/#", qos=1)
    sent = [asyncio.create_task(publisher.publish("pace/x", b"%d" % n, qos=1)) for n in range(40)]
    assert [(await read.next(PATIENCE)).payload for _ in range(40)] == [b"%d" % n for n in range(40)]
    assert [(await unread.next(PATIENCE)).payload for _ in range(40)] == [b"%d" % n for n in range(40)]
    assert len(await asyncio.gather(*sent)) == 40


async def test_a_persistent_session_outlives_its_pool_client_and_its_pool(node: Node) -> None:
    profile: PoolClientProfile = {"client_id": "lasting", "session_expiry": 60.0}
    async with client_pool(node.address) as first:
        member = await first.connect(**profile)
        await member.subscribe("lasting/#", qos=1)
    async with client_pool(node.address) as second:
        publisher = await second.connect()
        await publisher.publish("lasting/x", b"meanwhile", qos=1)
        again = await second.connect(**profile)
        inbox = await again.subscribe("lasting/#", qos=1)
        assert inbox.resumed
        message = await inbox.next(PATIENCE)
        assert message is not None
        assert message.payload == b"meanwhile"
        await again.close(end_session=True)


async def test_one_session_has_one_pool_client_in_one_pool(node: Node, members: ClientPool) -> None:
    profile: PoolClientProfile = {"client_id": "only", "session_expiry": 60.0}
    member = await members.connect(**profile)
    inbox = await member.subscribe("only/#", qos=1)
    with pytest.raises(ValueError, match="only"):
        await members.connect(**profile)
    bystander = await members.connect()
    async with client_pool(node.address) as others:
        later = await others.connect(**profile)
        await later.subscribe("only/#", qos=1)
        with pytest.raises(SessionTakenOver):
            await inbox.next(PATIENCE)
        await bystander.publish("only/x", b"1", qos=1)
        await later.close(end_session=True)


async def test_pool_clients_that_close_leave_nothing_behind(node: Node) -> None:
    async with client_pool(node.address) as members:
        for _ in range(3):
            some: list[PoolClient] = [await members.connect() for _ in range(30)]
            for member in some:
                await member.subscribe("come/#", qos=1)
            await some[0].publish("come/x", qos=1)
            await asyncio.gather(*(member.close() for member in some))
            assert len(members) == 0
        await eventually(lambda: members.counters()["members"] == 1, "the members are gone", PATIENCE)
    assert node.status()["subscriptions"] == 0


async def test_a_closed_pool_raises_and_a_pool_without_a_root_does_not_open(node: Node) -> None:
    members = client_pool(node.address)
    async with members:
        member = await members.connect()
    await members.close()
    with pytest.raises(NotConnected):
        await members.connect()
    with pytest.raises(NotConnected):
        await member.publish("x")
    with pytest.raises(Unreachable):
        async with client_pool(("127.0.0.1", 9), timeout=0.3):
            pass


async def test_a_large_message_reaches_a_pool_client(members: ClientPool) -> None:
    member, other = await members.connect(), await members.connect()
    inbox = await member.subscribe("large/#", qos=1)
    payload = bytes(range(256)) * 8_192
    await other.publish("large/x", payload, qos=1)
    message = await inbox.next(PATIENCE)
    assert message is not None
    assert message.payload == payload
