"""What a node owns: the subtrees it was granted, less the cuts that it delegated out of them (§5).

In DNS terms a grant is a zone and a delegation a zone cut. The longest of both that holds a topic decides
about it: a grant says "mine", a delegation "ask below". Every change here is made in the native core in the
same step, so that what is answered to a look-up and what is done with a PUBLISH never differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from hbroker._native import filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.core import NodeCore
from hbroker.protocol.hierarchy.cut_tree import CutTree
from hbroker.protocol.hierarchy.touched_cuts import TouchedCuts
from hbroker.protocol.packets import Address, Cut, cut_of
from hbroker.protocol.timers import LEASE_DRIFT
from hbroker.subtree import depth, is_within, prefixes

__all__ = ["Delegation", "Grant", "Jurisdiction"]

MOST_CUTS_ANSWERED: Final = 16
MOST_CUT_BYTES: Final = 600
"""A zone that would tell more cuts than this, or longer ones, is narrowed (§5.3)."""


@dataclass(slots=True)
class Grant:
    """A subtree that this node owns. `link`: to the parent that granted it, None for the root's own."""

    subtree: str
    epoch: int
    link: int | None
    serving: bool
    until: int | None
    """When the lease ends, in microseconds; None: never."""
    serial: int = 0
    fencing: bool = False
    """The lease is to end from now on (§5.6): what is delegated out of it is put under `fence` first."""


@dataclass(slots=True)
class Delegation:
    """A subtree that a child owns. `link`: from that child, None while it is away."""

    subtree: str
    node: str
    address: Address
    incarnation: int
    epoch: int
    policy: LeasePolicy
    link: int | None
    until: int
    """When the lease granted ends, in microseconds.

    The subtree is taken back a drift allowance later (§5.6).
    """

    def as_cut(self) -> Cut:
        return self.subtree, self.node, self.address, self.epoch


class Jurisdiction:
    """The grants and cuts of one node. `remember` hears of each cut before it is made, and, with True, after
    it has ended.

    `unix_offset_us`: what to add to a time of the control for one of the core.
    """

    def __init__(
        self,
        core: NodeCore,
        remember: Callable[[Delegation, bool], None] = lambda cut, ended: None,
        unix_offset_us: int = 0,
    ) -> None:
        self._core = core
        self._remember = remember
        self._unix_offset_us = unix_offset_us
        self._grants: dict[str, Grant] = {}
        self._cuts: CutTree[Delegation] = CutTree()
        self._successors: set[str] = set()
        """Subtrees that were handed back, for whose topics the core names who has them."""
        self._recovery: dict[str, int] = {}
        self._expected: set[str] = set()
        self._deepest = 0
        self.is_in_doubt = False
        """It may have delegated what it does not know of, so it serves nothing (§5.9)."""
        self._touched: TouchedCuts[Delegation] = TouchedCuts()
        self._deciders: dict[str, Grant | Delegation | None] = {}
        """Who decides about what is around a cut, until something changes."""

    def hold(self, grant: Grant) -> None:
        """Owns a subtree, or changes how: a new epoch, serving or not, a later end of the lease.

        The core ends the lease by itself, should this process be stopped and go on too late (§5.6). What a
        node says of itself, below `$SYS`, no client can say (§7.2).
        """
        for subtree in [s for s in self._successors if is_within(s, grant.subtree)]:
            self._successors.discard(subtree)
            self._core.uncut(subtree)
        self._grants[grant.subtree] = grant
        self._expected.discard(grant.subtree)
        self._changed()
        self._tell(grant.subtree)

    def drop(self, subtree: str, successor: Cut | None = None) -> None:
        """Owns a subtree no more. What was delegated out of it stays delegated.

        `successor`: who owns it now: publishers that still come are told so (§7.2).
        """
        if self._grants.pop(subtree, None) is not None:
            self._recovery.pop(subtree, None)
            self._core.revoke(subtree)
            self._tell_gathering(subtree, but=subtree)
            self._changed()
            if successor is not None and self.lookup(subtree) is None:
                self._successors.add(subtree)
                self._core.cut(successor)

    def expect(self, requested_subtrees: Iterable[str]) -> None:
        """After a restart: what of these lies below what this node delegated, it held from somebody else, and
        may hold again. What it cut out of such a subtree does not move with what is around that."""
        self._expected = {
            subtree for subtree in requested_subtrees if isinstance(self.around(subtree), Delegation)
        }

    def give_up(self, subtree: str) -> None:
        """This node claims a subtree no more."""
        self._expected.discard(subtree)

    def doubt(self) -> None:
        """What was delegated is not known completely. Before the first `hold`."""
        self.is_in_doubt = True

    def be_sure(self) -> None:
        """Every delegation that there can be is known: serves what it holds."""
        self.is_in_doubt = False
        for subtree in self._grants:
            self._tell(subtree)

    def merge(self, subtree: str) -> None:
        """Owns a subtree as a part of what is around it, by that grant alone. Who gathers there goes on."""
        if self._grants.pop(subtree, None) is not None:
            self._changed()
            self._tell(subtree)
            self._tell_gathering(subtree, but=subtree)

    def delegate(self, delegation: Delegation) -> None:
        """Cuts a subtree out, or replaces the cut of the same subtree."""
        self._cuts.put(delegation)
        self._changed()
        self._remember(delegation, False)
        self._successors.discard(delegation.subtree)
        self._core.cut(delegation.as_cut())
        self._tell_gathering(delegation.subtree, but=None)
        self._cuts_changed(delegation.subtree)

    def take_back(self, subtree: str) -> None:
        """Ends a delegation: the subtree is this node's again."""
        delegation = self._cuts.remove(subtree)
        if delegation is None:
            return
        self._changed()
        for part in [part for part in self._recovery if is_within(part, subtree)]:
            self._recovery[part] = max(self._recovery[part], delegation.epoch + 1)
            self._tell(part)  # Before the cut ends: from then on messages are taken here.
        self._core.uncut(subtree)
        self._remember(delegation, True)
        self._cuts_changed(subtree)

    def amend(self, delegation: Delegation) -> None:
        """Something changed of a cut that only this node knows, and is to know again."""
        self._remember(delegation, False)

    def gather(self, subtree: str, epoch: int = 0) -> None:
        """The subscribers of a grant, or of a part of one, are on their way back (§5.8).

        `epoch`: what the part is held under, at least; the one under which it had been delegated was lower.
        """
        self._recovery[subtree] = max(epoch, self._recovery.get(subtree, 0))
        if self._is_held(subtree):
            self._tell(subtree)

    def gathered(self, subtree: str) -> None:
        """They are back, or will not come."""
        if self._recovery.pop(subtree, None) is not None and self._is_held(subtree):
            self._tell(subtree)

    def is_gathering(self, topic: str) -> bool:
        """Whether subscribers of a topic are on their way back."""
        return any(is_within(topic, part) for part in self._recovery)

    def gathering_epoch(self, part: str) -> int:
        """The lowest epoch under which a part that is gathering is held; 0: any will do."""
        return self._recovery.get(part, 0)

    @property
    def grants(self) -> list[Grant]:
        return list(self._grants.values())

    @property
    def delegations(self) -> list[Delegation]:
        return list(self._cuts)

    def grant_of(self, subtree: str) -> Grant | None:
        return self._grants.get(subtree)

    def delegation_of(self, subtree: str) -> Delegation | None:
        return self._cuts.get(subtree)

    def lookup(self, topic: str) -> Grant | Delegation | None:
        """Who decides about a topic: the longest grant or delegation that holds it."""
        found: Grant | Delegation | None = None
        for prefix in prefixes(topic, self._deepest):
            found = self._cuts.get(prefix) or self._grants.get(prefix) or found
        return found

    def around(self, subtree: str) -> Grant | Delegation | None:
        """Who decides about the level above a subtree, and about the subtree itself where nothing begins
        there."""
        return self.lookup(subtree.rpartition("/")[0])

    def enclosing(self, subtree: str) -> Grant | None:
        """The longest grant that a delegation of `subtree` is, or would be, cut out of."""
        grants = [g for g in self._grants.values() if g.subtree != subtree and is_within(subtree, g.subtree)]
        return max(grants, key=lambda g: len(g.subtree), default=None)

    def is_inner(self, subtree: str) -> bool:
        """Whether a grant lies directly in another that is served: nothing is cut out between the two."""
        around = self.around(subtree)
        return isinstance(around, Grant) and around.serving

    def holds_from(self, link: int, topic: str) -> bool:
        """Whether a grant from the parent at `link` holds a topic: only then may that parent pass it down."""
        return any(g.link == link and is_within(topic, g.subtree) for g in self._grants.values())

    def cuts_below(self, subtree: str) -> list[Delegation]:
        """The delegations at or below a subtree."""
        return self._cuts.below(subtree)

    def held_below(self, subtree: str) -> list[str]:
        """The grants below a subtree: this node has them from others, so they stay where the subtree goes."""
        return [s for s in self._grants if s != subtree and is_within(s, subtree)]

    def left_within(self, subtree: str) -> list[Grant]:
        """The grants below a subtree with nothing of another's between: who was there has handed back."""
        return [self._grants[s] for s in self.held_below(subtree) if not self._is_apart(s, subtree)]

    def cuts_of(self, subtree: str) -> list[Delegation]:
        """The delegations below a subtree that move with it: not those that this node cut out of a smaller
        one, which it has from another, or had before it was restarted."""
        expected = (s for s in self._expected if s != subtree and is_within(s, subtree))
        inner = [*self.held_below(subtree), *expected]
        return [
            d
            for d in self.cuts_below(subtree)
            if d.subtree != subtree and not any(is_within(d.subtree, held) for held in inner)
        ]

    def entrusted(self, subtree: str, node: str, address: Address) -> list[Delegation]:
        """The delegations below a subtree that go along with it when it goes to this node: not its own."""
        return [d for d in self.cuts_of(subtree) if (d.node, d.address) != (node, address)]

    def entrusted_to(self, delegation: Delegation) -> Delegation | None:
        """Who is the parent of a delegation's holder now, or soon, instead of this node (§5.4)."""
        found = None
        for prefix in prefixes(delegation.subtree, depth(delegation.subtree) - 1):
            if prefix in self._grants:
                found = None
            found = self._cuts.get(prefix) or found
        same = found is not None and (found.node, found.address) == (delegation.node, delegation.address)
        return None if same else found

    def zone(self, topic: str, grant: Grant) -> pb.Zone:
        """The zone as told to somebody who asked for `topic` (§5.3): the widest scope with few enough cuts.

        Where even the topic itself has too many cuts below it, some are told: an owner corrects the rest
        when asked.
        """
        scope = topic
        for prefix in prefixes(topic, self._deepest + 1):
            if is_within(prefix, grant.subtree) and self._fits_answer(prefix):
                scope = prefix
                break
        return pb.Zone(
            subtree=grant.subtree,
            epoch=grant.epoch,
            serial=grant.serial,
            scope=scope,
            cuts=_as_cuts(self._cuts.first_below(scope, MOST_CUTS_ANSWERED)),
        )

    def children(self, filter: str, parent_link: int | None = None) -> tuple[Delegation, ...]:
        """The delegations that a filter touches; with `parent_link`, those below that parent's grants.

        All of them are told (§6.1). But a node is reached from several parents, and each request goes on
        below the one it came from alone: so it arrives once for each delegation on its way, and never goes
        round. What this node delegated out of a subtree that it lost is nobody's business here, even if it
        holds more around that: whoever has the subtree now knows of it.
        """
        filter = self._cuts.gist(filter)
        known = self._touched.of((filter, parent_link))
        if known is None:
            cuts = (d for d in self._cuts.touched(filter) if self._is_named(d, parent_link))
            known = self._touched.keep((filter, parent_link), cuts)
        return known

    def served(self, filter: str) -> list[str]:
        """The subtrees that this node serves and that a filter touches."""
        return [g.subtree for g in self._grants.values() if g.serving and filter_touches(filter, g.subtree)]

    def responsible(self, filter: str) -> Grant | None:
        """A grant less its cuts that can hold a topic that matches; None: there is none (§6.1)."""
        return next(self._holding(filter), None)

    def is_moving(self, filter: str) -> bool:
        """Whether topics that match are on their way here, or away: held, and not served (§5.4)."""
        return any(self.is_in_doubt or not grant.serving for grant in self._holding(filter))

    def _holding(self, filter: str) -> Iterator[Grant]:
        for grant in self._grants.values():
            if filter_touches(filter, grant.subtree) and not self._cuts.covers(filter, grant.subtree):
                yield grant

    def _is_named(self, delegation: Delegation, parent_link: int | None) -> bool:
        """Whether what is around a cut is this node's, and that parent's grant if one asks."""
        around = delegation.subtree.rpartition("/")[0]
        if around not in self._deciders:
            self._deciders[around] = self.lookup(around)
        decider = self._deciders[around]
        return isinstance(decider, Grant) and (parent_link is None or decider.link == parent_link)

    def _is_apart(self, subtree: str, around: str) -> bool:
        between = (p for p in prefixes(subtree, depth(subtree) - 1) if p != around and is_within(p, around))
        return any(self._cuts.get(p) or p in self._grants for p in between)

    def _is_held(self, subtree: str) -> bool:
        return subtree in self._grants or self.enclosing(subtree) is not None

    def _tell(self, subtree: str) -> None:
        """Has the core know how a grant is held, or a part of one.

        What does not serve yet refuses everything: it may come with that part as a cut, under another epoch.
        A part of what is delegated is not held.
        """
        grant = self._grants.get(subtree)
        is_gathering = subtree in self._recovery
        source = grant
        if source is None and is_gathering:
            decider = self.lookup(subtree)
            source = decider if isinstance(decider, Grant) and decider.serving else None
        if source is not None:
            until = None if source.until is None else source.until - LEASE_DRIFT + self._unix_offset_us
            self._core.grant(
                subtree,
                max(source.epoch, self.gathering_epoch(subtree)),
                source.serving and not self.is_in_doubt,
                until,
                reserved=is_within(subtree, "$SYS"),
                gathering=is_gathering,
            )
        else:
            self._core.revoke(subtree)
        if grant is not None:
            self._tell_gathering(subtree, but=subtree)

    def _tell_gathering(self, subtree: str, *, but: str | None) -> None:
        """What holds of a grant holds of the parts of it that are gathering."""
        for part in [part for part in self._recovery if part != but and is_within(part, subtree)]:
            self._tell(part)

    def _fits_answer(self, scope: str) -> bool:
        below = self.cuts_below(scope) if self._cuts.count_below(scope) <= MOST_CUTS_ANSWERED else None
        return below is not None and len(_as_cuts(below)) == len(below)

    def _cuts_changed(self, subtree: str) -> None:
        for grant in self._grants.values():
            if is_within(subtree, grant.subtree):
                grant.serial += 1

    def _changed(self) -> None:
        """A grant or a cut came, or went."""
        self._deepest = max([self._cuts.deepest, *map(depth, self._grants)])
        self._touched.clear()
        self._deciders.clear()


def _as_cuts(delegations: list[Delegation]) -> list[pb.Cut]:
    """As many of them, from the first, as a zone has room for."""
    cuts = [cut_of(d.as_cut()) for d in delegations[:MOST_CUTS_ANSWERED]]
    sizes = accumulate(cut.ByteSize() for cut in cuts)
    return [cut for cut, size in zip(cuts, sizes, strict=True) if size <= MOST_CUT_BYTES]
