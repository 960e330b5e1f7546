"""The blocking client over a fake endpoint, used from several threads."""

from __future__ import annotations

import threading

import pytest

from hbroker import sync
from hbroker.errors import Backpressure, InvalidTopic, NotConnected, Unreachable
from hbroker.protocol.results import Published, ResolveFailed, SubscriptionFailed
from tests.runtime.client.client_fakes import PATIENCE_S, FakeControl, FakeEndpoint, Message, control_of
from tests.waiting import until


def test_publish_waits_for_its_acknowledgement_in_each_thread(endpoint: FakeEndpoint) -> None:
    reasons: dict[str, int | None] = {}
    with sync.connect("127.0.0.1:7700") as client:
        assert client.publish("a").reason is None

        def publish(topic: str) -> None:
            reasons[topic] = client.publish(topic, qos=1).reason

        threads = [threading.Thread(target=publish, args=(f"t/{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: len(endpoint.published) == 9, "all are published", PATIENCE_S)
        for sequence in range(2, 10):
            endpoint.give_event(Published(sequence, endpoint.published[sequence - 1], sequence % 2))
        for thread in threads:
            thread.join(5)
    assert set(reasons.values()) == {0, 1}
    assert len(reasons) == 8
    assert endpoint.is_shut


def test_calls_that_cannot_succeed_raise(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.connect("127.0.0.1:7700") as client:
        with pytest.raises(Unreachable, match=r"within 0\.02 s"):
            client.publish("a", qos=2, timeout=0.02)
        with pytest.raises(InvalidTopic):
            client.publish("a/#")
        endpoint.room = 0
        with pytest.raises(Backpressure):
            client.try_publish("a")
        with pytest.raises(Unreachable):
            client.publish("a", timeout=0.02)
        control_of(client).answer = lambda id: SubscriptionFailed(id, "b", 12, False, ("n",))
        with pytest.raises(Unreachable):
            client.subscribe("b")
        assert control_of(client).filters == {}
    with pytest.raises(NotConnected):
        client.publish("a")
    monkeypatch.setattr(
        FakeControl,
        "start",
        lambda self, now, timeout: self._id(lambda t: ResolveFailed(t, "$SYS", 12, False, ("h",))),
    )
    with pytest.raises(Unreachable, match="no root answers at h"):
        sync.connect("127.0.0.1:7700")


def test_messages_are_iterated_until_the_timeout_or_the_end_of_the_client(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1:7700") as client:
        messages = client.subscribe("a/#", qos=1, queue=5)
        (id,) = control_of(client).filters
        endpoint.give(*[Message("a/b", str(n).encode(), 1, [id]) for n in range(2_000)])
        payloads = [messages.next(timeout=5) for _ in range(2_000)]
        assert [message.payload for message in payloads if message] == [str(n).encode() for n in range(2_000)]
        assert messages.next(timeout=0.01) is None
        ended = threading.Event()

        def iterate() -> None:
            for _ in messages:
                pass
            ended.set()

        threading.Thread(target=iterate, daemon=True).start()
        client.close()
        assert ended.wait(5)
        messages.close()


def test_resolve_returns_what_the_command_prints(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1:7700") as client:
        printed = client.resolve("a/b", trace=True).to_json()
    assert {"topic", "owner", "address", "epoch", "ttl_s", "trace"} <= set(printed)
    assert printed["address"] == "127.0.0.1:7700"


def test_a_failed_socket_ends_the_client_and_all_pending_calls(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1") as client, client.subscribe("a") as messages:
        endpoint.give_fault("worker 0: EIO")
        with pytest.raises(NotConnected, match="worker 0: EIO"):
            messages.next(timeout=5)
        with pytest.raises(NotConnected, match="worker 0: EIO"):
            client.publish("a", qos=1)
        assert not endpoint.is_shut
    assert endpoint.is_shut
