"""A fake of the native half of a gateway, over real endpoints: each pool client is one, with a socket of its
own.

The test provides the packets of MQTT clients. The fake records the gateway's answers.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from hbroker._native import Config, Endpoint, Message
from hbroker.config import GatewayLimits, ListenerSettings
from hbroker.gateway.native_api import (
    Accept,
    ClosedEvent,
    MqttEvent,
    PoolClientCore,
    Rule,
    SessionState,
)
from hbroker.protocol.core import Event
from hbroker.protocol.packets import Address
from tests.gateway.fakes import ConnectionStatus


class EndpointShell:
    """See `hbroker.runtime.gateway.native_gateway.NativeGateway`. It is its own core."""

    last: EndpointShell

    def __init__(self, config: Config, listen: Address, *, workers: int, limits: GatewayLimits) -> None:
        EndpointShell.last = self
        self.core = self
        self._listen = listen
        self._epoll = select.epoll()
        self._wake, self._waker = socket.socketpair()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._members: dict[int, Endpoint] = {}
        self._add(0, config)
        self._sockets: list[socket.socket] = []
        self.events: deque[MqttEvent] = deque()
        self.accepted: dict[int, Accept] = {}
        self.refused: dict[int, int] = {}
        self.closed: dict[int, int] = {}
        self.subacks: dict[int, list[int]] = {}
        self.acls: dict[int, tuple[Rule, ...]] = {}
        self.fault: str | None = None
        self.is_shut_down = False

    def tell(self, event: MqttEvent) -> None:
        """Hands in an event of an MQTT client, from any thread."""
        self.events.append(event)
        self._waker.send(b"x")

    @property
    def address(self) -> Address:
        return self._members[0].address

    def open_listener(self, number: int, listener: ListenerSettings) -> int:
        opened = socket.create_server(listener.address)
        self._sockets.append(opened)
        port: int = opened.getsockname()[1]
        return port

    def set_listeners(self, listeners: Sequence[ListenerSettings], limits: GatewayLimits) -> None:
        self.set = [*listeners]

    def fileno(self) -> int:
        return self._epoll.fileno()

    def poll_pool_events(self, limit: int = 1024) -> list[tuple[int, Event]]:
        return [
            (n, event)
            for n, pool_client in list(self._members.items())
            for event in pool_client.poll_events(limit)
        ]

    def poll_pool_messages(self, limit: int = 1024) -> list[tuple[int, Message]]:
        members = list(self._members.items())
        return [
            (number, message)
            for number, pool_client in members
            for message in pool_client.poll_messages(limit)
        ]

    def poll_mqtt(self, limit: int = 1024) -> list[MqttEvent]:
        self._wake.setblocking(False)
        with suppress(BlockingIOError):
            self._wake.recv(4096)
        return [self.events.popleft() for _ in range(min(limit, len(self.events)))]

    def gather(self, gathers: bool) -> None:
        for pool_client in self._members.values():
            pool_client.gather(gathers)

    def drain(self, timeout_s: float) -> bool:
        return all([pool_client.drain(timeout_s) for pool_client in self._members.values()])

    def shutdown(self) -> None:
        if not self.is_shut_down:
            self.is_shut_down = True
            for closing in (*self._members.values(),):
                closing.shutdown()
            for opened in (*self._sockets, self._wake, self._waker):
                opened.close()
            self._epoll.close()

    def member(self, number: int) -> PoolClientCore:
        return cast(PoolClientCore, self._members[number])

    def open_pool_client(self, session: int, *, persistent: bool, incarnation: int) -> int:
        number = max(self._members) + 1
        config = Config(
            node=False,
            session=session,
            incarnation=incarnation,
            token_keys=[bytes(16)],
            seed=1,
            persistent=persistent,
            hold=True,
        )
        self._add(number, config)
        return number

    def close_pool_client(self, number: int) -> None:
        pool_client = self._members.pop(number)
        self._epoll.unregister(pool_client.fileno())
        pool_client.shutdown()

    def accept(self, connection: int, accept: Accept) -> None:
        self.accepted[connection] = accept

    def refuse(self, connection: int, code: int, **_: Any) -> None:
        self.refused[connection] = code

    def disconnect(self, connection: int, code: int, **_: Any) -> None:
        self.closed[connection] = code
        self.tell(ClosedEvent(connection, "server"))

    def suback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        self.subacks[connection] = list(codes)

    def open_session(self, state: SessionState) -> int:
        return 1

    def export_session(self, session: int, *, is_over: bool = False) -> SessionState:
        return SessionState()

    def install_acl(self, acl: int, rules: Sequence[Rule]) -> None:
        self.acls[acl] = tuple(rules)

    def connections(self, most: int) -> list[ConnectionStatus]:
        return [ConnectionStatus(number, 5, 6, 0, 0) for number in self.accepted]

    def take_load(self) -> None:
        """Does nothing: the fake keeps no counters of topics."""

    def gateway_counters(self) -> dict[str, int]:
        return {"packets_in": 1}

    def __getattr__(self, name: str) -> Any:
        if name in ("attach_listener", "detach_listener", "assign_acl", "forget_acl", "refuse_guesses"):
            return lambda *_, **__: None
        raise AttributeError(name)

    def _add(self, number: int, config: Config) -> None:
        pool_client = self._members[number] = Endpoint(config, self._listen)
        self._epoll.register(pool_client.fileno(), select.EPOLLIN)
