"""Which subtrees a node claims: those it was told to by its settings, and by orders since (§5.7).

A claim is an `Uplink`. The node's own part of `$SYS` is always one of them, and the first: until that is held
the node claims nothing else, for another may have its name (§5.1), and nobody would see which of the two owns
what. What orders changed outlives the process: `remember` is told all claims before a change takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hbroker.protocol.hierarchy.child.context import UplinkContext
from hbroker.protocol.hierarchy.child.uplink import Uplink, UplinkState
from hbroker.protocol.hierarchy.parent.admission import STATUS_ROOT

__all__ = ["RequestedSubtrees"]


class RequestedSubtrees:
    """All claims of one node; the root has none. `remembered`: what an earlier run was told last; None: what
    the settings say."""

    def __init__(
        self,
        context: UplinkContext,
        remembered: Sequence[str] | None = None,
        remember: Callable[[Sequence[str]], None] = lambda requested_subtrees: None,
    ) -> None:
        self._context = context
        self._remember = remember
        settings = context.settings
        own = f"{STATUS_ROOT}/{settings.name}"
        wanted = settings.subtrees if remembered is None else remembered
        subtrees = () if settings.is_root else (*wanted, own)
        self._uplinks = {subtree: Uplink(subtree, context) for subtree in subtrees}
        self._own: Final = own
        self._is_named = settings.is_root
        """This node has held its own part of `$SYS`: no other has its name."""

    # Change

    def start(self, now: int) -> None:
        """Begins to ask for this node's own part of `$SYS`; for the others once it has that."""
        if self._own in self._uplinks:
            self._uplinks[self._own].start(now)

    def settle(self, now: int) -> None:
        """Goes on with the others, once it is decided whether this node may have its name."""
        own = self._uplinks.get(self._own)
        if self._is_named or own is None:
            return
        others = [uplink for uplink in self if uplink is not own]
        if own.is_held:
            self._is_named = True
            for uplink in others:
                uplink.start(now)
        elif own.state is UplinkState.STOPPED and own.refused is not None:
            self._is_named = True
            for uplink in others:
                uplink.refuse_for_good(now, own.refused)

    def claim(self, now: int, subtree: str) -> None:
        """Claims one more, from now on."""
        if subtree not in self._uplinks:
            self._uplinks = {subtree: Uplink(subtree, self._context), **self._uplinks}
            self._remember(self.subtrees)
            if self._is_named:
                self._uplinks[subtree].start(now)

    def hand_back(self, now: int, subtree: str) -> None:
        """Gives one up. It is among the claims, also for a later run of this node, until its parent has it:
        else nobody would own it when this process dies before that."""
        self._uplinks[subtree].hand_back(now)

    def forget(self, subtree: str) -> None:
        """Takes out one that has stopped."""
        if self._uplinks.pop(subtree, None) is not None:
            self._context.parent_role.open(subtree)
            self._context.jurisdiction.give_up(subtree)
            self._remember(self.subtrees)

    def merge(self, now: int) -> None:
        """This node may have come to serve what is around some of them."""
        for uplink in self:
            uplink.merge(now)

    def leave(self, now: int) -> None:
        """Gives all up."""
        for uplink in self:
            uplink.leave(now)

    # Read

    def find(self, subtree: str) -> Uplink | None:
        """The claim to a subtree."""
        return self._uplinks.get(subtree)

    @property
    def subtrees(self) -> list[str]:
        """All that is claimed, less the node's own part of `$SYS`."""
        return [subtree for subtree in self._uplinks if subtree != self._own]

    @property
    def main(self) -> str | None:
        """What this node is there for: what its settings say, or, since that was handed back, what it claims
        instead. Empty: the root's; None: nothing."""
        settings = self._context.settings
        if settings.is_root or settings.subtree in self._uplinks:
            return settings.subtree
        return next(iter(self.subtrees), None)

    @property
    def parent(self) -> str | None:
        """The name of the parent for `main`, or else of any; empty: not known yet; None: this is the root."""
        uplink = self._uplinks.get(self.main or "") or self._uplinks.get(self._own)
        return None if uplink is None else uplink.parent

    @property
    def are_held(self) -> bool:
        """Whether this node serves all of them, by themselves or within a larger one."""
        return all(u.is_held or u.is_covered for u in self)

    @property
    def have_ended(self) -> bool:
        """Whether there were some, and none goes on."""
        return bool(self._uplinks) and all(u.state is UplinkState.STOPPED for u in self)

    def __iter__(self) -> Iterator[Uplink]:
        return iter(list(self._uplinks.values()))
