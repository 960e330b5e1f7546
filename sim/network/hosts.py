"""A host: one engine, its control, and its address.

Control and engine talk as under `hbroker.runtime`: events of the engine go to the control, which calls the
engine's verbs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from hbroker._native import Config, Engine, Message
from hbroker.config import NodeSettings
from hbroker.protocol.client import ClientControl
from hbroker.protocol.core import Event
from hbroker.protocol.jurisdiction import Delegation
from hbroker.protocol.node import Node
from hbroker.protocol.notices import Notice
from hbroker.protocol.outcome import Outcome
from hbroker.protocol.subscribers import Subscription
from hbroker.protocol.subscription import Options

if TYPE_CHECKING:
    from .world import Address, World

__all__ = ["ClientHost", "Host", "NodeHost"]

SOCKET_BUFFER: Final = 256
"""Datagrams that wait in the socket of a process that is stopped; the kernel drops what comes on top."""


class _Control(Protocol):
    def handle_event(self, now: int, event: Event) -> None: ...
    def handle_timeout(self, now: int) -> None: ...
    def poll_timeout(self) -> int | None: ...


class Host:
    """One engine and its control, at one address of a world."""

    control: _Control

    def __init__(self, world: World, address: Address, *, node: bool, token_key: bytes) -> None:
        random = world.random
        self.world = world
        self.address = address
        self.incarnation = random.getrandbits(64)
        self.session = random.getrandbits(63) + 1
        self.scheduled: int | None = None
        self.is_stopped = False
        self._socket: deque[tuple[Address, bytes]] = deque()
        self.engine = Engine(
            Config(
                node=node,
                session=self.session,
                incarnation=self.incarnation,
                publisher=random.getrandbits(64),
                token_keys=[token_key] if node else [],
                seed=random.getrandbits(64),
            )
        )
        self.engine.handle_timeout(world.now)

    def stop(self) -> None:
        """As by SIGSTOP: nothing runs, and what arrives waits in the socket, as long as there is room."""
        self.is_stopped = True

    def go_on(self) -> None:
        """As by SIGCONT. The engine's thread is the first to run: it reads its socket before Python wakes."""
        self.is_stopped = False
        while self._socket:
            self.engine.handle_datagram(self.world.now, *self._socket.popleft())
        self.handle_timeout(self.world.now)
        self.world.settle(self)

    def handle_datagram(self, now: int, source: Address, data: bytes) -> None:
        """Takes a datagram in, or leaves it in the socket."""
        if not self.is_stopped:
            self.engine.handle_datagram(now, source, data)
        elif len(self._socket) < SOCKET_BUFFER:
            self._socket.append((source, data))

    def handle_timeout(self, now: int) -> None:
        """Does what is due."""
        if self.is_stopped:
            return
        self.engine.handle_timeout(now)
        self.control.handle_timeout(now)

    def catch_up(self) -> None:
        """Tells the engine the time, before its application acts: it knows no other than it was last told."""
        self.engine.handle_timeout(self.world.now)

    def settle(self, now: int) -> None:
        """Takes the engine's events to the control until there are no more."""
        while events := self.engine.poll_events():
            for event in events:
                self.world.heard(self, event)
                self.control.handle_event(now, event)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        deadlines = (self.engine.poll_timeout(), self.control.poll_timeout())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)


class NodeHost(Host):
    """A node. Nodes of one world have one token key each, as processes have that share none.

    `restored`: what an earlier run of it had delegated; `recalled`: who had subscribed there.
    """

    def __init__(
        self,
        world: World,
        settings: NodeSettings,
        restored: Iterable[Delegation] = (),
        recalled: Iterable[Subscription] = (),
    ) -> None:
        super().__init__(world, settings.listen, node=True, token_key=world.random.randbytes(16))
        self.settings = settings
        self.notices: list[Notice] = []
        self.delegations: list[Delegation] = list(restored)
        """What its file of delegations holds."""
        self.subscriptions = {(s.session, s.filter): s for s in recalled}
        """What its file of subscriptions holds."""
        self.control: Node = Node(
            settings,
            self.engine,
            world.random,
            incarnation=self.incarnation,
            unix_offset_us=0,
            restored=self.delegations,
            remember=self._remember,
            recalled=list(self.subscriptions.values()),
            note=self._note,
        )
        self.control.start(world.now)
        world.add(self)

    def settle(self, now: int) -> None:
        super().settle(now)
        while notice := self.control.poll_notice():
            self.notices.append(notice)

    def kill(self) -> None:
        """Ends as a process does that is killed."""
        self.world.remove(self)

    def restart(self, *, remembers: bool = False) -> NodeHost:
        """Begins anew, at the same address; `remembers`: it reads its files."""
        memory = (self.delegations, self.subscriptions.values()) if remembers else ((), ())
        return NodeHost(self.world, replace(self.settings), *memory)

    def _remember(self, delegations: Sequence[Delegation]) -> None:
        self.delegations = [replace(delegation) for delegation in delegations]

    def _note(self, subscription: Subscription, ended: bool) -> None:
        if ended:
            self.subscriptions.pop((subscription.session, subscription.filter), None)
        else:
            self.subscriptions[subscription.session, subscription.filter] = subscription


class ClientHost(Host):
    """A client: its application publishes and subscribes by the methods here."""

    def __init__(self, world: World, root: Address, name: str = "") -> None:
        super().__init__(world, world.new_address(), node=False, token_key=b"")
        self.outcomes: list[Outcome] = []
        self.messages: list[Message] = []
        self.control: ClientControl = ClientControl(self.engine, world.random, root, name)
        world.add(self)

    def settle(self, now: int) -> None:
        super().settle(now)
        self.messages += self.engine.poll_messages()
        while outcome := self.control.poll_outcome():
            self.outcomes.append(outcome)
        super().settle(now)

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> int | None:
        """Publishes; the sequence number of the message, or None where there is no room."""
        self.catch_up()
        sequence = self.engine.publish(topic, payload, qos, retain)
        self.world.settle(self)
        return sequence

    def subscribe(self, filter: str, qos: int = 0) -> int:
        """Subscribes; the id under which its outcome is told."""
        self.catch_up()
        subscription = self.control.subscribe(self.world.now, filter, Options(qos=qos))
        self.world.settle(self)
        return subscription

    def unsubscribe(self, subscription: int) -> None:
        """Ends a subscription."""
        self.catch_up()
        self.control.unsubscribe(self.world.now, subscription)
        self.world.settle(self)

    def resolve(self, topic: str, *, trace: bool = False) -> int:
        """Asks who owns a topic; the ticket under which the answer is told."""
        self.catch_up()
        ticket = self.control.resolve(self.world.now, topic, trace=trace)
        self.world.settle(self)
        return ticket

    def leave(self) -> None:
        """Says goodbye to every owner, as a client does that closes."""
        self.catch_up()
        self.control.leave()
        self.world.settle(self)
