"""The subtrees that a node claims: those of its settings, and as orders have changed them (§5.7).

Each claim is a `SubtreeClaim`. The node's own subtree below `$SYS` is always a claim, and the first one.
Until the node holds it, the node claims nothing else: another node may have its name (§5.1), and nobody would
see which of the two owns what. What orders changed survives the process: the storage notes all claims when
one is added or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hbroker.protocol.hierarchy.child.claim_states import ClaimState
from hbroker.protocol.hierarchy.child.subtree_claim import ClaimContext, SubtreeClaim
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT

__all__ = ["SubtreeClaims"]


class SubtreeClaims:
    """All claims of one node; the root has none. `restored`: the claims of an earlier run; None: those of
    the settings."""

    def __init__(self, context: ClaimContext, restored: Sequence[str] | None) -> None:
        self._context = context
        settings = context.node.settings
        own = f"{STATUS_ROOT}/{settings.name}"
        wanted = settings.subtrees if restored is None else restored
        subtrees = () if settings.is_root else (*wanted, own)
        self._claims = {subtree: SubtreeClaim(subtree, context) for subtree in subtrees}
        self._own: Final = own
        self._is_named = settings.is_root
        """Whether this node has held its own subtree below `$SYS`, so no other node has its name."""

    # Change

    def start(self, now: int) -> None:
        """Claims this node's own subtree below `$SYS`. The other claims start once it is held."""
        if self._own in self._claims:
            self._claims[self._own].start(now)

    def start_pending(self, now: int) -> None:
        """Starts the other claims once this node has its name, or gives them up if the name was refused for
        good."""
        own = self._claims.get(self._own)
        if self._is_named or own is None:
            return
        others = [claim for claim in self if claim is not own]
        if own.is_held:
            self._is_named = True
            for claim in others:
                claim.start(now)
        elif own.state is ClaimState.STOPPED and own.last_refusal is not None:
            self._is_named = True
            for claim in others:
                claim.handle_refusal(now, own.last_refusal)

    def add(self, now: int, subtree: str) -> None:
        """Adds a claim."""
        if subtree not in self._claims:
            self._claims = {subtree: SubtreeClaim(subtree, self._context), **self._claims}
            self._context.node.storage.save_claims(self.subtrees)
            if self._is_named:
                self._claims[subtree].start(now)

    def hand_back(self, now: int, subtree: str) -> None:
        """Hands a subtree back. It stays a claim, also for a later run, until the parent has it. Otherwise
        nobody would own it if this process died before that."""
        self._claims[subtree].hand_back(now)

    def forget(self, subtree: str) -> None:
        """Removes a claim that has stopped."""
        if self._claims.pop(subtree, None) is not None:
            self._context.join_responder.open(subtree)
            self._context.node.jurisdiction.unexpect(subtree)
            self._context.node.storage.save_claims(self.subtrees)

    def merge(self, now: int) -> None:
        """Merges each claim that now lies within a larger subtree that this node serves."""
        for claim in self:
            claim.merge(now)

    def leave(self, now: int) -> None:
        """Hands all subtrees back, because the node leaves."""
        for claim in self:
            claim.leave(now)

    # Read

    def find(self, subtree: str) -> SubtreeClaim | None:
        """The claim to this subtree, or None."""
        return self._claims.get(subtree)

    @property
    def root_link(self) -> int | None:
        """The link to the root, over which this node holds its own subtree below `$SYS`; None: there is none
        now."""
        own = self._claims.get(self._own)
        return own.link if own is not None and own.is_held else None

    @property
    def subtrees(self) -> list[str]:
        """All claimed subtrees, without the node's own one below `$SYS`."""
        return [subtree for subtree in self._claims if subtree != self._own]

    @property
    def main(self) -> str | None:
        """The subtree of the settings or, if it was handed back, the first one that is claimed. Empty: this
        is the root; None: there is none."""
        settings = self._context.node.settings
        if settings.is_root or settings.subtree in self._claims:
            return settings.subtree
        return next(iter(self.subtrees), None)

    @property
    def parent(self) -> str | None:
        """The name of the parent for `main`, or else for the node's own subtree below `$SYS`. Empty: unknown
        yet; None: this is the root."""
        claim = self._claims.get(self.main or "") or self._claims.get(self._own)
        return None if claim is None else claim.parent

    @property
    def are_held(self) -> bool:
        """Whether this node serves all claimed subtrees, each by itself or within a larger one."""
        return all(u.is_held or u.is_covered for u in self)

    @property
    def have_ended(self) -> bool:
        """Whether there were claims, and all have stopped."""
        return bool(self._claims) and all(u.state is ClaimState.STOPPED for u in self)

    def __iter__(self) -> Iterator[SubtreeClaim]:
        return iter(list(self._claims.values()))
