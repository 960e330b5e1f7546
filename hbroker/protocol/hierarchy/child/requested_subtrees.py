"""The subtrees that a node claims: those of its settings, and as orders have changed them (§5.7).

Each claim is an `Uplink`. The node's own subtree below `$SYS` is always a claim, and the first one. Until the
node holds it, the node claims nothing else: another node may have its name (§5.1), and nobody would see which
of the two owns what. What orders changed survives the process: the storage notes all claims when one is added
or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hbroker.protocol.hierarchy.child.uplink import Uplink, UplinkContext, UplinkState
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT

__all__ = ["RequestedSubtrees"]


class RequestedSubtrees:
    """All claims of one node; the root has none. `remembered`: the claims of an earlier run; None: those of
    the settings."""

    def __init__(self, context: UplinkContext, remembered: Sequence[str] | None) -> None:
        self._context = context
        settings = context.node.settings
        own = f"{STATUS_ROOT}/{settings.name}"
        wanted = settings.subtrees if remembered is None else remembered
        subtrees = () if settings.is_root else (*wanted, own)
        self._uplinks = {subtree: Uplink(subtree, context) for subtree in subtrees}
        self._own: Final = own
        self._is_named = settings.is_root
        """Whether this node has held its own subtree below `$SYS`, so no other node has its name."""

    # Change

    def start(self, now: int) -> None:
        """Claims this node's own subtree below `$SYS`. The other claims start once it is held."""
        if self._own in self._uplinks:
            self._uplinks[self._own].start(now)

    def settle(self, now: int) -> None:
        """Starts the other claims once this node has its name, or gives them up if the name was refused for
        good."""
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
                uplink.handle_refusal(now, own.refused)

    def claim(self, now: int, subtree: str) -> None:
        """Adds a claim."""
        if subtree not in self._uplinks:
            self._uplinks = {subtree: Uplink(subtree, self._context), **self._uplinks}
            self._context.node.storage.note_requested_subtrees(self.subtrees)
            if self._is_named:
                self._uplinks[subtree].start(now)

    def hand_back(self, now: int, subtree: str) -> None:
        """Hands a subtree back. It stays a claim, also for a later run, until the parent has it. Otherwise
        nobody would own it if this process died before that."""
        self._uplinks[subtree].hand_back(now)

    def forget(self, subtree: str) -> None:
        """Removes a claim that has stopped."""
        if self._uplinks.pop(subtree, None) is not None:
            self._context.parent_role.open(subtree)
            self._context.node.jurisdiction.give_up(subtree)
            self._context.node.storage.note_requested_subtrees(self.subtrees)

    def merge(self, now: int) -> None:
        """Merges each claim that now lies within a larger subtree that this node serves."""
        for uplink in self:
            uplink.merge(now)

    def leave(self, now: int) -> None:
        """Hands all subtrees back, because the node leaves."""
        for uplink in self:
            uplink.leave(now)

    # Read

    def find(self, subtree: str) -> Uplink | None:
        """The claim to this subtree, or None."""
        return self._uplinks.get(subtree)

    @property
    def subtrees(self) -> list[str]:
        """All claimed subtrees, without the node's own one below `$SYS`."""
        return [subtree for subtree in self._uplinks if subtree != self._own]

    @property
    def main(self) -> str | None:
        """The subtree of the settings or, if it was handed back, the first one that is claimed. Empty: this
        is the root; None: there is none."""
        settings = self._context.node.settings
        if settings.is_root or settings.subtree in self._uplinks:
            return settings.subtree
        return next(iter(self.subtrees), None)

    @property
    def parent(self) -> str | None:
        """The name of the parent for `main`, or else for the node's own subtree below `$SYS`. Empty: unknown
        yet; None: this is the root."""
        uplink = self._uplinks.get(self.main or "") or self._uplinks.get(self._own)
        return None if uplink is None else uplink.parent

    @property
    def are_held(self) -> bool:
        """Whether this node serves all claimed subtrees, each by itself or within a larger one."""
        return all(u.is_held or u.is_covered for u in self)

    @property
    def have_ended(self) -> bool:
        """Whether there were claims, and all have stopped."""
        return bool(self._uplinks) and all(u.state is UplinkState.STOPPED for u in self)

    def __iter__(self) -> Iterator[Uplink]:
        return iter(list(self._uplinks.values()))
