"""One run: a plan, carried out on a network of which every step is checked.

It has three phases. The first nodes join and the clients subscribe. Then the plan's actions follow, in their
time. Then the paths are clear and every stopped or separated process continues; after a settling time
everything must work again, and then be quiet. The run ends with its first violation, which is the result,
together with the last events before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from hbroker._native import ControlEvent, LinkDownEvent, OverflowEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import Event
from hbroker.protocol.events import LeaseLost, TookBack
from hbroker.protocol.packets import body_of
from hbroker.protocol.resolution.caches import AnswerCache, OwnerCache

from .actions import Publish, describe
from .attacker import Attacker
from .checks.deliveries import Deliveries
from .hosts import ClientHost, Host, NodeHost
from .invariants import Bounds, Invariant, Ownership, Violation
from .paths import Bottleneck
from .plan import SECOND, Plan
from .processes import Processes
from .security import SimulatedSecurity
from .stage import Stage
from .world import Datagram, World

__all__ = ["Trial", "TrialResult"]

NOTICING: Final = 17 * SECOND
"""An idle timeout and a keep-alive: after that every process knows which links it has lost."""
SETTLING: Final = 75 * SECOND
"""Longer than the longest recovery: a lease, its drift, an idle timeout, and a few refused requests."""
RECOVERY: Final = 20 * SECOND
"""How long the messages may take that prove that everything works again."""
CALMING: Final = 20 * SECOND
"""How long the last messages may keep links busy."""
UNCLAIMED: Final = 35 * SECOND
"""As `CALMING`, if sessions are persistent: an owner that did not learn of a session's end may hold messages
that no subscription of the client claims for 30 s. Then the client lets them go."""
QUIET: Final = 10 * SECOND
QUEUE: Final = 128 * 1024
"""Bytes that may wait for the line that all datagrams share."""
KEPT: Final = 60
"""Lines of the transcript before a violation."""
IDLE: Final = frozenset({"ping", "pong", "join", "joinack", "challenge", ""})
"""What idle hosts send: keep-alives, renewals of leases and of tokens."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a run. `violation`: None: every invariant held. `tail`: the last events."""

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
    """A plan's network, and its checks.

    If the seed is odd, the clients share what they know of the nodes, as the pool clients of a gateway do.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        security = SimulatedSecurity(requires_tokens=plan.requires_tokens) if plan.is_sealed else None
        self._world = World(plan.seed, security=security)
        if plan.seed % 2:
            self._world.owner_cache, self._world.answer_cache = OwnerCache(), AnswerCache()
        self._processes = Processes(self._world, plan)
        self._ownership = Ownership(self._world, plan.topics)
        self._deliveries = Deliveries(self._ownership, plan.topics, lambda: self._world.now)
        self._bounds = Bounds(self._world)
        self._attacker = Attacker(self._world, plan.seed) if plan.join_key else None
        parts = (self._processes, self._ownership, self._deliveries, self._bounds)
        self._stage = Stage(self._world, *parts, self._attacker)
        self._transcript: deque[str] = deque(maxlen=KEPT)
        self._has_expiring = any(isinstance(a, Publish) and a.expiry is not None for a in plan.actions)
        self._events_read: dict[int, int] = {}
        self._began = self._world.now
        self._datagrams = 0
        self._unexpected: list[str] | None = None
        """What left a host that should be quiet; None: hosts need not be quiet yet."""
        self._world.path = self._processes.path
        self._world.on_datagram = self._handle_datagram
        self._world.on_acted = self._check_host
        self._world.on_event = self._handle_event

    def run(self) -> TrialResult:
        """Carries the plan out, and returns the result."""
        violation = None
        try:
            self._begin()
            for action in self._plan.actions:
                self._run_until(self._began + action.at)
                if not isinstance(action, Publish):
                    self._log(describe(action))
                self._stage.carry_out(action)
            self._end()
        except Broken as broken:
            violation = broken.violation
            self._log(f"VIOLATION: {violation.invariant.value}: {violation.text}")
        acknowledged = self._deliveries.acknowledged
        return TrialResult(
            self._plan.seed,
            violation,
            tuple(self._transcript),
            self._stage.messages,
            acknowledged,
            self._datagrams,
        )

    # Phases

    def _begin(self) -> None:
        for name in self._plan.first:
            node = self._stage.start_node(name)
            self._await(partial(_serves, node), f"{name} serves")
        for name in self._plan.clients:
            self._stage.start_client(name)
        bandwidth = self._plan.bandwidth_bps
        line = None if bandwidth is None else Bottleneck(bandwidth, QUEUE)
        self._processes.paths = replace(self._plan.paths, bottleneck=line)
        self._began = self._world.now

    def _end(self) -> None:
        """Everything that failed must work again by itself."""
        self._log("all is healed")
        if self._attacker is not None:
            self._attacker.end()
        self._processes.heal()
        self._ownership.heal()
        self._run_until(self._world.now + NOTICING)
        deadline = self._world.now + SETTLING
        while complaints := self._complaints():
            self._require(self._world.now < deadline, "; ".join(complaints))
            self._run_until(self._world.now + SECOND // 2)
        self._check_every_topic()
        self._run_until(self._world.now + (UNCLAIMED if self._plan.expiries else CALMING))
        self._unexpected = []
        self._run_until(self._world.now + QUIET)
        if self._unexpected:
            self._fail(Invariant.QUIET, "; ".join(self._unexpected[:5]))
        self._check(self._bounds.check_at_end())
        self._check(self._deliveries.check_at_end())
        for node in self._processes.nodes:
            for unclaimed in self._deliveries.unclaimed_subscriptions(node):
                self._fail(Invariant.BOUNDED, unclaimed)

    def _complaints(self) -> list[str]:
        """What does not work."""
        idle = [n for n in self._processes.nodes if not n.control.is_serving and not self._is_displaced(n)]
        unowned = [topic for topic in self._plan.topics if self._ownership.current_owner(topic) is None]
        unanswered = self._deliveries.unanswered
        return [
            *(f"{node.settings.name} is not serving" for node in idle),
            *(f"nobody serves {topic}" for topic in unowned),
            *([f"{unanswered} messages have no answer"] if unanswered else []),
            *(f"{subscription} is not made" for subscription in self._deliveries.pending_subscriptions()),
            *self._deliveries.missing_subscriptions(),
        ]

    def _is_displaced(self, node: NodeHost) -> bool:
        """Whether another node holds, by order, what this one claims: it continues to ask (§5.1)."""
        others = [self._processes.holder(subtree) for subtree in node.claims]
        return any(other is not None and other is not node for other in others)

    def _check_every_topic(self) -> None:
        """A message to each topic must reach every subscriber."""
        publisher = self._stage.start_client("proof")
        for topic in self._plan.topics:
            sent = self._stage.publish("proof", publisher, Publish(0, "proof", topic, 1, 20))
            assert sent is not None, "there is room for one"
            self._await(lambda: not self._deliveries.unanswered, f"{sent} is acknowledged")
            missing = self._deliveries.missing_subscribers(sent)
            self._require(not missing, f"{' '.join(missing)} got nothing of {sent}")

    # Checks

    def _check_host(self, host: Host) -> None:
        if isinstance(host, NodeHost):
            if host.has_unexplained_damage:
                text = f"{host.settings.name} finds damage in its store, and no bit of it has changed"
                self._fail(Invariant.NOTHING_LOST, text)
            if host.finds_damage():
                self._deliveries.note_damage(host)
            self._check(self._deliveries.check_sessions(host))
        match host:
            case NodeHost() if host.has_decided:
                self._read_node_events(host)
                before = self._ownership.changes
                self._check(self._ownership.check(host))
                is_new = self._ownership.changes != before
                self._check(self._deliveries.check_owner(host, closely=is_new))
                for held in () if self._attacker is None else self._attacker.check(host):
                    self._fail(Invariant.PROVED, held)
                self._stage.end_if_left(host)
                self._stage.end_if_store_failed(host)
            case ClientHost():
                self._check(self._deliveries.check_client(host))

    def _read_node_events(self, host: NodeHost) -> None:
        read = self._events_read.get(host.incarnation, 0)
        for node_event in host.events[read:]:
            self._log(f"{host.settings.name}: {node_event}")
            if isinstance(node_event, LeaseLost | TookBack):
                self._deliveries.end_lease(
                    host if isinstance(node_event, LeaseLost) else None, node_event.subtree
                )
            if isinstance(node_event, TookBack):
                self._stage.claim_for_heir(node_event.subtree)
        self._events_read[host.incarnation] = len(host.events)

    def _handle_event(self, host: Host, event: Event) -> None:
        if isinstance(event, LinkDownEvent):
            ends = self._processes.name(host.address), self._processes.name(event.address)
            self._log(f"{ends[0]}: link to {ends[1]} down: {event.reason}")
            if isinstance(host, NodeHost) and event.inbound and event.reason == "timeout":
                self._check(self._deliveries.check_timeout(host, event.session))
            session, node = (event.session, host.address) if event.inbound else (host.session, event.address)
            self._deliveries.lose_link(session, node, event.reason, by_node=event.inbound)
        elif isinstance(host, NodeHost) and isinstance(event, OverflowEvent):
            self._log(f"{host.settings.name}: a session's queue overflowed, and it ends")
            self._check(self._deliveries.overflow(event.session, host))
        elif isinstance(event, ControlEvent) and event.link is not None:
            match host, body_of(event.packet):
                case ClientHost(), pb.SubAck() as suback:
                    self._deliveries.handle_suback(host, event.source, suback)
                case NodeHost(), pb.Unsubscribe(group=group, filter=filter):
                    self._deliveries.handle_unsubscribe(group, filter)

    def _handle_datagram(self, datagram: Datagram) -> None:
        self._datagrams += 1
        if self._attacker is not None:
            self._attacker.watch(datagram)
        sender = self._world.hosts.get(datagram.source) if self._has_expiring else None
        if isinstance(sender, NodeHost):
            self._check(self._deliveries.expiries.check(sender, datagram.decode(), self._world.now))
        if self._unexpected is not None:
            unexpected = set(datagram.kinds()) - IDLE
            if unexpected:
                ends = self._processes.name(datagram.source), self._processes.name(datagram.destination)
                self._unexpected.append(f"{' '.join(sorted(unexpected))} from {ends[0]} to {ends[1]}")

    # The result

    def _run_until(self, end: int) -> None:
        """Lets time pass, and checks the gauges every half second."""
        while self._world.now < end:
            self._world.run(min(SECOND // 2, end - self._world.now))
            self._check(self._bounds.check())
            self._check(self._deliveries.check_totals(self._processes.nodes))

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

    def _log(self, text: str) -> None:
        self._transcript.append(f"{(self._world.now - self._began) / SECOND:10.6f} {text}")


def _serves(node: NodeHost) -> bool:
    return node.control.is_serving
