"""Gateways without MQTT: client pools over real sockets. Each pool client has a control, like any client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from hbroker._native import ClientPool, Config, Message
from hbroker.protocol.client import ClientControl
from hbroker.protocol.packets import Address
from hbroker.protocol.results import Result, Subscribed, TakenOver
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.runtime.control_loop import clock

PATIENCE = 60.0


@dataclass
class Client:
    """A pool client, and its control."""

    number: int
    control: ClientControl
    results: list[Result] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]


class Gateway:
    """A client pool and its clients. Made by `gateway_up`."""

    def __init__(self, root: Address) -> None:
        self._root = root
        self._random = Random(os.urandom(8))
        config = Config(
            node=False,
            session=self.bits(),
            incarnation=self.bits(),
            token_keys=[os.urandom(16)],
            seed=self.bits(),
        )
        self.pool = ClientPool(config, ("127.0.0.1", 0))
        self.clients: dict[int, Client] = {}
        self.handles = True
        self.first = self._decide_for(0, SessionOptions("first"))

    def bits(self) -> int:
        return self._random.getrandbits(63) + 1

    def open(self, session: int = 0, expiry_s: int = 0) -> Client:
        """Opens a pool client. With an expiry it has a persistent session."""
        session = session or self.bits()
        number = self.pool.open_pool_client(session, persistent=expiry_s > 0, incarnation=self.bits())
        return self._decide_for(number, SessionOptions("member", session=session, expiry_s=expiry_s))

    def close(self, client: Client, *, end_session: bool = True) -> None:
        client.control.leave(end_session=end_session)
        self.pool.close_pool_client(client.number)
        del self.clients[client.number]

    def subscribe(self, client: Client, filter: str, qos: int = 1) -> int:
        """Subscribes, and waits until the subscription is complete."""
        subscription = client.control.subscribe(clock(), filter, Options(qos=qos))
        self.run_until(
            lambda: any(isinstance(o, Subscribed) and o.subscription == subscription for o in client.results)
        )
        return subscription

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        """Publishes as a gateway does: by its first pool client."""
        assert self.pool.member(0).publish(topic, payload, qos, retain) is not None

    def run_until(self, holds: Callable[[], bool]) -> None:
        """Takes turns until `holds` is true."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, "it takes too long"
            self.turn()

    def turn(self) -> None:
        """Waits a moment for events, and handles them."""
        due = [
            at for at in (client.control.poll_timeout() for client in self.clients.values()) if at is not None
        ]
        pause = min([10_000, *(at - clock() for at in due)])
        self.pool.wait(max(pause, 0) / 1e6)
        for number, event in self.pool.poll_pool_events():
            if number in self.clients:
                self.clients[number].control.handle_event(clock(), event)
        handled = []
        for number, message in self.pool.poll_pool_messages():
            if number in self.clients:
                self.clients[number].messages.append(message)
            if message.qos and self.handles:
                handled.append((number, message.copy_id))
        self.pool.handled(handled)
        for client in list(self.clients.values()):
            if (deadline := client.control.poll_timeout()) is not None and deadline <= clock():
                client.control.handle_timeout(clock())
            while (result := client.control.poll_result()) is not None:
                client.results.append(result)
                if isinstance(result, TakenOver):
                    self.pool.close_pool_client(client.number)

    def _decide_for(self, number: int, terms: SessionOptions) -> Client:
        control = ClientControl(self.pool.member(number), self._random, self._root, terms)
        self.clients[number] = Client(number, control)
        return self.clients[number]


@contextmanager
def gateway_up(root: Address) -> Iterator[Gateway]:
    """A gateway. At the end it is gone without a LEAVE, as if it was killed."""
    gateway = Gateway(root)
    try:
        yield gateway
    finally:
        gateway.pool.shutdown()
