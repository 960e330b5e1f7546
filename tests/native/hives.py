"""Gateways without MQTT: hives over real sockets, whose members are decided for as any client is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from hbroker._native import Config, Hive, Message
from hbroker.protocol.client import ClientControl
from hbroker.protocol.packets import Address
from hbroker.protocol.results import Outcome, Subscribed, TakenOver
from hbroker.protocol.sessions.options import SessionTerms
from hbroker.protocol.subscriptions.client.subscription import Options
from hbroker.runtime.turns import clock

PATIENCE = 60.0


@dataclass
class Client:
    """A member, and its control."""

    number: int
    control: ClientControl
    outcomes: list[Outcome] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]


class Gateway:
    """A hive and its clients. Made by `gateway_up`."""

    def __init__(self, root: Address, workers: int = 1) -> None:
        self._root = root
        self._random = Random(os.urandom(8))
        config = Config(
            node=False,
            session=self.bits(),
            incarnation=self.bits(),
            token_keys=[os.urandom(16)],
            seed=self.bits(),
        )
        self.hive = Hive(config, ("127.0.0.1", 0), workers)
        self.clients: dict[int, Client] = {}
        self.handles = True
        self.first = self._decide_for(0, SessionTerms("first"))

    def bits(self) -> int:
        return self._random.getrandbits(63) + 1

    def open(self, session: int = 0, expiry_s: int = 0) -> Client:
        """A new member; one with an expiry has a persistent session."""
        session = session or self.bits()
        number = self.hive.open_member(session, persistent=expiry_s > 0, incarnation=self.bits())
        return self._decide_for(number, SessionTerms("member", session=session, expiry_s=expiry_s))

    def close(self, client: Client, *, end_session: bool = True) -> None:
        client.control.leave(end_session=end_session)
        self.hive.close_member(client.number)
        del self.clients[client.number]

    def subscribe(self, client: Client, filter: str, qos: int = 1) -> int:
        """Subscribes, and waits until it is complete."""
        subscription = client.control.subscribe(clock(), filter, Options(qos=qos))
        self.run_until(
            lambda: any(isinstance(o, Subscribed) and o.subscription == subscription for o in client.outcomes)
        )
        return subscription

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        """Publishes, as a gateway does: by its first member."""
        assert self.hive.member(0).publish(topic, payload, qos, retain) is not None

    def run_until(self, holds: Callable[[], bool]) -> None:
        """Takes turns until something holds."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, "it takes too long"
            self.turn()

    def turn(self) -> None:
        """Waits for something to do, a moment, and does it."""
        due = [
            at for at in (client.control.poll_timeout() for client in self.clients.values()) if at is not None
        ]
        pause = min([10_000, *(at - clock() for at in due)])
        self.hive.wait(max(pause, 0) / 1e6)
        for number, event in self.hive.poll_member_events():
            if number in self.clients:
                self.clients[number].control.handle_event(clock(), event)
        handled = []
        for number, message in self.hive.poll_member_messages():
            if number in self.clients:
                self.clients[number].messages.append(message)
            if message.qos and self.handles:
                handled.append((number, message.copy_id))
        self.hive.handled(handled)
        for client in list(self.clients.values()):
            if (deadline := client.control.poll_timeout()) is not None and deadline <= clock():
                client.control.handle_timeout(clock())
            while (outcome := client.control.poll_outcome()) is not None:
                client.outcomes.append(outcome)
                if isinstance(outcome, TakenOver):
                    self.hive.close_member(client.number)

    def _decide_for(self, number: int, terms: SessionTerms) -> Client:
        control = ClientControl(self.hive.member(number), self._random, self._root, terms)
        self.clients[number] = Client(number, control)
        return self.clients[number]


@contextmanager
def gateway_up(root: Address, workers: int = 1) -> Iterator[Gateway]:
    """A gateway, until the end; then it is gone as one is that was killed."""
    gateway = Gateway(root, workers)
    try:
        yield gateway
    finally:
        gateway.hive.shutdown()
