"""The client's resolver (§5.2, §5.3): topics in, zones into the native core out.

A look-up begins when a message waits in the core for a topic that no cached zone covers, or when the
application calls `resolve`. Many unknown topics mostly lie in few zones. So the resolver has *one request at
a time at each starting node*. Its answer brings a zone, and all topics that wait for that node are looked up
in the cache before the next request. If a request has no answer for one try, the next topic gets its turn, so
one dead subtree does not hold the others up. So a thousand unknown topics below five known cuts cost one
request to each of the five nodes.

An answer counts while its look-up lives, whichever try it belongs to: a node that is slower than the pauses
between tries is slow, and not unreachable. Answers that other clients behind the same address received count
as well (`caches`).

Failures are cached for the time that the answer states. If the core asks again meanwhile, it gets the failure
at once.

A look-up asks in recursive mode first. Two tries without an answer mean more often that the owner's direct
answer cannot reach this client (NAT, a stateful firewall) than that datagrams were lost. Then the look-up
goes on by referral, where each node answers from the address that was asked. Each referral must lead to a
deeper subtree than the last, so the look-up ends.

If a node stays silent, the look-up begins again. If a node asks the client to come back later, it begins
again after a pause. It then asks by referral, because a node that cannot forward a request may still name the
next node. It begins at the root and at the node that was named last in turn, because either may be down. So a
client finds a serving owner while the root is down, if any node has named that owner before.

An owner may be found and refuse a session, because it has too many (§3.6, §9). Then messages wait for the end
of a pause before the core gets the zone again. The pauses between tries grow like those between repeats of a
request. After `SESSION_REFUSAL_TIMEOUT` the messages fail without another try, because a node, or the
client's host there, stays full for long.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.addresses import format_address
from hbroker.protocol.core import ClientCore
from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.packets import RETRIED_REASONS, Address, Reason, cut_from
from hbroker.protocol.resolution.caches import FRESH, ResolverCaches, ZoneAnswer, covers
from hbroker.protocol.resolution.requests import TOKEN_LIFETIME, Request, Requests, keep_token, reachable
from hbroker.protocol.results import Hop, Resolution, Resolved, ResolveFailed, Result
from hbroker.protocol.state_machine import StateMachine
from hbroker.protocol.timers import (
    LEASE,
    LEASE_DRIFT,
    NEGATIVE_TTL,
    RETRY_MOST,
    SEARCH_MOST,
    SECOND,
    ZONE_TTL,
    TimerQueue,
    earliest,
    retry_after,
)
from hbroker.subtree import is_within

__all__ = [
    "LOOKUP_TIMEOUT",
    "SESSION_REFUSAL_TIMEOUT",
    "TRANSITIONS",
    "Event",
    "Lookup",
    "Resolver",
    "SessionRefusal",
    "SessionRefusals",
    "State",
]

SESSION_REFUSAL_TIMEOUT: Final = 5 * SECOND
"""Microseconds that messages wait for an owner that refuses sessions, from its first refusal in a row."""
_MOST_REFUSALS: Final = 1_024

LOOKUP_TIMEOUT: Final = 10 * SECOND
"""Microseconds that messages wait for the owner of their topic before they fail."""
FAILOVER: Final = LEASE + LEASE_DRIFT + 4 * SECOND
"""Microseconds that messages wait if a node has named an owner and that owner is silent. Its parent cannot
take its place before its lease has ended (§5.6). The rest of the time is for finding the parent."""

_RECURSIVE_TRIES: Final = 2
_HOP_TRIES: Final = 3
_MOST_HOPS: Final = 64
_MOST_KEPT: Final = 16
"""The most requests of one look-up whose answers still count."""
_MOST_WAITING: Final = 100_000
_MOST_OPEN: Final = 2_048
_SILENT_OWNER: Final = (Reason.REASON_OWNER_UNREACHABLE, Reason.REASON_HANDOVER)
_MOST_TAKEN: Final = 64
_MOST_NEGATIVES: Final = 4_096
_LONGEST_NEGATIVE: Final = 60 * SECOND
_LONGEST_TTL: Final = 86_400 * SECOND


@dataclass(frozen=True, slots=True)
class SessionRefusal:
    """`since`: the time of the first refusal in a row. `until`: when to try again. Both in microseconds."""

    since: int
    tries: int
    until: int

    @property
    def fails_at(self) -> int:
        """When waiting messages fail, in microseconds."""
        return self.since + SESSION_REFUSAL_TIMEOUT


class SessionRefusals:
    """The refusals of one client, by the owner's address."""

    __slots__ = ("_random", "_refusals")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._refusals: ExpiringCache[Address, SessionRefusal] = ExpiringCache(_MOST_REFUSALS)

    def add(self, now: int, owner: Address) -> None:
        """The owner has refused once more. The refusal is one in a row if the last pause ended no longer than
        `RETRY_MOST` ago."""
        before = self._refusals.get(now, owner) or SessionRefusal(now, 0, now)
        until = now + retry_after(before.tries, self._random)
        self._refusals.put(owner, SessionRefusal(before.since, before.tries + 1, until), until + RETRY_MOST)

    def forget(self, owner: Address) -> None:
        """The owner has accepted a session."""
        self._refusals.discard(owner)

    def find(self, now: int, owner: Address) -> SessionRefusal | None:
        """The last refusal of an owner whose pause is not over; else None."""
        known = self._refusals.get(now, owner)
        return known if known is not None and now < known.until else None


class State(Enum):
    """What a look-up waits for."""

    QUEUED = auto()
    """For its turn at its starting node."""
    EXPECT_OWNER = auto()
    """For the owner's answer, from any address."""
    EXPECT_HOP = auto()
    """For the answer of the node that was asked: PUBACCEPT or REFERRAL."""
    BACKING_OFF = auto()
    """For the end of a pause, to begin again."""
    RESOLVED = auto()
    FAILED = auto()


class Event(Enum):
    """What happens to a look-up."""

    ASK = auto()
    """Its turn has come, in recursive mode."""
    ASK_BY_REFERRAL = auto()
    """Its turn has come, by referral."""
    COVER = auto()
    """A zone that another topic, or another client, has brought covers the topic."""
    REPEAT = auto()
    """A try had no answer, and there is another."""
    FALL_BACK = auto()
    """The tries in recursive mode had no answer."""
    REFER = auto()
    """A node named the next node."""
    DEFER = auto()
    """A node is silent, or asks the client to come back later."""
    ACCEPT = auto()
    """The owner answered."""
    REFUSE = auto()
    """A node refused for good."""
    EXPIRE = auto()
    """The time for the look-up is over."""


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.QUEUED, Event.ASK): State.EXPECT_OWNER,
    (State.QUEUED, Event.ASK_BY_REFERRAL): State.EXPECT_HOP,
    (State.QUEUED, Event.COVER): State.RESOLVED,
    (State.QUEUED, Event.EXPIRE): State.FAILED,
    (State.EXPECT_OWNER, Event.REPEAT): State.EXPECT_OWNER,
    (State.EXPECT_OWNER, Event.FALL_BACK): State.EXPECT_HOP,
    (State.EXPECT_OWNER, Event.REFER): State.EXPECT_HOP,
    (State.EXPECT_OWNER, Event.DEFER): State.BACKING_OFF,
    (State.EXPECT_OWNER, Event.COVER): State.RESOLVED,
    (State.EXPECT_OWNER, Event.ACCEPT): State.RESOLVED,
    (State.EXPECT_OWNER, Event.REFUSE): State.FAILED,
    (State.EXPECT_OWNER, Event.EXPIRE): State.FAILED,
    (State.EXPECT_HOP, Event.REPEAT): State.EXPECT_HOP,
    (State.EXPECT_HOP, Event.REFER): State.EXPECT_HOP,
    (State.EXPECT_HOP, Event.DEFER): State.BACKING_OFF,
    (State.EXPECT_HOP, Event.COVER): State.RESOLVED,
    (State.EXPECT_HOP, Event.ACCEPT): State.RESOLVED,
    (State.EXPECT_HOP, Event.REFUSE): State.FAILED,
    (State.EXPECT_HOP, Event.EXPIRE): State.FAILED,
    (State.BACKING_OFF, Event.ASK): State.EXPECT_OWNER,
    (State.BACKING_OFF, Event.ASK_BY_REFERRAL): State.EXPECT_HOP,
    (State.BACKING_OFF, Event.REFER): State.EXPECT_HOP,
    (State.BACKING_OFF, Event.COVER): State.RESOLVED,
    (State.BACKING_OFF, Event.ACCEPT): State.RESOLVED,
    (State.BACKING_OFF, Event.EXPIRE): State.FAILED,
}


@dataclass(slots=True, eq=False)
class Lookup:
    """One topic that is being resolved.

    - `lookup_id`: the application's; None: messages in the core wait for the topic.
    - `subtree`: what the node that was asked last was said to hold; None: the look-up has just begun.
    - `has_silent_owner`: a node has named an owner that has not answered. Its lease may have to end first.
    - `is_extended`: the deadline was extended because of that.
    - `below`: the node above the owner that the core knew; None: it knew none.
    - `last_named`: the node that was named last as the holder of what is around the topic; None: none was.
    - `hops`: the nodes that were asked since the look-up last began.
    - `requests`: the requests whose answers still count, the present one last.
    - `active_start`: the starting node whose turn this look-up has.
    - `fell_back`: no answer arrived in recursive mode.
    - `reason`, `negative_ttl` (microseconds): those of the last refusal.
    """

    topic: str
    start: Address
    deadline: int
    lookup_id: int | None = None
    by_referral: bool = False
    cache: str = "miss"
    state_machine: StateMachine[State, Event] = field(
        default_factory=lambda: StateMachine(TRANSITIONS, State.QUEUED)
    )
    requests: list[Request[Lookup]] = field(default_factory=list)
    subtree: str | None = None
    has_silent_owner: bool = False
    is_extended: bool = False
    below: Address | None = None
    last_named: Address | None = None
    hops: int = 0
    active_start: Address | None = None
    fell_back: bool = False
    restarts: int = 0
    reason: int = 0
    negative_ttl: int = NEGATIVE_TTL
    trace: list[Hop] = field(default_factory=list)
    tried: dict[Address, None] = field(default_factory=dict)

    def restart(self, root: Address) -> None:
        """Begins again: at the root, or, if it began there, at the node that was named last. A trace always
        begins at the root, because it shows the way down from there."""
        begins_there = self.start == root and not self.by_referral
        self.start = self.last_named if begins_there and self.last_named is not None else root
        self.subtree = None


class Resolver:
    """All look-ups of one client."""

    def __init__(self, core: ClientCore, random: Random, caches: ResolverCaches, root: Address) -> None:
        self._core = core
        self._random = random
        self._tokens = caches.tokens
        self._owner_cache = caches.owner_cache
        self._answer_cache = caches.answer_cache
        self._used_answers: ExpiringCache[str, ZoneAnswer] = ExpiringCache(_MOST_TAKEN)
        """Recent answers of other clients that this client was given, by scope."""
        self._root = root
        self.requests: Requests[Lookup] = Requests(core, random, caches.tokens)
        self._timers: TimerQueue[Lookup] = TimerQueue()
        self._by_topic: dict[str, Lookup] = {}
        self._queues: dict[Address, deque[Lookup]] = {}
        self._in_progress: dict[Address, Lookup] = {}
        self._negatives: ExpiringCache[str, int] = ExpiringCache(_MOST_NEGATIVES)
        self.refusals = SessionRefusals(random)
        """The owners that refused a session (§3.6)."""
        self._referral_until = 0
        self._results: deque[Result] = deque()

    # In

    def handle_unresolved(self, now: int, topic: str, start: Address | None) -> None:
        """Messages wait in the core for the owner of `topic`, which lies below the node `start` (None: the
        root)."""
        reason = self._negatives.get(now, topic)
        if reason is not None:
            self._core.reject(topic, reason)
        elif topic in self._by_topic:
            return
        elif len(self._by_topic) >= _MOST_WAITING:
            self._core.reject(topic, Reason.REASON_QUOTA_EXCEEDED)
        else:
            lookup = Lookup(topic, start or self._root, now + LOOKUP_TIMEOUT, below=start, last_named=start)
            self._by_topic[topic] = lookup
            self._timers.set(lookup, lookup.deadline)
            self._queues.setdefault(lookup.start, deque()).append(lookup)
            self._advance(now)

    def resolve(self, now: int, lookup_id: int, topic: str, *, trace: bool, timeout: int) -> None:
        """Resolves the owner of `topic`, even if it is cached. `trace`: asks every node from the root down.
        `timeout`: microseconds."""
        known = self._core.zone(topic)
        cache = "miss" if known is None else "hit" if known[1] else "cut"
        start = self._root if known is None or trace else known[0]
        lookup = Lookup(topic, start, now + timeout, lookup_id, by_referral=trace, cache=cache)
        self._timers.set(lookup, lookup.deadline)
        self._begin(now, lookup)

    def handle_accept(self, now: int, source: Address, accept: pb.PubAccept) -> None:
        """Handles PUBACCEPT: an owner's answer, or a refusal."""
        request = self.requests.find(accept.request)
        if request is None:
            return
        lookup = request.owner
        if accept.reason == Reason.REASON_SUCCESS:
            self._accept(now, lookup, request, source, accept)
        elif request is lookup.requests[-1]:
            self._refuse(now, lookup, request, accept)

    def handle_referral(self, now: int, referral: pb.Referral) -> None:
        """Handles REFERRAL: a node names the next one (§5.2). If it leads no deeper, the node cannot help, or
        the packet is late."""
        request = self.requests.find(referral.request)
        if request is None or not request.owner.state_machine.accepts(Event.REFER):
            return
        lookup, cut = request.owner, cut_from(referral.next)
        leads_on = cut is not None and _leads_on(lookup, cut[0])
        is_awaited = request is lookup.requests[-1] and lookup.state_machine.accepts(Event.DEFER)
        if not leads_on and not is_awaited:
            return
        self._trace(now, lookup, request, "REFERRAL", referral.node, request.address, referral.zone, 0)
        if cut is None or not leads_on:
            self._defer(now, lookup)
            return
        if is_within(lookup.topic, referral.zone.scope):
            token = self._tokens.get(now, request.address) or b""
            self._install(referral.zone, request.address, token, ZONE_TTL)
        lookup.state_machine.handle(Event.REFER)
        self._timers.set(lookup, lookup.deadline)
        lookup.subtree, lookup.last_named, lookup.has_silent_owner = cut[0], cut[2], True
        self.requests.stop_repeating(lookup.requests[-1])
        self._send_request(now, lookup, cut[2], pb.MODE_REFERRAL)

    def handle_timeout(self, now: int) -> None:
        """Repeats requests without an answer, begins look-ups again after pauses, and ends those whose time
        is over."""
        for lookup in self._timers.due(now):
            if self._is_covered(now, lookup):
                continue
            if now >= lookup.deadline and _waits_for_lease(lookup):
                lookup.is_extended = True
                lookup.deadline += FAILOVER - LOOKUP_TIMEOUT
                self._timers.set(lookup, lookup.deadline)
                if lookup.state_machine.state is not State.BACKING_OFF:
                    continue
            if now >= lookup.deadline:
                lookup.state_machine.handle(Event.EXPIRE)
                self._fail(now, lookup)
            else:
                lookup.restart(self._root)
                self._begin(now, lookup)
        for request in self.requests.unanswered(now):
            self._silence(now, request.owner, request)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(self._timers.next(), self.requests.poll_timeout())

    def poll_result(self) -> Result | None:
        """The next outcome of `resolve`; None: there is none now."""
        return self._results.popleft() if self._results else None

    # Starting nodes: one request at a time at each

    def _advance(self, now: int) -> None:
        starts = deque(self._queues)
        while starts:
            starts.extend(self._advance_at(now, starts.popleft()))

    def _advance_at(self, now: int, start: Address) -> list[Address]:
        """Sends the next request to `start`, if there may be one. Returns the starting nodes to which topics
        were moved."""
        queue = self._queues.get(start, deque())
        moved: dict[Address, None] = {}
        while queue and start not in self._in_progress and len(self.requests) < _MOST_OPEN:
            lookup = queue.popleft()
            if lookup.state_machine.state is not State.QUEUED:
                continue
            known = self._core.zone(lookup.topic)
            if known is not None and known[1]:
                lookup.state_machine.handle(Event.COVER)
                self._forget(lookup)
            elif known is not None and known[0] != start:
                lookup.start = known[0]
                self._queues.setdefault(lookup.start, deque()).append(lookup)
                moved[lookup.start] = None
            elif not self._is_covered(now, lookup):
                self._in_progress[start], lookup.active_start = lookup, start
                self._begin(now, lookup)
        if not queue:
            self._queues.pop(start, None)
        return list(moved)

    def _start_next(self, now: int, lookup: Lookup) -> None:
        if lookup.active_start is not None:
            del self._in_progress[lookup.active_start]
            lookup.active_start = None
            self._advance(now)

    # One lookup

    def _begin(self, now: int, lookup: Lookup) -> None:
        by_referral = lookup.by_referral or lookup.restarts > 0 or now < self._referral_until
        lookup.state_machine.handle(Event.ASK_BY_REFERRAL if by_referral else Event.ASK)
        self._timers.set(lookup, lookup.deadline)
        lookup.hops = 0
        self._send_request(now, lookup, lookup.start, pb.MODE_REFERRAL if by_referral else pb.MODE_RECURSIVE)

    def _send_request(self, now: int, lookup: Lookup, address: Address, mode: pb.Mode) -> None:
        body = pb.PubConnect(topic=lookup.topic, mode=mode)
        lookup.tried[address] = None
        lookup.hops += 1
        if len(lookup.requests) >= _MOST_KEPT:
            self.requests.close(lookup.requests.pop(0))
        lookup.requests.append(self.requests.open(now, lookup, address, body))

    def _silence(self, now: int, lookup: Lookup, request: Request[Lookup]) -> None:
        if self._is_covered(now, lookup):
            return
        by_referral = lookup.state_machine.state is State.EXPECT_HOP
        if request.tries < (_HOP_TRIES if by_referral else _RECURSIVE_TRIES):
            lookup.state_machine.handle(Event.REPEAT)
            self.requests.repeat(now, request)
        elif by_referral:
            self._defer(now, lookup, pause=0)
        else:
            lookup.state_machine.handle(Event.FALL_BACK)
            lookup.fell_back = True
            self._send_request(now, lookup, request.address, pb.MODE_REFERRAL)
        self._start_next(now, lookup)

    def _defer(self, now: int, lookup: Lookup, *, pause: int | None = None) -> None:
        """Begins the look-up again after a pause (microseconds). None: a pause that grows. 0: after silence,
        which was a pause itself."""
        lookup.state_machine.handle(Event.DEFER)
        for request in lookup.requests:
            self.requests.stop_repeating(request)
        if pause is None:
            pause = retry_after(lookup.restarts, self._random, SEARCH_MOST)
        lookup.restarts += 1
        self._timers.set(lookup, min(lookup.deadline, now + pause))
        self._start_next(now, lookup)

    def _accept(
        self, now: int, lookup: Lookup, request: Request[Lookup], source: Address, accept: pb.PubAccept
    ) -> None:
        if not covers(accept.zone, lookup.topic):
            # The topic was delegated while the answer was made, or the node has a defect.
            if request is lookup.requests[-1] and lookup.state_machine.accepts(Event.DEFER):
                self._defer(now, lookup)
            return
        owner = reachable(accept.address, source)
        ttl = min(accept.ttl_s * SECOND, _LONGEST_TTL) or ZONE_TTL
        keep_token(self._tokens, now, owner, accept.token, TOKEN_LIFETIME)
        self._trace(now, lookup, request, "PUBACCEPT", accept.node, owner, accept.zone, accept.ttl_s)
        is_root = request.address == source == self._root
        self._owner_cache.learn(
            now, accept.node, owner, [accept.zone.scope], accept.zone.cuts, is_root=is_root
        )
        answer = ZoneAnswer(accept.zone, owner, accept.token, now + ttl)
        self._answer_cache.put(now, answer)
        refusal = self.refusals.find(now, owner)
        if refusal is not None and lookup.lookup_id is None:
            self._await_session(now, lookup, refusal)
            return
        self._use_answer(now, answer)
        if lookup.fell_back:
            self._referral_until = now + ZONE_TTL
        lookup.state_machine.handle(Event.ACCEPT)
        if lookup.lookup_id is not None:
            self._results.append(Resolved(lookup.lookup_id, _resolution(lookup, owner, accept)))
        self._end(now, lookup)

    def _await_session(self, now: int, lookup: Lookup, refusal: SessionRefusal) -> None:
        """The owner is known and refuses sessions: it is tried again when the pause is over."""
        if not lookup.state_machine.accepts(Event.DEFER):
            return
        lookup.reason = Reason.REASON_QUOTA_EXCEEDED
        if now >= refusal.fails_at:
            lookup.negative_ttl = refusal.until - now
            lookup.state_machine.handle(Event.REFUSE)
            self._fail(now, lookup)
        else:
            self._defer(now, lookup, pause=min(refusal.until, refusal.fails_at) - now)

    def _refuse(self, now: int, lookup: Lookup, request: Request[Lookup], accept: pb.PubAccept) -> None:
        if not lookup.state_machine.accepts(Event.DEFER):
            return
        owner = reachable(accept.address, request.address)
        self._trace(now, lookup, request, "PUBACCEPT", accept.node, owner, accept.zone, accept.ttl_s)
        lookup.reason = accept.reason
        lookup.has_silent_owner |= accept.reason in _SILENT_OWNER
        lookup.negative_ttl = min(accept.ttl_s * SECOND, _LONGEST_NEGATIVE) or NEGATIVE_TTL
        if accept.reason in RETRIED_REASONS:
            # A node that the root has just named may answer this, too: it is to get the subtree, and does not
            # have it yet.
            stale_start = accept.reason == Reason.REASON_NOT_RESPONSIBLE and lookup.start != self._root
            self._defer(now, lookup, pause=0 if stale_start else None)
        else:
            lookup.state_machine.handle(Event.REFUSE)
            self._fail(now, lookup)

    def _fail(self, now: int, lookup: Lookup) -> None:
        reason = lookup.reason or Reason.REASON_OWNER_UNREACHABLE
        self._negatives.put(lookup.topic, reason, now + lookup.negative_ttl)
        if lookup.lookup_id is None:
            self._core.reject(lookup.topic, reason)
        else:
            tried = tuple(map(format_address, lookup.tried))
            answered = lookup.reason != Reason.REASON_SUCCESS
            self._results.append(ResolveFailed(lookup.lookup_id, lookup.topic, reason, answered, tried))
        self._end(now, lookup)

    # Answers of other clients

    def _is_covered(self, now: int, lookup: Lookup) -> bool:
        """Ends a look-up for waiting messages, if another client has received an answer that covers its
        topic.

        Such an answer is wrong if this client was given it before and now asks again. And if the core knows a
        node above the owner, an answer of a node further up is no better.
        """
        answer = self._answer_cache.find(now, lookup.topic) if lookup.lookup_id is None else None
        if answer is None or lookup.below not in (None, answer.owner):
            return False
        if self.refusals.find(now, answer.owner) is not None:
            return False
        if self._used_answers.get(now, answer.zone.scope) is answer:
            self._answer_cache.discard(answer)
            return False
        self._use_answer(now, answer)
        lookup.state_machine.handle(Event.COVER)
        self._end(now, lookup)
        return True

    def _use_answer(self, now: int, answer: ZoneAnswer) -> None:
        self._used_answers.put(answer.zone.scope, answer, now + FRESH)
        self._install(answer.zone, answer.owner, answer.token, answer.until - now)

    def _end(self, now: int, lookup: Lookup) -> None:
        self._forget(lookup)
        self._start_next(now, lookup)

    def _forget(self, lookup: Lookup) -> None:
        for request in lookup.requests:
            self.requests.close(request)
        lookup.requests.clear()
        self._timers.cancel(lookup)
        if lookup.lookup_id is None:
            self._by_topic.pop(lookup.topic, None)

    def _install(self, zone: pb.Zone, owner: Address, token: bytes, ttl: int) -> None:
        cuts = [cut for cut in map(cut_from, zone.cuts) if cut is not None]
        self._core.install_zone(zone.scope, cuts, owner, token, ttl)

    def _trace(
        self,
        now: int,
        lookup: Lookup,
        request: Request[Lookup],
        packet: str,
        node: str,
        address: Address,
        zone: pb.Zone,
        ttl_s: int,
    ) -> None:
        if lookup.lookup_id is not None and len(lookup.trace) < _MOST_HOPS:
            time_ms = (now - request.sent_at) / 1000
            lookup.trace.append(
                Hop(node, address, packet, zone.subtree, zone.epoch, ttl_s, time_ms, lookup.cache)
            )


def _waits_for_lease(lookup: Lookup) -> bool:
    return lookup.lookup_id is None and lookup.has_silent_owner and not lookup.is_extended


def _leads_on(lookup: Lookup, subtree: str) -> bool:
    """Whether a referral to this subtree leads closer to the topic than the last one."""
    closer = lookup.subtree is None or len(subtree) > len(lookup.subtree)
    return bool(subtree) and closer and is_within(lookup.topic, subtree) and lookup.hops < _MOST_HOPS


def _resolution(lookup: Lookup, owner: Address, accept: pb.PubAccept) -> Resolution:
    return Resolution(
        topic=lookup.topic,
        owner=accept.node,
        address=owner,
        epoch=accept.zone.epoch,
        ttl_s=accept.ttl_s,
        subtree=accept.zone.subtree,
        scope=accept.zone.scope,
        subscriptions=accept.subscriptions,
        trace=tuple(lookup.trace),
    )
