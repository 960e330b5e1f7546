"""A node that owns all topics, a gateway, and minimal decisions for both.

Every client that connects is accepted. Every filter gets a listener of the shared pool client, and the node
has one subscription to all topics.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hbroker._native import Config, Endpoint, Gateway, LinkUpEvent, ListenerSettings, PublishedEvent
from hbroker.gateway.native_api import (
    AuthEvent,
    ClosedEvent,
    ConnectEvent,
    MqttEvent,
    SubscribeEvent,
    UnsubscribeEvent,
)
from hbroker.runtime.gateway.native_gateway import mqtt_event
from tests.waiting import until

PATIENCE_S = 30.0
T = TypeVar("T")


@dataclass
class Accept:
    """Has the fields of `hbroker.gateway.native_api.Accept`."""

    session: int
    client_id: str
    session_present: bool = False
    acl: int = 0
    in_flight: int = 1_000
    queue_messages: int = 10_000
    queue_bytes: int = 16 << 20
    rate: int = 0
    workspace: str = ""
    is_distributed: bool = True
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    session_expiry_s: int | None = None
    auth_method: str | None = None
    auth_data: bytes = b""


@dataclass
class State:
    """Has the fields of `hbroker.gateway.native_api.SessionState`."""

    in_flight: tuple[Any, ...] = ()
    received: tuple[int, ...] = ()
    block: int = 0


def config(*, node: bool, seed: int) -> Config:
    chance = random.Random(seed)
    return Config(
        node=node,
        session=chance.getrandbits(63) + 1,
        incarnation=chance.getrandbits(63) + 1,
        token_keys=[bytes(16)],
        seed=seed,
        hold=not node,
        for_many=not node,
    )


@dataclass
class GatewayWithNode:
    """`states`: the exported states of ended sessions, by client id. `closed`, `connects`, `published`:
    all events of these kinds. `own`: the topics of the messages without a listener."""

    node: Endpoint
    gateway: Gateway
    accepts: Callable[[ConnectEvent, int], Accept | int]
    states: dict[str, Any] = field(default_factory=dict)
    closed: list[ClosedEvent] = field(default_factory=list)
    connects: list[ConnectEvent] = field(default_factory=list)
    published: list[PublishedEvent] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    subscribed: dict[int, dict[str, int]] = field(default_factory=dict)
    sessions: dict[int, int] = field(default_factory=dict)
    suback_hook: Callable[[SubscribeEvent], None] | None = None
    _names: dict[int, str] = field(default_factory=dict)
    _doors: int = 0
    listeners: int = 0
    _stopping: bool = False

    def open(self, **settings: Any) -> int:
        """Opens the next listener. Returns its port."""
        number, self._doors = self._doors, self._doors + 1
        address = self.gateway.open_listener(number, ("127.0.0.1", 0), ListenerSettings(**settings))
        return address[1]

    def join(self) -> None:
        """Opens the shared pool client's session at the node, with a subscription to all topics."""
        pool_client = self.gateway.member(0)
        token = self.node.token_for(self.gateway.address)
        pool_client.connect(self.node.address, token)
        event = self._wait_link()
        assert self.node.open_session(event.session, persistent=False)
        self.node.subscribe(event.session, "#", 2, retain_as_published=True)
        pool_client.install_zone("", [], self.node.address, b"", 300_000_000)

    def _wait_link(self) -> LinkUpEvent:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.node.wait(1.0)
            for event in self.node.poll_events():
                if isinstance(event, LinkUpEvent):
                    return event
        raise TimeoutError

    def run(self) -> None:
        """Handles events until it is told to stop."""
        while not self._stopping:
            self.gateway.wait(0.05)
            events = [event for _, event in self.gateway.poll_pool_events()]
            self.published += [event for event in events if isinstance(event, PublishedEvent)]
            self.node.poll_events()
            for pool_client, message in self.gateway.poll_pool_messages():
                self.own.append(message.topic)
                self.gateway.handled([(pool_client, message.copy_id)])
            for kind, fields in self.gateway.poll_mqtt():
                self.decide(mqtt_event(kind, fields))

    def decide(self, event: MqttEvent) -> None:
        match event:
            case ConnectEvent():
                self.connects.append(event)
                self._connect(event)
            case SubscribeEvent():
                self._subscribe(event)
            case UnsubscribeEvent():
                mine = self.subscribed[event.connection]
                codes = []
                for filter in event.filters:
                    listener = mine.pop(filter, None)
                    if listener is not None:
                        self.gateway.member(0).unlisten(listener)
                        self.gateway.detach_listener(listener)
                    codes.append(0x11 if listener is None else 0)
                self.gateway.unsuback(event.connection, event.packet_id, codes)
            case ClosedEvent():
                self._close(event)
            case AuthEvent():
                self.gateway.auth(event.connection, 0x18, event.method, event.data[::-1])

    def _connect(self, event: ConnectEvent) -> None:
        name = event.client_id or f"assigned-{event.connection:x}"
        kept = None if event.clean_start else self.states.pop(name, None)
        session = self.gateway.open_session(kept or State())
        answer = self.accepts(event, session)
        if isinstance(answer, int):
            self.gateway.export_session(session)
            self.gateway.refuse(event.connection, answer, text="no")
            return
        answer.client_id = name
        answer.session_present = kept is not None
        if not event.client_id:
            answer.assigned_client_id = name
        self._names[event.connection] = name
        self.sessions[event.connection] = session
        self.subscribed[event.connection] = {}
        self.gateway.accept(event.connection, answer)

    def _subscribe(self, event: SubscribeEvent) -> None:
        mine = self.subscribed[event.connection]
        for filter, options in event.filters:
            self.listeners += 1
            self.gateway.attach_listener(
                self.listeners,
                self.sessions[event.connection],
                filter,
                options,
                event.identifier,
                packet_id=event.packet_id,
            )
            former = mine.get(filter)
            mine[filter] = self.listeners
            self.gateway.member(0).listen(self.listeners, filter, options.qos, True)
            if former is not None:
                self.gateway.member(0).unlisten(former)
                self.gateway.detach_listener(former)
        if self.suback_hook is not None:
            self.suback_hook(event)
        codes = [options.qos for _, options in event.filters]
        self.gateway.suback(event.connection, event.packet_id, codes)

    def _close(self, event: ClosedEvent) -> None:
        session = self.sessions.pop(event.connection, None)
        if session is not None:
            for listener in self.subscribed.pop(event.connection).values():
                self.gateway.member(0).unlisten(listener)
            self.states[self._names[event.connection]] = self.gateway.export_session(session)
        self.closed.append(event)

    def wait(self, what: Callable[[], T | None]) -> T:
        """Waits until `what` returns something true, and returns that."""
        found: list[T] = []

        def is_found() -> bool:
            if value := what():
                found.append(value)
            return bool(found)

        until(is_found, "what the gateway has to do", PATIENCE_S)
        return found[0]

    def stop(self) -> None:
        self._stopping = True


@contextmanager
def gateway_up(
    accepts: Callable[[ConnectEvent, int], Accept | int] | None = None,
    *,
    seed: int = 1,
    workers: int = 2,
    **limits: int,
) -> Iterator[GatewayWithNode]:
    """A running gateway and its node. `limits`: of the gateway."""
    node = Endpoint(config(node=True, seed=seed), ("127.0.0.1", 0))
    node.grant("", 1, True)
    gateway = Gateway(config(node=False, seed=seed + 1), ("127.0.0.1", 0), workers=workers, **limits)
    gateway.install_acl(0, [_EVERYTHING])
    setup = GatewayWithNode(
        node, gateway, accepts or (lambda event, session: Accept(session, event.client_id))
    )
    setup.join()
    thread = threading.Thread(target=setup.run)
    thread.start()
    try:
        yield setup
    finally:
        setup.stop()
        thread.join(PATIENCE_S)
        gateway.shutdown()
        node.shutdown()
        assert gateway.fault is None


@dataclass
class Rule:
    """Has the fields of `hbroker.gateway.native_api.Rule`."""

    filter: str
    is_allowed: bool = True
    for_read: bool = True
    for_write: bool = True


_EVERYTHING = Rule("#")
