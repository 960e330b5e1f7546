"""A fake of the native half of a gateway, over real engines. Its pool clients are hosts of a simulated world.

The fake does with MQTT packets only what the gateway's decisions can see. A session stores the messages that
arrive for it. An open connection receives them at once and acknowledges them. Held messages wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from hbroker._native import Attempts, Config, Engine, Message
from hbroker.gateway.native_api import (
    Accept,
    ClosedEvent,
    InFlight,
    PoolClientCore,
    Rule,
    SessionState,
    SubscribeOptions,
)
from hbroker.protocol.core import Event
from hbroker.sim.network import Host

if TYPE_CHECKING:
    from hbroker.gateway.control import Gateway
    from hbroker.sim.network import World


@dataclass
class ConnectionStatus:
    """What the gateway reads of `hbroker._native.ConnectionStatus`."""

    connection: int
    messages_in: int
    messages_out: int
    queued: int
    dropped: int


@dataclass
class FakeListener:
    session: int
    filter: str
    options: SubscribeOptions
    identifier: int
    waits_for: int | None


@dataclass
class FakeSession:
    """`taken`: the messages that the client has received. `waiting`: those that arrived while it could not
    receive them."""

    state: SessionState
    connection: int | None = None
    taken: list[tuple[str, bytes, bool]] = field(default_factory=list)
    waiting: list[tuple[int, Message, list[int]]] = field(default_factory=list)


class MemberHost(Host):
    """The engine of one pool client, at an address of its own."""

    def __init__(self, native_api: FakeNativeApi, number: int, session: int, persistent: bool) -> None:
        world = native_api.world
        super().__init__(
            world, world.new_address(), node=False, token_key=b"", session=session, persistent=persistent
        )
        self.engine = Engine(
            Config(
                node=False,
                session=self.session,
                incarnation=self.incarnation,
                token_keys=[],
                seed=world.random.getrandbits(64),
                persistent=persistent,
                hold=True,
            )
        )
        self.engine.handle_timeout(self.clock())
        self.native_api = native_api
        self.number = number
        self.control = _Control(native_api, number)
        native_api.hosts[number] = self
        world.add(self)

    def process_events(self) -> None:
        super().process_events()
        self.native_api.route(self, self.engine.poll_messages())
        super().process_events()
        self.native_api.settle_others(self)


class _Control:
    """The gateway's control, as the world drives it: the events of each pool client, and one timeout for
    all."""

    def __init__(self, native_api: FakeNativeApi, number: int) -> None:
        self.native_api = native_api
        self.number = number

    def handle_event(self, now: int, event: Event) -> None:
        self.native_api.gateway.handle_event(now, self.number, event)

    def handle_timeout(self, now: int) -> None:
        self.native_api.gateway.handle_timeout(now)

    def poll_timeout(self) -> int | None:
        return (
            self.native_api.gateway.poll_timeout() if self.number == 0 and self.native_api.is_set_up else None
        )


class _Verbs:
    """The core of one pool client. Every verb acts at the world's time. Afterwards the world looks at the
    host, and `meanwhile` runs before the gateway does anything else."""

    def __init__(self, host: MemberHost) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        self._host.engine.handle_timeout(self._host.clock())
        self._host.native_api.touched.add(self._host.number)
        verb = getattr(self._host.engine, name)

        def act(*args: Any, **options: Any) -> Any:
            result = verb(*args, **options)
            self._host.native_api.meanwhile(self._host)
            return result

        return act


class FakeNativeApi:
    """The verbs of `hbroker.gateway.native_api.NativeApi` that the decisions call."""

    gateway: Gateway

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_set_up = False
        self.is_alive = True
        self.touched: set[int] = set()
        self.hosts: dict[int, MemberHost] = {}
        self.sessions: dict[int, FakeSession] = {}
        self.listeners: dict[int, FakeListener] = {}
        self.left: set[int] = set()
        """The listeners of sessions that have left."""
        self.accepted: dict[int, Accept] = {}
        self.refused: dict[int, int] = {}
        self.closed: dict[int, int] = {}
        self.ending: list[int] = []
        """Connections that are closed, and whose end has not been reported to the gateway yet."""
        self.subacks: dict[tuple[int, int], list[int]] = {}
        self.unsubacks: dict[tuple[int, int], list[int]] = {}
        self.auths: list[tuple[int, int, bytes]] = []
        self.acls: dict[int, tuple[Rule, ...]] = {}
        self.assigned: dict[int, int] = {}
        self.log: list[tuple[str, object]] = []
        self.meanwhile: Callable[[MemberHost], None] = lambda host: None
        """The work of a pool client's core between two calls of the gateway, because the core has its own
        thread."""
        self._numbers = 0
        self._sessions = 0
        MemberHost(self, 0, world.random.getrandbits(63) + 1, False)

    # Pool clients

    def member(self, number: int) -> PoolClientCore:
        return cast(PoolClientCore, _Verbs(self.hosts[number]))

    def open_pool_client(self, session: int, *, persistent: bool, incarnation: int) -> int:
        assert session not in {host.session for host in self.hosts.values()}, "one member for a session"
        self._numbers += 1
        MemberHost(self, self._numbers, session, persistent)
        return self._numbers

    def close_pool_client(self, number: int) -> None:
        host = self.hosts.pop(number)
        self.world.remove(host)
        self.touched.discard(number)

    def settle_others(self, settled: MemberHost | None = None) -> None:
        """Lets all pool clients send what the gateway made them send."""
        self.touched.discard(settled.number if settled else -1)
        while self.touched and self.is_alive:
            host = self.hosts.get(self.touched.pop())
            if host is not None and self.world.hosts.get(host.address) is host:
                host.has_decided = True
                self.world.drive(host)
        while self.ending and self.is_alive:
            number = self.ending.pop(0)
            self.gateway.handle_mqtt(self.world.now, ClosedEvent(number, "server"))
            self.settle_others(settled)
        shared = self.hosts[0]
        if settled is not shared and self.is_alive and not shared.is_stopped:
            shared.has_decided = True
            self.world.drive(shared)

    def kill(self) -> None:
        """Ends the process."""
        self.is_alive = False
        for host in self.hosts.values():
            self.world.remove(host)

    # Connections

    def accept(self, connection: int, accept: Accept) -> None:
        assert connection not in self.refused | self.closed
        self.accepted[connection] = accept
        self.log.append(("accept", connection))
        session = self.sessions[accept.session]
        session.connection = connection
        self._hand_over(accept.session)

    def refuse(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        assert connection not in self.accepted | self.refused
        self.refused[connection] = code

    def auth(self, connection: int, reason: int, method: str, data: bytes) -> None:
        self.auths.append((connection, reason, data))

    def disconnect(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        assert connection in self.accepted
        self.closed[connection] = code
        self.ending.append(connection)
        self.log.append(("disconnect", connection))

    def suback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        assert (connection, packet_id) not in self.subacks
        assert connection not in self.closed
        self.subacks[connection, packet_id] = list(codes)
        self.log.append(("suback", (connection, packet_id)))
        session = self.accepted[connection].session
        for listener in self.listeners.values():
            if listener.session == session and listener.waits_for == packet_id:
                listener.waits_for = None
        self._hand_over(session)

    def unsuback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        assert (connection, packet_id) not in self.unsubacks
        self.unsubacks[connection, packet_id] = list(codes)

    # Sessions

    def open_session(self, state: SessionState) -> int:
        self._sessions += 1
        self.sessions[self._sessions] = FakeSession(state)
        return self._sessions

    def export_session(self, session: int, *, is_over: bool = False) -> SessionState:
        ended = self.sessions.pop(session)
        assert ended.connection not in self.ending
        assert ended.connection is None or not self.is_open(ended.connection)
        self.left |= {n for n, known in self.listeners.items() if known.session == session}
        self.listeners = {n: known for n, known in self.listeners.items() if known.session != session}
        for pool_client, message, _ in ended.waiting:
            if pool_client == 0 or (is_over and message.qos == 2):
                self._handled(pool_client, [message])
        in_flight = tuple(
            InFlight(index, message.publisher, message.sequence, message.qos)
            for index, (pool_client, message, _) in enumerate(ended.waiting, 1)
            if pool_client and message.qos
        )
        return SessionState(in_flight, ended.state.received, ended.state.block)

    # Listeners

    def attach_listener(
        self,
        listener: int,
        session: int,
        filter: str,
        options: SubscribeOptions,
        identifier: int,
        *,
        packet_id: int | None,
    ) -> None:
        assert session in self.sessions
        self.listeners[listener] = FakeListener(session, filter, options, identifier, packet_id)

    def detach_listener(self, listener: int) -> None:
        self.listeners.pop(listener, None)

    def deliver(
        self, listener: int, topic: str, payload: bytes, *, qos: int = 0, retained: bool = False
    ) -> None:
        self.sessions[self.listeners[listener].session].taken.append((topic, payload, retained))

    # Policy

    def install_acl(self, acl: int, rules: Sequence[Rule]) -> None:
        self.acls[acl] = tuple(rules)

    def assign_acl(self, connection: int, acl: int) -> None:
        assert acl in self.acls
        self.assigned[connection] = acl

    def forget_acl(self, acl: int) -> None:
        del self.acls[acl]

    def refuse_guesses(self, attempts: Attempts | None) -> None:
        self.attempts = attempts

    # Read

    def connections(self, most: int) -> list[ConnectionStatus]:
        open = [number for number in self.accepted if self.is_open(number)]
        return [ConnectionStatus(number, 1, 2, 0, 0) for number in open[:most]]

    def gateway_counters(self) -> dict[str, int]:
        return {"packets_in": 7, "messages_in": 3}

    def is_open(self, connection: int) -> bool:
        return connection in self.accepted and connection not in self.closed

    # Messages

    def route(self, host: MemberHost, messages: list[Message]) -> None:
        """Hands each message to the sessions whose listeners it matches, as the core does, and all others
        to the gateway."""
        for message in messages:
            mine = [n for n in message.subscriptions if n in self.listeners]
            sessions = {self.listeners[n].session for n in mine}
            for session in sessions:
                its = [n for n in mine if self.listeners[n].session == session]
                self.sessions[session].waiting.append((host.number, message, its))
                self._hand_over(session)
            is_own = message.publisher == self.hosts[0].publisher and not message.retained
            if is_own and not sessions and not host.number:
                self.member(0).handled([message.copy_id])
            elif not sessions and not (host.number and self.left.intersection(message.subscriptions)):
                self.gateway.handle_message(host.clock(), host.number, message)
                self.hosts[0].has_decided = True

    def _hand_over(self, number: int) -> None:
        """Hands the client the messages that it can receive now, and acknowledges them."""
        session = self.sessions[number]
        if session.connection is None:
            return
        waiting, session.waiting = session.waiting, []
        for pool_client, message, listeners in waiting:
            known = [self.listeners[n] for n in listeners if n in self.listeners]
            if known and all(listener.waits_for is not None for listener in known):
                session.waiting.append((pool_client, message, listeners))
                continue
            session.taken.append((message.topic, bytes(message.payload), message.retained))
            self._handled(pool_client, [message])

    def _handled(self, pool_client: int, messages: list[Message]) -> None:
        done = [m.copy_id for m in messages if m.qos]
        if done and pool_client in self.hosts:
            self.member(pool_client).handled(done)
