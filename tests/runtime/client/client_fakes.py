"""A fake endpoint and a fake client control, for the asynchronous and the blocking client."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest

from hbroker._native import NativeError, topic_is_valid
from hbroker.protocol.packets import Address
from hbroker.protocol.results import (
    Published,
    Resolution,
    Resolved,
    Result,
    Subscribed,
    Unsubscribed,
    WillSet,
)
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.protocol.wills.client_will import Will
from tests.waiting import eventually

if TYPE_CHECKING:
    from hbroker import Client, sync

T = TypeVar("T")

PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a message that the clients read."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    subscriptions: list[int] = field(default_factory=list)
    retained: bool = False
    publisher: int = 1
    sequence: int = 0

    @property
    def copy_id(self) -> tuple[int, int]:
        """The id of the copy, as for a message without a shared subscription."""
        return self.publisher, self.sequence


class FakeEndpoint:
    """Readable, like the native endpoint, while events or messages wait."""

    address = ("127.0.0.1", 4000)

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._lock = threading.Lock()
        self.messages: list[Message] = []
        self.events: list[object] = []
        self.published: list[str] = []
        self.handled_ids: list[tuple[int, int]] = []
        self.given_back_ids: list[tuple[int, int]] = []
        self.refused = 0
        self.room = 1_000_000
        self.fault: str | None = None
        self.is_shut = False
        self.polls = 0

    def give(self, *messages: Message) -> None:
        with self._lock:
            self.messages.extend(messages)
            os.write(self._writer, b"\0")

    def give_event(self, event: object) -> None:
        with self._lock:
            self.events.append(event)
            os.write(self._writer, b"\0")

    def give_fault(self, fault: str) -> None:
        """Sets the fault. From then on the endpoint is always readable, like the native one."""
        with self._lock:
            self.fault = fault
            os.write(self._writer, b"\0")

    async def await_published(self, count: int) -> None:
        """Waits until `count` messages were published."""
        await eventually(lambda: len(self.published) >= count, f"{count} are published", PATIENCE_S)

    def fileno(self) -> int:
        return self._reader

    def poll_events(self, limit: int = 1024) -> list[object]:
        self.polls += 1
        return self._take(self.events, limit)

    def poll_messages(self, limit: int = 1024) -> list[Message]:
        return self._take(self.messages, limit)

    def _take(self, queue: list[T], limit: int) -> list[T]:
        with self._lock:
            taken, queue[:] = list(queue[:limit]), queue[limit:]
            if not self.events and not self.messages and self.fault is None:
                os.set_blocking(self._reader, False)
                try:
                    os.read(self._reader, 1 << 16)
                except BlockingIOError:
                    return taken
            return taken

    def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, **_: object
    ) -> int | None:
        if not topic_is_valid(topic):
            raise NativeError(f"{topic!r} is not a valid topic")
        if self.room == 0:
            self.refused += 1
            return None
        self.room -= 1
        self.published.append(topic)
        return len(self.published)

    def publish_many(
        self, messages: list[tuple[str, bytes]], qos: int = 0, retain: bool = False, **_: object
    ) -> list[int]:
        sequences: list[int] = []
        for topic, payload in messages:
            try:
                sequence = self.publish(topic, payload)
            except NativeError:
                if not sequences:
                    raise
                break
            if sequence is None:
                break
            sequences.append(sequence)
        return sequences

    def handled(self, messages: list[tuple[int, int]]) -> None:
        self.handled_ids += messages

    def give_back(self, messages: list[tuple[int, int]]) -> None:
        self.given_back_ids += messages

    def counters(self) -> dict[str, int]:
        return {"messages_out": len(self.published)}

    def gather(self, gathers: bool) -> None:
        """Does nothing: every call takes effect at once."""

    def drain(self, timeout_s: float) -> bool:
        return True

    def shutdown(self) -> None:
        self.is_shut = True


class FakeControl:
    """Answers at once, unless `is_silent`. `answer` overrides the answer."""

    def __init__(
        self,
        endpoint: FakeEndpoint,
        random: Random,
        root: Address,
        session_options: SessionOptions,
        caches: object = None,
    ) -> None:
        self.endpoint = endpoint
        self.session_options = session_options
        self.wills: list[Will] = []
        self.results: list[Result] = []
        self.deadline: int | None = None
        self.filters: dict[int, str] = {}
        self.has_left = False
        self.answer: Callable[[int], Result] | None = None
        self._last = 0

    def _id(self, usual: Callable[[int], Result]) -> int:
        self._last += 1
        self.results.append((self.answer or usual)(self._last))
        return self._last

    def start(self, now: int, timeout: int) -> int:
        return self.resolve(now, "$SYS", trace=True, timeout=timeout)

    def resolve(self, now: int, topic: str, *, trace: bool, timeout: int) -> int:
        found = Resolution(topic, "root", ("127.0.0.1", 7700), 1, 300, "", "", 0, ())
        return self._id(lambda lookup_id: Resolved(lookup_id, found))

    def subscribe(self, now: int, filter: str, options: object, *, group: str, timeout: int) -> int:
        id = self._id(lambda subscription: Subscribed(subscription, ("root",)))
        self.filters[id] = filter
        return id

    def unsubscribe(self, now: int, subscription: int) -> None:
        del self.filters[subscription]
        self.results.append(Unsubscribed(subscription))

    def release(self, now: int, subscription: int) -> None:
        del self.filters[subscription]

    def set_will(self, now: int, will: Will, *, timeout: int) -> None:
        self.wills.append(will)
        self.results.append(WillSet("root"))

    def leave(self, *, end_session: bool) -> None:
        self.has_left = True

    def handle_event(self, now: int, event: object) -> None:
        if isinstance(event, Exception):
            raise event
        assert isinstance(event, Published)
        self.results.append(event)

    def handle_timeout(self, now: int) -> None:
        self.deadline = None

    def poll_timeout(self) -> int | None:
        return self.deadline

    def poll_result(self) -> Result | None:
        return self.results.pop(0) if self.results else None


def control_of(client: Client | sync.Client) -> FakeControl:
    """The fake control of a client."""
    control: object = client._dispatcher.control
    assert isinstance(control, FakeControl)
    return control


def install(monkeypatch: pytest.MonkeyPatch) -> FakeEndpoint:
    """Installs the fakes. Returns the endpoint that the next client gets."""
    from hbroker import sync
    from hbroker.runtime.client import async_client, dispatcher

    endpoint = FakeEndpoint()
    monkeypatch.setattr(dispatcher, "ClientControl", FakeControl)
    for shell in (async_client, sync):
        monkeypatch.setattr(shell, "new_endpoint", lambda listen, identity: endpoint)
    return endpoint
