"""What a node owns: the subtrees that it was granted, less the cuts that it delegated out of them (§5).

In DNS terms, a grant is a zone, and a delegation a zone cut. For a topic the longest of both that contains it
decides: a grant means that this node owns the topic, a delegation that its child does. Every change is made
in the native core in the same step, so look-ups and PUBLISH always get the same answer.
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
from hbroker.protocol.ownership.cut_tree import CutTree, TouchedCuts
from hbroker.protocol.packets import Address, Cut, cut_of
from hbroker.protocol.timers import LEASE_DRIFT
from hbroker.subtree import depth, is_within, prefixes

__all__ = ["STATUS_ROOT", "Delegation", "Grant", "Jurisdiction"]

STATUS_ROOT: Final = "$SYS/nodes"
"""Every node owns the subtree of its own name below this topic, so that names are unique."""

MOST_CUTS_ANSWERED: Final = 16
MOST_CUT_BYTES: Final = 600
"""A zone names at most this many cuts and bytes of cuts; else its scope is narrowed (§5.3)."""


@dataclass(slots=True)
class Grant:
    """A subtree that this node owns. `link`: to the parent that granted it; None: the link is down, or this
    is the root's own grant."""

    subtree: str
    epoch: int
    link: int | None
    serving: bool
    until: int | None
    """When the lease ends, in microseconds; None: never."""
    serial: int = 0
    fencing: bool = False
    """The lease will end from now on (§5.6), once everything delegated out of the subtree is under
    `fence`."""


@dataclass(slots=True)
class Delegation:
    """A subtree that a child owns. `link`: from that child; None: the link is down."""

    subtree: str
    node: str
    address: Address
    incarnation: int
    epoch: int
    policy: LeasePolicy
    link: int | None
    until: int
    """When the granted lease ends, in microseconds.

    The parent takes the subtree back a drift allowance later (§5.6).
    """

    def as_cut(self) -> Cut:
        """The delegation as the native core takes it."""
        return self.subtree, self.node, self.address, self.epoch


class Jurisdiction:
    """The grants and cuts of one node. `save_cut` is called with each cut before it is made, and with True
    after it has ended.

    `unix_offset_us`: added to a time of the control, it gives a time of the core.
    """

    def __init__(
        self,
        core: NodeCore,
        save_cut: Callable[[Delegation, bool], None] = lambda cut, ended: None,
        unix_offset_us: int = 0,
    ) -> None:
        self._core = core
        self._save_cut = save_cut
        self._unix_offset_us = unix_offset_us
        self._grants: dict[str, Grant] = {}
        self._cuts: CutTree[Delegation] = CutTree()
        self._successors: set[str] = set()
        """Subtrees that were handed back, and for which the core still names the new owner."""
        self._recovery: dict[str, int] = {}
        self._expected: set[str] = set()
        self._deepest = 0
        self.is_in_doubt = False
        """The node serves nothing, because it may have delegated subtrees that it does not know (§5.9)."""
        self._touched: TouchedCuts[Delegation] = TouchedCuts()
        self._deciders: dict[str, Grant | Delegation | None] = {}
        """For the prefix above a cut: the grant or delegation that decides there, until something changes."""

    def set_grant(self, grant: Grant) -> None:
        """Adds a grant, or changes it: a new epoch, whether it is served, a later end of the lease.

        The core ends the lease by itself, in case this process is stopped and goes on too late (§5.6).
        Subtrees below `$SYS` are reserved: no client can publish there (§7.2).
        """
        for subtree in [s for s in self._successors if is_within(s, grant.subtree)]:
            self._successors.discard(subtree)
            self._core.uncut(subtree)
        self._grants[grant.subtree] = grant
        self._expected.discard(grant.subtree)
        self._changed()
        self._update_core(grant.subtree)

    def remove_grant(self, subtree: str, successor: Cut | None = None) -> None:
        """Removes a grant. Its cuts stay delegated.

        `successor`: the new owner, which publishers that still come are referred to (§7.2).
        """
        if self._grants.pop(subtree, None) is not None:
            self._recovery.pop(subtree, None)
            self._core.revoke(subtree)
            self._update_recovering(subtree, but=subtree)
            self._changed()
            if successor is not None and self.lookup(subtree) is None:
                self._successors.add(subtree)
                self._core.cut(successor)

    def expect(self, claims: Iterable[str]) -> None:
        """After a restart: notes which of these claims lie below a delegation of this node. Another node
        granted them before, and may do so again. Cuts out of such a subtree do not move with the subtree
        around it."""
        self._expected = {subtree for subtree in claims if isinstance(self.lookup_above(subtree), Delegation)}

    def unexpect(self, subtree: str) -> None:
        """This node does not claim a subtree any more."""
        self._expected.discard(subtree)

    def begin_doubt(self) -> None:
        """The node may have delegated subtrees that it does not know (§5.9). To be called before the first
        `set_grant`."""
        self.is_in_doubt = True

    def end_doubt(self) -> None:
        """Every delegation that may exist is known. From now on the node serves what it holds."""
        self.is_in_doubt = False
        for subtree in self._grants:
            self._update_core(subtree)

    def merge(self, subtree: str) -> None:
        """Removes a grant that lies within another one, which the node serves: the subtree is now a part of
        the larger one. A recovery in it goes on."""
        if self._grants.pop(subtree, None) is not None:
            self._changed()
            self._update_core(subtree)
            self._update_recovering(subtree, but=subtree)

    def delegate(self, delegation: Delegation) -> None:
        """Adds a cut, or replaces the cut of the same subtree."""
        self._cuts.put(delegation)
        self._changed()
        self._save_cut(delegation, False)
        self._successors.discard(delegation.subtree)
        self._core.cut(delegation.as_cut())
        self._update_recovering(delegation.subtree, but=None)
        self._cuts_changed(delegation.subtree)

    def take_back(self, subtree: str) -> None:
        """Removes a cut: the subtree is this node's again."""
        delegation = self._cuts.remove(subtree)
        if delegation is None:
            return
        self._changed()
        for part in [part for part in self._recovery if is_within(part, subtree)]:
            self._recovery[part] = max(self._recovery[part], delegation.epoch + 1)
            self._update_core(part)  # Before the cut ends, because from then on messages are accepted here.
        self._core.uncut(subtree)
        self._save_cut(delegation, True)
        self._cuts_changed(subtree)

    def save_cut(self, delegation: Delegation) -> None:
        """Notes a change of a cut that concerns only this node and its next run."""
        self._save_cut(delegation, False)

    def begin_recovery(self, subtree: str, epoch: int = 0) -> None:
        """Begins the recovery of a grant, or of a part of one (§5.8).

        `epoch`: the lowest epoch under which the part is held. It was delegated under a lower one.
        """
        self._recovery[subtree] = max(epoch, self._recovery.get(subtree, 0))
        if self._is_held(subtree):
            self._update_core(subtree)

    def end_recovery(self, subtree: str) -> None:
        """Ends the recovery of a part."""
        if self._recovery.pop(subtree, None) is not None and self._is_held(subtree):
            self._update_core(subtree)

    def is_recovering(self, topic: str) -> bool:
        """Whether a topic is in recovery."""
        return any(is_within(topic, part) for part in self._recovery)

    def recovery_epoch(self, part: str) -> int:
        """The lowest epoch under which a part in recovery is held; 0: any."""
        return self._recovery.get(part, 0)

    @property
    def grants(self) -> list[Grant]:
        """All grants."""
        return list(self._grants.values())

    @property
    def delegations(self) -> list[Delegation]:
        """All cuts."""
        return list(self._cuts)

    def grant_of(self, subtree: str) -> Grant | None:
        """The grant of exactly this subtree, or None."""
        return self._grants.get(subtree)

    def delegation_of(self, subtree: str) -> Delegation | None:
        """The cut of exactly this subtree, or None."""
        return self._cuts.get(subtree)

    def lookup(self, topic: str) -> Grant | Delegation | None:
        """The longest grant or delegation that contains a topic, which decides about it; None: there is
        none."""
        found: Grant | Delegation | None = None
        for prefix in prefixes(topic, self._deepest):
            found = self._cuts.get(prefix) or self._grants.get(prefix) or found
        return found

    def lookup_above(self, subtree: str) -> Grant | Delegation | None:
        """The grant or delegation that decides about the level above a subtree, and about the subtree itself
        if none begins there; None: there is none."""
        return self.lookup(subtree.rpartition("/")[0])

    def enclosing_grant(self, subtree: str) -> Grant | None:
        """The longest grant out of which a delegation of `subtree` is, or would be, cut."""
        grants = [g for g in self._grants.values() if g.subtree != subtree and is_within(subtree, g.subtree)]
        return max(grants, key=lambda g: len(g.subtree), default=None)

    def is_inner(self, subtree: str) -> bool:
        """Whether a grant lies directly in another one that is served, without a cut between the two."""
        around = self.lookup_above(subtree)
        return isinstance(around, Grant) and around.serving

    def is_granted_by(self, link: int, topic: str) -> bool:
        """Whether a grant of the parent at `link` contains a topic. Only then may that parent forward
        requests for it."""
        return any(g.link == link and is_within(topic, g.subtree) for g in self._grants.values())

    def cuts_below(self, subtree: str) -> list[Delegation]:
        """The delegations at or below a subtree."""
        return self._cuts.cuts_below(subtree)

    def grants_below(self, subtree: str) -> list[Grant]:
        """The grants below a subtree. Other nodes granted them, so they stay here when the subtree moves."""
        return [grant for s, grant in self._grants.items() if s != subtree and is_within(s, subtree)]

    def subtrees_granted_below(self, subtree: str) -> list[str]:
        """The subtrees of `grants_below`."""
        return [grant.subtree for grant in self.grants_below(subtree)]

    def subtrees_expected_below(self, subtree: str) -> list[str]:
        """The smaller subtrees that other nodes granted to the earlier run of this node, and that it has not
        got back yet."""
        return [s for s in self._expected if s != subtree and is_within(s, subtree)]

    def grants_left_within(self, subtree: str) -> list[Grant]:
        """The grants below a subtree without another node's subtree between them: the node between has handed
        back."""
        return [g for g in self.grants_below(subtree) if not self._is_separate(g.subtree, subtree)]

    def cuts_moving_with(self, subtree: str) -> list[Delegation]:
        """The cuts below a subtree that move with it. Not among them: cuts out of a smaller subtree that
        another node granted, or granted before a restart."""
        expected = self.subtrees_expected_below(subtree)
        inner = [*self.subtrees_granted_below(subtree), *expected]
        return [
            d
            for d in self.cuts_below(subtree)
            if d.subtree != subtree and not any(is_within(d.subtree, held) for held in inner)
        ]

    def cuts_moving_to(self, subtree: str, node: str, address: Address) -> list[Delegation]:
        """The cuts below a subtree that go along when the subtree goes to this node; not its own."""
        return [d for d in self.cuts_moving_with(subtree) if (d.node, d.address) != (node, address)]

    def future_parent_of(self, delegation: Delegation) -> Delegation | None:
        """The delegation whose holder is, or will be, the parent of this delegation's holder, in place of
        this node (§5.4); None: this node stays its parent."""
        found = None
        for prefix in prefixes(delegation.subtree, depth(delegation.subtree) - 1):
            if prefix in self._grants:
                found = None
            found = self._cuts.get(prefix) or found
        same = found is not None and (found.node, found.address) == (delegation.node, delegation.address)
        return None if same else found

    def zone(self, topic: str, grant: Grant) -> pb.Zone:
        """The zone for a client that asked for `topic` (§5.3): the widest scope with few enough cuts.

        If the topic itself has too many cuts below it, the zone names only some of them. Owners correct the
        rest when they are asked.
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

    def touched_cuts(self, filter: str, parent_link: int | None = None) -> tuple[Delegation, ...]:
        """The cuts that a filter touches. With `parent_link`: only those below that parent's grants.

        An answer names all of them (§6.1). But a node may have several parents, and forwards each request
        only below the grants of the parent from which it came. So a request arrives once for each delegation
        on its way, and does not go round. A cut out of a subtree that this node has lost is not named, even
        if the node holds a larger subtree around it: the present owner of that subtree knows it.
        """
        filter = self._cuts.canonical_filter(filter)
        known = self._touched.of((filter, parent_link))
        if known is None:
            cuts = (d for d in self._cuts.touched(filter) if self._is_named(d, parent_link))
            known = self._touched.put((filter, parent_link), cuts)
        return known

    def served_subtrees(self, filter: str) -> list[str]:
        """The subtrees that this node serves and the filter touches."""
        return [g.subtree for g in self._grants.values() if g.serving and filter_touches(filter, g.subtree)]

    def responsible_grant(self, filter: str) -> Grant | None:
        """A grant that, less its cuts, can have a topic that matches the filter; None: there is none
        (§6.1)."""
        return next(self._holding(filter), None)

    def is_moving(self, filter: str) -> bool:
        """Whether this node holds topics that may match, and does not serve them (§5.4)."""
        return any(self.is_in_doubt or not grant.serving for grant in self._holding(filter))

    def _holding(self, filter: str) -> Iterator[Grant]:
        for grant in self._grants.values():
            if filter_touches(filter, grant.subtree) and not self._cuts.covers(filter, grant.subtree):
                yield grant

    def _is_named(self, delegation: Delegation, parent_link: int | None) -> bool:
        """Whether the subtree around a cut is this node's, by a grant of that parent if one is given."""
        around = delegation.subtree.rpartition("/")[0]
        if around not in self._deciders:
            self._deciders[around] = self.lookup(around)
        decider = self._deciders[around]
        return isinstance(decider, Grant) and (parent_link is None or decider.link == parent_link)

    def _is_separate(self, subtree: str, around: str) -> bool:
        between = (p for p in prefixes(subtree, depth(subtree) - 1) if p != around and is_within(p, around))
        return any(self._cuts.get(p) or p in self._grants for p in between)

    def _is_held(self, subtree: str) -> bool:
        return subtree in self._grants or self.enclosing_grant(subtree) is not None

    def _update_core(self, subtree: str) -> None:
        """Updates a grant, or a part of one that is in recovery, in the native core.

        A grant that is not served refuses everything, so its parts are not told apart: it may come with such
        a part as a cut, under another epoch. A part that is delegated is not held.
        """
        grant = self._grants.get(subtree)
        is_recovering = subtree in self._recovery
        source = grant
        if source is None and is_recovering:
            decider = self.lookup(subtree)
            source = decider if isinstance(decider, Grant) and decider.serving else None
        if source is not None:
            until = None if source.until is None else source.until - LEASE_DRIFT + self._unix_offset_us
            self._core.grant(
                subtree,
                max(source.epoch, self.recovery_epoch(subtree)),
                source.serving and not self.is_in_doubt,
                until,
                reserved=is_within(subtree, "$SYS"),
                recovering=is_recovering,
            )
        else:
            self._core.revoke(subtree)
        if grant is not None:
            self._update_recovering(subtree, but=subtree)

    def _update_recovering(self, subtree: str, *, but: str | None) -> None:
        """Updates the parts of a grant that are in recovery, as the grant has changed."""
        for part in [part for part in self._recovery if part != but and is_within(part, subtree)]:
            self._update_core(part)

    def _fits_answer(self, scope: str) -> bool:
        below = self.cuts_below(scope) if self._cuts.count_below(scope) <= MOST_CUTS_ANSWERED else None
        return below is not None and len(_as_cuts(below)) == len(below)

    def _cuts_changed(self, subtree: str) -> None:
        for grant in self._grants.values():
            if is_within(subtree, grant.subtree):
                grant.serial += 1

    def _changed(self) -> None:
        """Called after a grant or a cut was added or removed."""
        self._deepest = max([self._cuts.deepest, *map(depth, self._grants)])
        self._touched.clear()
        self._deciders.clear()


def _as_cuts(delegations: list[Delegation]) -> list[pb.Cut]:
    """As many of these delegations, from the first, as a zone has room for."""
    cuts = [cut_of(d.as_cut()) for d in delegations[:MOST_CUTS_ANSWERED]]
    sizes = accumulate(cut.ByteSize() for cut in cuts)
    return [cut for cut, size in zip(cuts, sizes, strict=True) if size <= MOST_CUT_BYTES]
