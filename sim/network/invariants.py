"""What must hold of a network in every case: checked at every step of a run, and at its end.

The invariants are those of docs/guarantees.md, made exact:

- *One owner*: at no time do two live processes accept a message to one topic (`Engine.owns`, asked after each
  act of a node; a stopped process counts as if it continued now).
- *Epochs rise*: no node serves a subtree under a lower epoch than one seen before; under the same epoch only
  the same process serves it.
- *Complete*, *nothing lost*, *nothing doubled*, *order*, *intact*: `deliveries`. *Adds up*: `message_totals`.
- *Proved*: no node takes a link to an attacker for that of a child (`attacker`).
- *Resumed*: `pending_deliveries`.
- *Genuine*: `impostors`. *Shared*: `sharing`. *Wills*: `wills`.
- *Retained*: `retention`. *Keeps*, *paced*: `paces`. *Queues*: `losses`. *Expires*: `expiries`.
- *Bounded*: links, sessions, subscriptions and unacknowledged messages stay below the number that the
  existing hosts explain.

A violation is a fact with a time. `EXEMPT` lists what is not promised yet; there is no other exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT
from hbroker.subtree import is_within

from .hosts import Host, NodeHost
from .world import Address, World

__all__ = ["EXEMPT", "Bounds", "Invariant", "Ownership", "Violation"]

FORGOTTEN: Final = timers.LEASE + 2 * timers.LEASE_DRIFT
"""How long a delegation that its parent has forgotten may have two owners."""
MOST_IN_FLIGHT: Final = 4_096
"""Unacknowledged deliveries of one direction of a link (§9)."""


class Invariant(Enum):
    ONE_OWNER = "a topic has one owner at most"
    EPOCHS_RISE = "epochs rise"
    PROVED = "nobody holds anything by what another said"
    CLAIMED = "what a node was granted its next run claims"
    COMPLETE = "an owner has every subscription that is complete"
    NOTHING_LOST = "what is acknowledged has reached every subscriber connected"
    RESUMED = "who is told that his subscription was there all the time has missed nothing"
    NOTHING_DOUBLED = "at QoS 0 and 2 a message comes once"
    ORDER = "order is kept for each publisher and topic"
    INTACT = "a message comes as it was sent"
    GENUINE = "nobody publishes under the id of another"
    SHARED = "each message comes to one member of a shared group"
    WILLS = "a will is published when its client is gone, and not before"
    RETAINED = "who subscribes gets what is retained, once, and nothing older"
    ADDS_UP = "every message taken for a session is accounted for"
    KEEPS = "a subscriber that goes on loses nothing to a full queue"
    PACED = "nobody is waited for who is too slow"
    QUEUES = "a session's queue keeps to the bounds and the policy that were asked for"
    EXPIRES = "what has expired is not sent on"
    BOUNDED = "memory is bounded"
    RECOVERS = "what is healed works again"
    QUIET = "in the end every link is quiet"


EXEMPT: Final = {
    Invariant.ONE_OWNER: (
        "A parent that began anew without its file of delegations cannot know them until its children renew: "
        "for a lease and both drift allowances after that, the topics that it had delegated are not held to "
        "it, nor to what rests on it (complete, nothing lost, resumed, order). Below a child under `serve`, "
        "whose lease does not end, that time begins when it can be heard for certain: when all is healed."
    ),
}
"""What is not promised yet, and why (docs/guarantees.md)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold, and when."""

    at: int
    invariant: Invariant
    text: str


class Ownership:
    """One owner for each topic, rising epochs, and claims that last."""

    def __init__(self, world: World, topics: tuple[str, ...]) -> None:
        self._world = world
        self._topics = topics
        self.owners: dict[str, NodeHost] = {}
        """By topic, the last owner."""
        self.changed: dict[str, int] = {}
        """By topic, when it last moved to another owner, or lost its own."""
        self.past: dict[str, set[Address]] = {topic: set() for topic in topics}
        """By topic, all owners it ever had."""
        self.changes = 0
        self.moves: dict[str, list[int]] = {topic: [] for topic in topics}
        """By topic, when it moved to another owner."""
        self._epochs: dict[str, tuple[int, int]] = {}
        self._served_epochs: dict[int, dict[str, int]] = {}
        """The largest offset of the root's wall clock."""
        self._excused_until: dict[str, int] = {}
        """By topic, until when it is excused."""
        self._excused_until_heal: set[str] = set()
        """The topics that are excused until `heal`."""

    def forget(self, parent: NodeHost) -> None:
        """A parent restarted without its file of delegations: see `EXEMPT`."""
        for delegation in parent.delegations.values():
            below = [topic for topic in self._topics if is_within(topic, delegation.subtree)]
            self._excused_until |= dict.fromkeys(below, self._world.now + FORGOTTEN)
            if delegation.policy is LeasePolicy.SERVE:
                self._excused_until_heal.update(below)

    def heal(self) -> None:
        """From now on every node reaches every other."""
        self._excused_until |= dict.fromkeys(self._excused_until_heal, self._world.now + FORGOTTEN)
        self._excused_until_heal.clear()

    @property
    def forgotten(self) -> list[str]:
        """Topics that a parent may serve because an earlier run of it delegated them: see `EXEMPT`."""
        return [topic for topic in self._excused_until if self.was_forgotten(topic, self._world.now)]

    def was_forgotten(self, topic: str, since: int) -> bool:
        """Whether a parent's restart still excuses what was published at this time: see `EXEMPT`."""
        return topic in self._excused_until_heal or self._excused_until.get(topic, 0) > since

    def current_owner(self, topic: str) -> NodeHost | None:
        """The node that accepts a message to this topic now; None: there is none."""
        owner = self.owners.get(topic)
        return owner if owner is not None and self._owns(owner, topic) else None

    def check(self, host: NodeHost) -> Iterator[Violation]:
        """What a node's act may have violated."""
        now = self._world.now
        for topic in self._topics:
            if not self._owns(host, topic):
                continue
            last = self.owners.get(topic)
            if last is host:
                continue
            if last is not None and self._owns(last, topic) and topic not in self.forgotten:
                names = f"{last.settings.name} and {host.settings.name}"
                yield Violation(now, Invariant.ONE_OWNER, f"{topic} is served by {names}")
            self.owners[topic] = host
            self.past[topic].add(host.address)
            self.changed[topic] = now
            self.changes += 1
            self.moves[topic].append(now)
        yield from self._check_epochs(host)
        yield from self._check_claims(host)

    def _check_epochs(self, host: NodeHost) -> Iterator[Violation]:
        if host.incarnation not in self._served_epochs and host.settings.is_root:
            self._begin_epochs(host)
        served = self._served_epochs.setdefault(host.incarnation, {})
        for grant in host.control.jurisdiction.grants:
            if not grant.serving or served.get(grant.subtree) == grant.epoch:
                continue
            served[grant.subtree] = grant.epoch
            epoch, holder = self._epochs.get(grant.subtree, (0, 0))
            if (grant.epoch, host.incarnation) != (epoch, holder) and grant.epoch <= epoch:
                text = f"{host.settings.name} serves {grant.subtree!r} under {grant.epoch} after {epoch}"
                yield Violation(self._world.now, Invariant.EPOCHS_RISE, text)
            self._epochs[grant.subtree] = (grant.epoch, host.incarnation)

    def _begin_epochs(self, root: NodeHost) -> None:
        """A run of the root begins. If no limit of epochs reached its disk, or its files are lost, it knows
        nothing of earlier epochs, and begins with its wall clock. Then epochs may fall: that clock was set
        back, or an earlier run had a limit, and so was ahead of its own (§5.1)."""
        highest = max((epoch for epoch, _ in self._epochs.values()), default=0)
        if not root.has_epoch_limit and root.core_clock() // 1000 <= highest:
            self._epochs.clear()

    def _check_claims(self, host: NodeHost) -> Iterator[Violation]:
        if host.settings.is_root:
            return
        claims = {*host.claims, f"{STATUS_ROOT}/{host.settings.name}"}
        for grant in host.control.jurisdiction.grants:
            if grant.subtree not in claims:
                text = f"{host.settings.name} holds {grant.subtree!r}, and would not claim it again"
                yield Violation(self._world.now, Invariant.CLAIMED, text)

    def _owns(self, host: NodeHost, topic: str) -> bool:
        is_alive = self._world.hosts.get(host.address) is host
        return is_alive and host.owns(topic)


class Bounds:
    """Gauges, compared with the number of hosts and subscriptions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._started: set[int] = set()
        self._filters = 0

    def count(self, host: Host) -> None:
        """A process started."""
        self._started.add(host.incarnation)

    def subscribed(self) -> None:
        """A subscription was asked for."""
        self._filters += 1

    def check(self) -> Iterator[Violation]:
        """Checks all hosts now."""
        links = 2 * len(self._started)
        return self._over(
            {"links": links, "inflight": MOST_IN_FLIGHT * links, "subscriptions": self._filters}
        )

    def check_at_end(self) -> Iterator[Violation]:
        """Checks that nothing is left of what has ended."""
        return self._over({"links": 2 * len(self._world.hosts), "inflight": 0, "waiting": 0})

    def _over(self, most: Mapping[str, int]) -> Iterator[Violation]:
        for host in list(self._world.hosts.values()):
            gauges = host.engine.counters()
            for name, bound in most.items():
                if gauges.get(name, 0) > bound:
                    text = f"{host.address}: {name} is {gauges[name]}, over {bound}"
                    yield Violation(self._world.now, Invariant.BOUNDED, text)
