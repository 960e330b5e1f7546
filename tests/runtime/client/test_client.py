"""The asynchronous client over a fake endpoint: waits, timeouts, back pressure, slow consumers, ends."""

from __future__ import annotations

import asyncio

import pytest

from hbroker.errors import Backpressure, InvalidTopic, NotConnected, Refused, Unreachable
from hbroker.protocol.results import Published, ResolveFailed, SubscriptionFailed
from hbroker.runtime.client.async_client import connect
from hbroker.runtime.client.dispatcher import CLOSE_TIMEOUT
from tests.runtime.client.client_fakes import PATIENCE_S, FakeControl, FakeEndpoint, Message, control_of
from tests.waiting import eventually


async def test_connect_is_awaitable_and_a_context_manager(endpoint: FakeEndpoint) -> None:
    async with connect("127.0.0.1:7700", client_id="me") as client:
        assert (client.client_id, client.root) == ("me", ("127.0.0.1", 7700))
        assert client.counters() == {"messages_out": 0, "publish_failed": 0}
    assert endpoint.is_shut
    assert control_of(client).has_left
    await client.close()


async def test_connect_without_a_root_raises_unreachable_with_its_address(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        FakeControl,
        "start",
        lambda self, now, timeout: self._id(lambda t: ResolveFailed(t, "$SYS", 12, False, ("h:1",))),
    )
    with pytest.raises(Unreachable, match=r"h:1 within 3 s"):
        await connect("127.0.0.1", timeout=3)
    assert endpoint.is_shut


async def test_publish_at_qos_0_returns_when_queued_and_at_qos_1_when_acknowledged(
    endpoint: FakeEndpoint,
) -> None:
    async with connect("127.0.0.1") as client:
        assert (await client.publish("a/b", b"1")).reason is None
        waits = asyncio.create_task(client.publish("a/c", "text", qos=1))
        await endpoint.await_published(2)
        assert not waits.done()
        endpoint.give_event(Published(2, "a/c", 1))
        assert (await waits).reason == 1


async def test_a_failed_message_raises_an_error_with_its_reason(endpoint: FakeEndpoint) -> None:
    async with connect("127.0.0.1") as client:
        endpoint.give_event(Published(999, "nobody's", 0))
        for sequence, (reason, error) in enumerate([(5, Refused), (9, InvalidTopic), (12, Unreachable)], 1):
            waits = asyncio.create_task(client.publish("a/b", qos=2))
            await endpoint.await_published(sequence)
            endpoint.give_event(Published(sequence, "a/b", reason))
            with pytest.raises(error, match="a/b"):
                await waits
        with pytest.raises(Unreachable, match=r"within 0\.01 s"):
            await client.publish("a/b", qos=1, timeout=0.01)
        assert client._dispatcher._publications == {}


async def test_publish_waits_for_room_and_try_publish_raises_backpressure(endpoint: FakeEndpoint) -> None:
    async with connect("127.0.0.1") as client:
        endpoint.room = 0
        with pytest.raises(Backpressure):
            client.try_publish("a/b")
        waits = asyncio.create_task(client.publish("a/b"))
        await eventually(lambda: endpoint.refused > 1, "it asked for room too", PATIENCE_S)
        assert endpoint.published == []
        endpoint.room = 1
        assert (await waits).sequence == 1


@pytest.mark.parametrize("bad", ["", "a/+", "a/#"])
async def test_invalid_topics_and_filters_raise_invalid_topic(endpoint: FakeEndpoint, bad: str) -> None:
    async with connect("127.0.0.1") as client:
        with pytest.raises(InvalidTopic):
            await client.publish(bad)
        with pytest.raises(InvalidTopic):
            await client.resolve(bad)
        with pytest.raises(InvalidTopic):
            await client.subscribe("ok", "#/a")
        assert control_of(client).filters == {}, "what was begun is ended"


async def test_messages_reach_the_subscriptions_that_they_name(endpoint: FakeEndpoint) -> None:
    async with (
        connect("127.0.0.1") as client,
        client.subscribe("a/#", "+/b") as both,
        client.subscribe("c") as other,
    ):
        ids = {filter: id for id, filter in control_of(client).filters.items()}
        endpoint.give(
            Message("a/b", subscriptions=[ids["a/#"], ids["+/b"]]),
            Message("c", subscriptions=[ids["c"], 999]),
            Message("a/z", subscriptions=[ids["a/#"]]),
        )
        assert both.owners == ("root",)
        assert [(await anext(both)).topic for _ in range(2)] == ["a/b", "a/z"]
        assert [(await anext(other)).topic] == ["c"]
        assert await both.next(timeout=0.01) is None
        await both.close()
        assert [message async for message in both] == []
        assert list(control_of(client).filters.values()) == ["c"]


async def test_a_slow_consumer_at_qos_0_loses_messages_and_they_are_counted(endpoint: FakeEndpoint) -> None:
    async with connect("127.0.0.1") as client, client.subscribe("a", queue=10) as messages:
        (id,) = control_of(client).filters
        endpoint.give(*[Message("a", str(n).encode(), 0, [id]) for n in range(25)])
        await eventually(lambda: messages.dropped >= 15, "those without room are dropped", PATIENCE_S)
        assert [(await anext(messages)).payload for _ in range(10)] == [str(n).encode() for n in range(10)]


async def test_a_slow_consumer_at_qos_1_stops_the_reading_and_loses_no_message(
    endpoint: FakeEndpoint,
) -> None:
    total = 5_000
    async with connect("127.0.0.1") as client, client.subscribe("a", qos=1, queue=10) as messages:
        (id,) = control_of(client).filters
        endpoint.give(*[Message("a", str(n).encode(), 1, [id]) for n in range(total)])
        await eventually(lambda: client._dispatcher.is_blocked, "no more is read", PATIENCE_S)
        left, polls = len(endpoint.messages), endpoint.polls
        await asyncio.sleep(0.1)  # time in which the client would read, or spin
        assert len(endpoint.messages) == left > 0, "what is not read is not acknowledged"
        assert endpoint.polls - polls < 30, "a readable descriptor must not spin the loop"
        waits = asyncio.create_task(client.publish("b", qos=1))
        await endpoint.await_published(1)
        endpoint.give_event(Published(1, "b", 0))
        await waits  # events are still handled
        assert [(await anext(messages)).payload for _ in range(total)] == [
            str(n).encode() for n in range(total)
        ]
        assert messages.dropped == 0


async def test_a_subscription_that_is_refused_or_fails_later_raises(endpoint: FakeEndpoint) -> None:
    async with connect("127.0.0.1") as client:
        control = control_of(client)
        async with client.subscribe("a") as messages:
            (id,) = control.filters
            control.results.append(SubscriptionFailed(id, "a", 5, True, ("n",)))
            client._driver.wake()
            with pytest.raises(Refused, match="NOT_AUTHORIZED"):
                await anext(messages)
        control.answer = lambda id: SubscriptionFailed(id, "b", 12, False, ("n (1.2.3.4:5)",))
        with pytest.raises(Unreachable, match=r"n \(1\.2\.3\.4:5\)"):
            await client.subscribe("b", timeout=1)


async def test_close_ends_every_iterator_and_refuses_later_calls(endpoint: FakeEndpoint) -> None:
    client = await connect("127.0.0.1")
    messages = await client.subscribe("a")
    reads = asyncio.create_task(messages.next())
    await asyncio.sleep(0)  # from here on it waits for a message
    await client.close()
    assert await reads is None
    with pytest.raises(NotConnected):
        await client.publish("a")
    with pytest.raises(NotConnected):
        client.try_publish("a")
    await messages.close()


async def test_a_subscription_may_be_closed_while_its_client_is_closed(endpoint: FakeEndpoint) -> None:
    client = await connect("127.0.0.1")
    messages = await client.subscribe("a")
    closes = asyncio.create_task(messages.close())
    await asyncio.sleep(0)  # from here on it waits for the owners
    assert not closes.done()
    await client.close()
    await closes


async def test_a_publish_that_waits_for_its_acknowledgement_fails_when_the_client_is_closed(
    endpoint: FakeEndpoint,
) -> None:
    client = await connect("127.0.0.1")
    waits = asyncio.create_task(client.publish("a", qos=1, timeout=600))
    await endpoint.await_published(1)
    await client.close()
    with pytest.raises(NotConnected, match="closed"):
        await waits


async def test_an_exception_of_an_event_handler_is_logged_and_raised_in_pending_calls(
    endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect("127.0.0.1") as client:
        waits = asyncio.create_task(client.publish("a", qos=1))
        await endpoint.await_published(1)
        endpoint.give_event(ZeroDivisionError("defect"))
        with pytest.raises(ZeroDivisionError, match="defect"):
            await waits
        goes_on = asyncio.create_task(client.publish("a", qos=1))
        await endpoint.await_published(2)
        endpoint.give_event(Published(2, "a", 0))
        assert (await goes_on).reason == 0
    assert "defect" in caplog.text


async def test_a_failed_message_without_a_waiting_caller_is_counted_and_logged(
    endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect("127.0.0.1") as client:
        failed = Published(client.try_publish("a/b", qos=1), "a/b", 11)
        done = Published(client.try_publish("a/c", qos=1), "a/c", 0)
        endpoint.give_event(done)
        endpoint.give_event(failed)
        await eventually(lambda: bool(client.failures), "the failure is counted", PATIENCE_S)
        assert client.failures == (failed,)
        assert client.counters()["publish_failed"] == 1
    assert "'a/b' failed: QUOTA_EXCEEDED" in caplog.text


async def test_close_waits_for_a_dead_owner_no_longer_than_its_timeout(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(endpoint, "drain", waited.append)
    await (await connect("127.0.0.1")).close()
    await (await connect("127.0.0.1")).close(timeout=0.5)
    assert [waited[0], waited[2]] == [CLOSE_TIMEOUT, 0.5]
    assert CLOSE_TIMEOUT <= 2


async def test_a_failed_socket_ends_the_client_and_all_pending_calls(endpoint: FakeEndpoint) -> None:
    async with connect("127.0.0.1") as client, client.subscribe("a") as messages:
        waits = asyncio.create_task(client.publish("a", qos=1))
        endpoint.give(Message("a", subscriptions=[2]))
        received = await messages.next()
        assert received is not None
        endpoint.give_fault("worker 0: EIO")
        for waiting in (waits, messages.next(), client.publish("a")):
            with pytest.raises(NotConnected, match="worker 0: EIO"):
                await waiting
        polls = endpoint.polls
        for _ in range(10):
            await asyncio.sleep(0)  # a turn of the loop
        assert endpoint.polls == polls, "a descriptor that stays readable must not spin"
        assert endpoint.is_shut
