"""A host: one engine, its control, and its address.

Control and engine interact as under `hbroker.runtime`: the control handles the engine's events, and calls its
verbs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from hbroker._native import Config, Engine, Message
from hbroker.config import NodeSettings
from hbroker.identity.certificate import NodeCertificate
from hbroker.identity.revocation_list import RevocationAuthority
from hbroker.identity.revoked_file import RevokedFile
from hbroker.protocol.client import ClientControl
from hbroker.protocol.core import Event
from hbroker.protocol.events import NodeEvent
from hbroker.protocol.node import Node
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.resolution.caches import ResolverCaches
from hbroker.protocol.results import Result, TakenOver
from hbroker.protocol.sessions.client_rights import VerifyToken
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.protocol.subscriptions.client.options import Key, Options
from hbroker.protocol.timers import earliest
from hbroker.protocol.wills.client_will import Will
from hbroker.runtime.credentials import node_certificate

from .storage.files import NodeFiles, SimulatedStorage

if TYPE_CHECKING:
    from .plan import Pace
    from .world import Address, World

__all__ = ["ClientHost", "Host", "NodeHost"]

MILLION: Final = 1_000_000
CREDIT: Final = 4_096
"""Default credit of a client in messages (§9)."""
QUEUE: Final = 10_000
"""Default bound on the messages that wait for a session (§9)."""
SPOOL_BYTES: Final = 500
"""If a subtree comes with more bytes in queues, they go to the store while it comes."""
SOCKET_BUFFER: Final = 256
"""Datagrams that wait in the socket of a stopped process. The kernel drops further ones."""


class _Control(Protocol):
    def handle_event(self, now: int, event: Event) -> None: ...
    def handle_timeout(self, now: int) -> None: ...
    def poll_timeout(self) -> int | None: ...


class Host:
    """One engine and its control, at one address of a world.

    `name`: the node's, for its certificate; empty: it has none.
    """

    control: _Control

    def __init__(
        self,
        world: World,
        address: Address,
        *,
        node: bool,
        token_key: bytes,
        name: str = "",
        session: int = 0,
        persistent: bool = False,
        named: bool = False,
        credit: int | None = None,
        for_many: bool = False,
        queue_messages: int = 0,
        drift_ppm: int = 0,
        unix_offset_us: int = 0,
    ) -> None:
        random = world.random
        self.world = world
        self.address = address
        self.drift_ppm = drift_ppm
        self.unix_offset_us = unix_offset_us
        """The offset of its wall clock from the others', when it started."""
        self.incarnation = random.getrandbits(64)
        own_session = random.getrandbits(63) + 1
        self.session = session or own_session
        self.scheduled: int | None = None
        self.is_stopped = False
        self.suspended_at: int | None = None
        """When its machine was suspended, in the world's time; None: the machine runs."""
        self.suspended_us = 0
        """How long its machine has been suspended in all."""
        self._stopped_at = 0
        self._stops: list[tuple[int, int]] = []
        """From when to when its process did not run, in the world's time."""
        self.has_decided = True
        """Whether the control has acted since the world last looked."""
        self._control_due: int | None = None
        self._socket: deque[tuple[Address, bytes]] = deque()
        config = Config(
            node=node,
            session=self.session,
            incarnation=self.incarnation,
            token_keys=[token_key] if node else [],
            seed=random.getrandbits(64),
            persistent=persistent,
            named=named,
            receive_messages=CREDIT if credit is None else credit,
            for_many=for_many,
            queue_messages=queue_messages or QUEUE,
            spool_bytes=SPOOL_BYTES,
            credentials=None if world.security is None else world.security.credentials(name, self.session),
            requires_tokens=node and world.security is not None and world.security.requires_tokens,
        )
        self.publisher = config.publisher
        self.engine = Engine(config)
        self.engine.handle_timeout(self.core_clock())

    def clock(self) -> int:
        """The host's monotonic clock (§5.6). Rates of clocks differ a little. A clock runs on while the
        machine is suspended."""
        return self.world.now + self.world.age * self.drift_ppm // MILLION

    def core_clock(self) -> int:
        """The clock of its core: the monotonic clock plus the wall clock's offset at its start (§9)."""
        return self.clock() + self.unix_offset_us

    def world_duration(self, duration: int) -> int:
        """The time of the world in which this host's clock advances by `duration`."""
        return -(duration * MILLION // -(MILLION + self.drift_ppm))

    def stop(self) -> None:
        """As by SIGSTOP: the process does not run, and datagrams wait in its socket as long as there is
        room."""
        if not self.is_stopped:
            self._stopped_at = self.world.now
        self.is_stopped = True

    def suspend(self) -> None:
        """Suspends its machine: the process does not run, and datagrams to it are lost."""
        self.stop()
        self.suspended_at = self.world.now

    def resume(self) -> None:
        """As by SIGCONT, or when its machine resumes.

        The engine's thread runs first: it reads its socket before Python runs.
        """
        self.is_stopped = False
        self._stops.append((self._stopped_at, self.world.now))
        if self.suspended_at is not None:
            self.suspended_us += self.world.now - self.suspended_at
            self.suspended_at = None
        while self._socket:
            self.engine.handle_datagram(self.core_clock(), *self._socket.popleft())
        self.handle_timeout()
        self.world.drive(self)

    def stopped_time(self, since: int) -> int:
        """How long its process has not run since a time of the world."""
        return sum(end - max(start, since) for start, end in self._stops if end > since)

    def handle_datagram(self, source: Address, data: bytes) -> None:
        """Handles a datagram, or leaves it in the socket of a stopped process."""
        if not self.is_stopped:
            self.engine.handle_datagram(self.core_clock(), source, data)
        elif self.suspended_at is None and len(self._socket) < SOCKET_BUFFER:
            self._socket.append((source, data))

    def handle_timeout(self) -> None:
        """Does everything that is due now."""
        if self.is_stopped:
            return
        now = self.clock()
        self.engine.handle_timeout(self.core_clock())
        if self._control_due is not None and now >= self._control_due:
            self.has_decided = True
            self.control.handle_timeout(now)

    def catch_up(self) -> None:
        """Updates the engine's time before its application acts: the engine only knows the time it was last
        given."""
        self.has_decided = True
        self.engine.handle_timeout(self.core_clock())

    def process_events(self) -> None:
        """Gives the engine's events to the control until there are none."""
        while events := self.engine.poll_events():
            self.has_decided = True
            for event in events:
                self.world.on_event(self, event)
                self.control.handle_event(self.clock(), event)

    def poll_transmit(self) -> list[tuple[Address, bytes]]:
        """The datagrams that it sends now: destination and bytes."""
        return self.engine.poll_transmit()

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due, in the world's time; None: never."""
        if self.has_decided:
            self._control_due = self.control.poll_timeout()
        deadline, control_due = self.engine.poll_timeout(), self._control_due
        if deadline is not None:
            deadline -= self.unix_offset_us
        if deadline is None or (control_due is not None and control_due < deadline):
            deadline = control_due
        if deadline is None or not (self.drift_ppm or self.suspended_us):
            return deadline
        return self.world.now + self.world_duration(deadline - self.clock())


class NodeHost(Host):
    """A node. Each node of a world has a token key of its own, like processes that share none.

    `files`: of its earlier runs; None: it is new, and its disk syncs without delay. `drift_ppm`: by how much
    its clock is too fast. `unix_offset_us`: the offset of its wall clock from the others', when it started.
    `queue_messages`: the bound of a session's queue; 0: the default.
    """

    def __init__(
        self,
        world: World,
        settings: NodeSettings,
        files: NodeFiles | None = None,
        *,
        drift_ppm: int = 0,
        unix_offset_us: int = 0,
        queue_messages: int = 0,
    ) -> None:
        key = _token_key(world, settings.name)
        super().__init__(
            world,
            settings.listen,
            node=True,
            token_key=key,
            name=settings.name,
            drift_ppm=drift_ppm,
            unix_offset_us=unix_offset_us,
            queue_messages=queue_messages,
        )
        self._queue_messages = queue_messages
        self.settings = settings
        self.events: list[NodeEvent] = []
        self.files = files or NodeFiles(world, settings)
        self._storage = SimulatedStorage(self.files, self._synced, self._recorded)
        self._store_due: int | None = None
        """When its store does the next turn, in the world's time; None: it has nothing to do."""
        self._store_disk = self.files.store_disk
        self.has_unexplained_damage = False
        """Whether its store has new damage, although no bit has changed since the run before."""
        self.knows_of_damage = False
        """Whether it found damage before it served, so that it told no client that its session was kept."""
        self._has_found_damage = False
        if settings.has_store:
            damage, cut = self.engine.open_store(self.files.store_disk)
            is_new = not self.files.known_damage.issuperset(damage)
            self.has_unexplained_damage = is_new and not self.files.is_flipped
            # Nobody can tell a flipped bit in what was written last from a write that was interrupted.
            self._has_found_damage = is_new or (self.files.is_flipped and cut > 0)
            self.files.known_damage.update(damage)
            self.knows_of_damage = bool(damage)
            self._storage.restored.had_store = self.files.has_store and not damage
            self.files.has_store = True
        self.files.is_flipped = False
        self.control: Node = Node(
            settings,
            self.engine,
            world.random,
            incarnation=self.incarnation,
            unix_offset_us=unix_offset_us,
            restored=self._storage.restored,
            storage=self._storage,
            certificates=None if world.security is None else self._certificate_of,
            verify_token=_verify_token(world),
            authorities=_authorities(world),
        )
        self.control.start(self.clock())
        self.engine.run_store()
        world.add(self)

    def process_events(self) -> None:
        super().process_events()
        while node_event := self.control.poll_event():
            self.events.append(node_event)

    def handle_timeout(self) -> None:
        if not self.is_stopped:
            self._storage.handle_timeout()
            self._turn_store()
        super().handle_timeout()

    def poll_transmit(self) -> list[tuple[Address, bytes]]:
        sent = super().poll_transmit()
        if self._store_due is None and self.engine.awaits_store():
            sync = self.files.sync_us
            delay = self.files.random.randint(sync // 2, 2 * sync) if sync else 1
            self._store_due = self.world.now + delay
        return sent

    def poll_timeout(self) -> int | None:
        return earliest(super().poll_timeout(), self._storage.poll_timeout(), self._store_due)

    def kill(self, *, with_machine: bool = False) -> None:
        """Ends as a process that is killed. `with_machine`: because its machine loses power."""
        self.world.remove(self)
        self._storage.die()
        if with_machine:
            self.files.lose_power()

    def restart(self, *, remembers: bool = False, clock_step_us: int = 0) -> NodeHost:
        """Starts again at the same address. `remembers`: it reads all its files, not only that of its claims.

        `clock_step_us`: by how much its wall clock was set in the meantime.
        """
        if not remembers:
            self.files.forget()
        return NodeHost(
            self.world,
            replace(self.settings),
            self.files,
            drift_ppm=self.drift_ppm,
            unix_offset_us=self.unix_offset_us + clock_step_us,
            queue_messages=self._queue_messages,
        )

    @property
    def claims(self) -> Sequence[str]:
        """The subtrees that it claims: those of its settings, or those that it noted since."""
        saved = self._storage.claims
        return (self.settings.subtree,) if saved is None else saved

    @property
    def has_epoch_limit(self) -> bool:
        """Whether its run began with a saved limit of epochs."""
        return self._storage.restored.epoch_limit is not None

    @property
    def keeps_what_waits(self) -> bool:
        """Whether its next run has what it acknowledged for sessions that were offline: it has a store, and
        has told no client of a subscription that its disk does not have."""
        is_saved = self._storage.durable == self._storage.written or not self.files.has_failed
        is_working = self.files.disk.free_bytes is None and self.files.disk.error is None
        return self.settings.has_store and is_saved and is_working

    def finds_damage(self) -> bool:
        """Whether it has reported damage of its store since the last call."""
        found = self._has_found_damage or bool(self.engine.take_store_damage())
        self._has_found_damage = False
        return found

    @property
    def has_lost_store(self) -> bool:
        """Whether a sync of its store has failed, so that its process has to end."""
        fault = self.engine.store_fault
        return fault is not None and fault[0]

    @property
    def delegations(self) -> dict[str, Delegation]:
        """What it delegated, by subtree, as it noted it."""
        return self._storage.delegations

    @property
    def subscriptions(self) -> dict[tuple[int, Key], Subscription]:
        """Its subscriptions, as it noted them."""
        return self._storage.subscriptions

    def is_next_run_of(self, before: NodeHost) -> bool:
        """Whether this is a later run of a node, with its store."""
        return self.files is before.files and self._store_disk is before._store_disk

    def is_serving_subtree(self, subtree: str) -> bool:
        """Whether it was granted exactly this subtree, and serves it."""
        grant = self.control.jurisdiction.grant_of(subtree)
        return grant is not None and grant.serving

    def owns(self, topic: str) -> bool:
        """Whether it would accept a message to this topic now."""
        return self.engine.owns(self.core_clock(), topic)

    def take_revoked(self, file: RevokedFile) -> None:
        """Its process reads the authority's list of revoked tokens."""
        self.has_decided = True
        self.control.revocations.take_file(file.authority, file.records)
        self.world.drive(self)

    def leave(self) -> None:
        """Hands back what it owns."""
        self.has_decided = True
        self.control.leave(self.clock())
        self.world.drive(self)

    def _certificate_of(self, peer: Address) -> NodeCertificate | None:
        certificate = self.engine.certificate(peer)
        return None if certificate is None else node_certificate(certificate)

    def _turn_store(self) -> None:
        """Stores what was submitted, and reads what was requested, as the thread of a real store does."""
        if self._store_due is not None and self.world.now >= self._store_due:
            self._store_due = None
            self.engine.turn_store()
            self.has_decided = True

    def _synced(self) -> None:
        """More is on the disk, or the disk fails: the control may have waited for that."""
        self.has_decided = True

    def _recorded(self) -> None:
        if self.world.on_record is not None:
            self.world.on_record(self)


class ClientHost(Host):
    """A client. Its application uses the methods `publish`, `subscribe` and so on.

    `session_options`: with a `session` if another run is to have the same one. `credit`: in messages; None:
    the default. `for_many`: it publishes for many (§7.7). `pace`: how it reads, if it reads slowly.
    `address`: None: a new one.
    """

    def __init__(
        self,
        world: World,
        root: Address,
        name: str = "",
        session_options: SessionOptions | None = None,
        *,
        credit: int | None = None,
        for_many: bool = False,
        pace: Pace | None = None,
        address: Address | None = None,
    ) -> None:
        session_options = session_options or SessionOptions(name)
        super().__init__(
            world,
            address or world.new_address(),
            node=False,
            token_key=b"",
            session=session_options.session,
            persistent=session_options.is_persistent,
            named=session_options.is_named,
            credit=credit,
            for_many=for_many,
        )
        self.grants_little = credit is not None or pace is not None
        self.pace = pace
        """How it reads; None: everything that has arrived."""
        self._reads_at = 0
        self._may_have_more = False
        self.results: list[Result] = []
        self.messages: list[Message] = []
        self.control: ClientControl = ClientControl(
            self.engine,
            world.random,
            root,
            replace(session_options, session=self.session),
            caches=ResolverCaches(owner_cache=world.owner_cache, answer_cache=world.answer_cache),
        )
        world.add(self)

    def process_events(self) -> None:
        super().process_events()
        self._read()
        while result := self.control.poll_result():
            self.results.append(result)
            if isinstance(result, TakenOver):
                self.kill()
        super().process_events()

    def poll_timeout(self) -> int | None:
        return earliest(super().poll_timeout(), self._reads_at if self._may_have_more else None)

    def _read(self) -> None:
        if self.pace is None:
            self.messages += self.engine.poll_messages()
            self._may_have_more = False
        elif self.world.now >= self._reads_at:
            messages = self.engine.poll_messages(self.pace.messages)
            self.messages += messages
            self._may_have_more = bool(messages)
            if messages:
                self._reads_at = self.world.now + self.pace.every_us

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> int | None:
        """Publishes a message. Returns its sequence number; None: there is no room."""
        self.catch_up()
        sequence = self.engine.publish(topic, payload, qos, retain)
        self.world.drive(self)
        return sequence

    def subscribe(self, filter: str, qos: int = 0, group: str = "", *, retain_handling: int = 0) -> int:
        """Subscribes. Returns the id of its result."""
        self.catch_up()
        options = Options(qos=qos, retain_handling=retain_handling)
        subscription = self.control.subscribe(self.clock(), filter, options, group=group)
        self.world.drive(self)
        return subscription

    def unsubscribe(self, subscription: int) -> None:
        """Ends a subscription."""
        self.catch_up()
        self.control.unsubscribe(self.clock(), subscription)
        self.world.drive(self)

    def resolve(self, topic: str, *, trace: bool = False) -> int:
        """Asks for the owner of a topic. Returns the ticket of the result."""
        self.catch_up()
        lookup_id = self.control.resolve(self.clock(), topic, trace=trace)
        self.world.drive(self)
        return lookup_id

    def set_will(self, will: Will) -> None:
        """Registers its will. The outcome is a result."""
        self.catch_up()
        self.control.set_will(self.clock(), will)
        self.world.drive(self)

    def leave(self, *, end_session: bool = False) -> None:
        """Leaves every owner, as a client that closes."""
        self.catch_up()
        self.control.leave(end_session=end_session)
        self.world.drive(self)

    def kill(self) -> None:
        """Ends as a process that is killed. Idempotent."""
        if self.world.hosts.get(self.address) is self:
            self.world.remove(self)


def _verify_token(world: World) -> VerifyToken | None:
    security = world.security
    return security.verify_token if security is not None and security.requires_tokens else None


def _authorities(world: World) -> list[RevocationAuthority]:
    security = world.security
    return security.authorities() if security is not None and security.requires_tokens else []


def _token_key(world: World, node: str) -> bytes:
    """The key of a node's address tokens. Without security each run draws its own, as without a join key."""
    drawn = world.random.randbytes(16)
    return drawn if world.security is None else world.security.token_key(node)
