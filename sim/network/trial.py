"""One run: a plan, carried out on a network whose every step is watched.

Three parts: the first nodes join and the clients subscribe; the plan's actions, in their time; then the
paths are clear, whoever was stopped or cut off goes on, and after a settling time everything has to work
again and then to be quiet. The run ends with its first violation, which is the verdict together with the
last that happened before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from hbroker._native import LinkDownEvent
from hbroker.config import NodeSettings
from hbroker.protocol.core import Event
from hbroker.protocol.notices import LeaseLost, Refused, TookBack
from hbroker.protocol.packets import Reason
from hbroker.protocol.subscription import Options

from .deliveries import Deliveries, Sent, payload_of
from .hosts import ClientHost, Host, NodeHost
from .invariants import Bounds, Invariant, Ownership, Violation
from .paths import CLEAR, Faults
from .plan import (
    ROOT,
    SECOND,
    Action,
    Continue,
    Crash,
    Heal,
    Join,
    Leave,
    Part,
    Plan,
    Publish,
    Restart,
    Stop,
    Subscribe,
    describe,
)
from .world import Datagram, World

__all__ = ["Trial", "Verdict"]

NOTICING: Final = 17 * SECOND
"""An idle timeout and a keep-alive: after that everyone knows whom he has lost."""
SETTLING: Final = 75 * SECOND
"""Longer than the longest way back: a lease, its drift, an idle timeout, and a few refused requests."""
RECOVERY: Final = 20 * SECOND
"""How long the messages may take that prove that everything works again."""
QUIET: Final = 10 * SECOND
ACK_QUEUED = False
"""Whether publishers ask for the weaker acknowledgement: then what is acknowledged may be lost."""
KEPT: Final = 60
"""Lines of the transcript before a violation."""
IDLE: Final = frozenset({"ping", "pong", "join", "joinack", "challenge", ""})
"""What is sent where there is nothing to do: keep-alives, renewals of leases and of tokens."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ended. `violation` None: everything held. `tail`: what happened last."""

    seed: int
    violation: Violation | None
    tail: tuple[str, ...]
    messages: int
    acknowledged: int
    datagrams: int


class Broken(Exception):
    """Ends a run at its first violation."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.text)
        self.violation = violation


class Trial:
    """A plan's network, and those who watch it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._world = World(plan.seed)
        self._settings: dict[str, NodeSettings] = {}
        self._hosts: dict[str, Host] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._left: set[str] = set()
        self._apart: list[frozenset[str]] = []
        self._paths = CLEAR
        self._ownership = Ownership(self._world, plan.topics)
        self._deliveries = Deliveries(self._ownership, plan.topics, lambda: self._world.now)
        self._bounds = Bounds(self._world)
        self._tail: deque[str] = deque(maxlen=KEPT)
        self._noticed: dict[int, int] = {}
        self._began = self._world.now
        self._messages = self._datagrams = 0
        self._numbers: dict[str, int] = {}
        self._busy: list[str] | None = None
        """What left a host that should be quiet; None: it is not yet to be quiet."""
        self._world.path = self._path
        self._world.watch = self._watch
        self._world.acted = self._acted
        self._world.heard = self._heard

    def run(self) -> Verdict:
        """Carries the plan out."""
        violation = None
        try:
            self._begin()
            for action in self._plan.actions:
                self._run_until(self._began + action.at)
                self._take(action)
            self._end()
        except Broken as broken:
            violation = broken.violation
            self._say(f"VIOLATION: {violation.invariant.value}: {violation.text}")
        acknowledged = self._deliveries.acknowledged
        return Verdict(
            self._plan.seed, violation, tuple(self._tail), self._messages, acknowledged, self._datagrams
        )

    # Parts

    def _begin(self) -> None:
        for node in self._plan.nodes:
            address = self._world.new_address()
            root = None if node.name == ROOT else self._settings[ROOT].listen
            self._settings[node.name] = NodeSettings(
                node.name, node.subtree, address, root, policy=node.policy
            )
            self._names[address] = node.name
        for name in self._plan.first:
            self._start_node(name)
            self._await(partial(self._serves, name), f"{name} serves")
        for name in self._plan.clients:
            self._start_client(name)
        self._paths = self._plan.paths
        self._began = self._world.now

    def _end(self) -> None:
        """§4.6 of the design: whatever was broken works again by itself."""
        self._say("all is healed")
        self._paths, self._apart = CLEAR, []
        for host in list(self._hosts.values()):
            if host.is_stopped:
                host.go_on()
        self._run_until(self._world.now + NOTICING)
        deadline = self._world.now + SETTLING
        while complaints := self._complaints():
            self._require(self._world.now < deadline, "; ".join(complaints))
            self._run_until(self._world.now + SECOND // 2)
        self._prove(self._plan.topics)
        self._run_until(self._world.now + 20 * SECOND)
        self._busy = []
        self._run_until(self._world.now + QUIET)
        if self._busy:
            self._fail(Invariant.QUIET, "; ".join(self._busy[:5]))
        self._check(self._bounds.look_at_the_end())

    def _complaints(self) -> list[str]:
        """What does not work."""
        living = {name for name, host in self._hosts.items() if isinstance(host, NodeHost)} - self._left
        idle = sorted(name for name in living if not self._serves(name) and not self._is_refused(name))
        unowned = [topic for topic in self._plan.topics if self._ownership.serves(topic) is None]
        unanswered = self._deliveries.open
        return [
            *(f"{name} is not serving" for name in idle),
            *(f"nobody serves {topic}" for topic in unowned),
            *([f"{unanswered} messages have no answer"] if unanswered else []),
            *(f"{subscription} is not made" for subscription in self._deliveries.unmade()),
        ]

    def _is_refused(self, name: str) -> bool:
        """Whether a node may not serve, because another holds its subtree or a part of it: see `EXEMPT`."""
        host = self._hosts[name]
        assert isinstance(host, NodeHost)
        told = [n for n in host.notices if isinstance(n, Refused) and n.subtree == host.settings.subtree]
        return bool(told) and told[-1].reason == Reason.REASON_OVERLAP

    def _prove(self, topics: tuple[str, ...]) -> None:
        """A message to each topic reaches everyone who is subscribed."""
        publisher = self._start_client("proof")
        for topic in topics:
            sent = self._publish("proof", publisher, topic, 1, 0)
            self._await(lambda: not self._deliveries.open, f"{sent} is acknowledged")
            missing = self._deliveries.missing(payload_of(sent), topic)
            self._require(not missing, f"{' '.join(missing)} got nothing of {sent}")

    # Actions

    def _take(self, action: Action) -> None:
        if not isinstance(action, Publish):
            self._say(describe(action))
        match action:
            case Join():
                self._start_node(action.node)
            case Leave():
                host = self._running(action.node)
                if isinstance(host, NodeHost):
                    self._left.add(action.node)
                    host.control.leave(self._world.now)
                    self._world.settle(host)
            case Part():
                self._apart.append(action.hosts)
            case Heal():
                self._apart.remove(action.hosts)
            case Stop() if (host := self._running(action.host)) is not None:
                host.stop()
            case Continue() if (host := self._hosts.get(action.host)) is not None and host.is_stopped:
                host.go_on()
            case Crash():
                self._crash(action.host)
            case Restart():
                self._restart(action.host, action.remembers)
            case Subscribe():
                client = self._running(action.client)
                if isinstance(client, ClientHost):
                    self._subscribe(client, action)
            case Publish():
                client = self._running(action.client)
                if isinstance(client, ClientHost):
                    self._publish(action.client, client, action.topic, action.qos, action.size)
            case _:
                pass

    def _start_node(self, name: str) -> None:
        if name not in self._hosts:
            self._enter(name, NodeHost(self._world, self._settings[name]))

    def _start_client(self, name: str) -> ClientHost:
        client = ClientHost(self._world, self._settings[ROOT].listen, name)
        self._enter(name, client)
        self._deliveries.start(name, client)
        return client

    def _enter(self, name: str, host: Host) -> None:
        self._names[host.address] = name
        self._hosts[name] = host
        self._bounds.count(host)

    def _crash(self, name: str) -> None:
        host = self._hosts.get(name)
        if host is None or self._world.hosts.get(host.address) is not host:
            return
        self._world.remove(host)
        if isinstance(host, NodeHost):
            self._deliveries.break_owner(host)
        elif isinstance(host, ClientHost):
            self._deliveries.end(host)

    def _restart(self, name: str, remembers: bool) -> None:
        host = self._hosts.get(name)
        if host is None or self._world.hosts.get(host.address) is host or name in self._left:
            return
        if isinstance(host, NodeHost):
            if not remembers:
                self._ownership.forget(host)
            self._enter(name, host.restart(remembers=remembers))
        else:
            self._start_client(name)

    def _subscribe(self, client: ClientHost, wanted: Subscribe) -> None:
        subscription = client.control.subscribe(self._world.now, wanted.filter, Options(qos=wanted.qos))
        self._deliveries.subscribe(client, subscription, wanted.filter, wanted.qos)
        self._bounds.subscribed()
        self._world.settle(client)

    def _publish(self, name: str, client: ClientHost, topic: str, qos: int, size: int) -> Sent:
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        sent = Sent(name, number, topic, qos, self._world.now)
        payload = payload_of(sent)
        sequence = client.engine.publish(topic, payload.ljust(size, b"."), qos, ack_queued=ACK_QUEUED)
        if sequence is not None:
            self._messages += 1
            self._deliveries.publish(client, sequence, payload, sent)
        self._world.settle(client)
        return sent

    def _running(self, name: str) -> Host | None:
        host = self._hosts.get(name)
        runs = host is not None and self._world.hosts.get(host.address) is host and not host.is_stopped
        return host if runs else None

    def _serves(self, name: str) -> bool:
        host = self._running(name)
        return host is None or (isinstance(host, NodeHost) and host.control.is_serving)

    # Watching

    def _acted(self, host: Host) -> None:
        match host:
            case NodeHost():
                self._read_notices(host)
                before = self._ownership.changes
                self._check(self._ownership.look(host))
                is_new = self._ownership.changes != before
                self._check(self._deliveries.look_at_owner(host, closely=is_new))
                if host.settings.name in self._left and host.control.has_stopped:
                    self._crash(host.settings.name)
            case ClientHost():
                self._check(self._deliveries.look_at_client(host))

    def _read_notices(self, host: NodeHost) -> None:
        read = self._noticed.get(host.incarnation, 0)
        for notice in host.notices[read:]:
            self._say(f"{host.settings.name}: {notice}")
            if isinstance(notice, LeaseLost | TookBack):
                self._deliveries.break_below(notice.subtree)
        self._noticed[host.incarnation] = len(host.notices)

    def _heard(self, host: Host, event: Event) -> None:
        if isinstance(event, LinkDownEvent):
            self._say(f"{self._name(host.address)}: link to {self._name(event.address)} down: {event.reason}")
            if event.inbound:
                self._deliveries.break_session(event.session, host.address)
            else:
                self._deliveries.break_session(host.session, event.address)

    def _watch(self, datagram: Datagram) -> None:
        self._datagrams += 1
        if self._busy is not None:
            odd = set(datagram.kinds()) - IDLE
            if odd:
                ends = f"{self._name(datagram.source)} to {self._name(datagram.destination)}"
                self._busy.append(f"{' '.join(sorted(odd))} from {ends}")

    def _path(self, datagram: Datagram) -> Faults | None:
        ends = {self._name(datagram.source), self._name(datagram.destination)}
        is_cut = any(len(ends & apart) == 1 for apart in self._apart)
        return None if is_cut else self._paths

    # Verdict

    def _run_until(self, end: int) -> None:
        """Lets time pass, and looks at the gauges each second of it."""
        while self._world.now < end:
            self._world.run(min(SECOND, end - self._world.now))
            self._check(self._bounds.look())

    def _await(self, done: Callable[[], bool], what: str) -> None:
        deadline = self._world.now + RECOVERY
        while not done():
            self._require(self._world.now < deadline, f"not within {RECOVERY // SECOND} s: {what}")
            self._world.run(SECOND // 20)

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            self._fail(Invariant.RECOVERS, text)

    def _check(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            raise Broken(violation)

    def _fail(self, invariant: Invariant, text: str) -> None:
        raise Broken(Violation(self._world.now, invariant, text))

    def _name(self, address: tuple[str, int]) -> str:
        return self._names.get(address, f"{address[0]}:{address[1]}")

    def _say(self, text: str) -> None:
        self._tail.append(f"{(self._world.now - self._began) / SECOND:10.6f} {text}")
