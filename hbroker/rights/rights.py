"""What a client may do: read and write which topics, retain messages, join shared groups.

Each block of a token has rights of its own, and the token has their intersection: an operation is allowed if
every block allows it. So a block that somebody appends can only narrow a token.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from hbroker.topic_filters import covers
from hbroker.workspace import ROOT, name_of

__all__ = ["ALL_RIGHTS", "BlockRights", "Rights"]


@dataclass(frozen=True, slots=True, order=True)
class BlockRights:
    """The rights of one block of a token.

    `read`, `write`: topic filters, without duplicates and sorted. `retain`: the holder may publish retained
    messages. `share`: it may subscribe in shared groups.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    retain: bool = False
    share: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "read", tuple(sorted(set(self.read))))
        object.__setattr__(self, "write", tuple(sorted(set(self.write))))


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of one token: what all its blocks allow.

    All names are those of the network, as packets have them (`hbroker.workspace`). `blocks`: without
    duplicates and sorted, because their order has no meaning. `clients`: the client ids that blocks name,
    likewise. `is_unlimited`: everything is allowed, as to a node; there are no blocks then. `workspace`: of
    which the holder is a client; empty: of none. `named_client`: the client id that the authority's own block
    names, and nobody who appended one; empty: none. Raises ValueError if there are no blocks otherwise.
    """

    blocks: tuple[BlockRights, ...]
    clients: tuple[str, ...] = ()
    is_unlimited: bool = False
    workspace: str = ""
    named_client: str = ""
    key: int = field(init=False, compare=False)
    """A 64-bit number. Equal rights have equal keys, and different rights have different ones (but for
    collisions of the first 64 bits of SHA-256). 0: unlimited rights, and no others. The expiry of a token is
    no part of it."""

    def __post_init__(self) -> None:
        if self.is_unlimited == bool(self.blocks):
            raise ValueError("rights have blocks, or are unlimited")
        object.__setattr__(self, "blocks", tuple(sorted(set(self.blocks))))
        object.__setattr__(self, "clients", tuple(sorted(set(self.clients))))
        object.__setattr__(self, "key", 0 if self.is_unlimited else self._hash())

    def may_write(self, topic: str, retain: bool) -> bool:
        """Whether the holder may publish to a topic. `retain`: the message is to be retained.

        `topic`: a valid topic name; or a valid filter, and then the question is for all topics that match it.
        """
        return all(_is_covered(topic, block.write) and retain <= block.retain for block in self.blocks)

    def may_read(self, filter: str, is_shared: bool) -> bool:
        """Whether the holder may subscribe with a valid filter. `is_shared`: in a shared group.

        Each block needs one filter that covers the whole of it. Several filters that cover it only together
        are not enough.
        """
        return all(_is_covered(filter, block.read) and is_shared <= block.share for block in self.blocks)

    @property
    def is_empty(self) -> bool:
        """Whether the holder may neither read nor write anything, because a block names no filter."""
        return any(not block.read and not block.write for block in self.blocks)

    def may_be(self, client_id: str) -> bool:
        """Whether the holder may have this client id: no block names another one, and it is of the holder's
        workspace, or of one that the holder may read."""
        workspace = name_of(client_id)
        is_at_home = workspace == self.workspace or self.is_unlimited
        return all(client_id == named for named in self.clients) and (
            is_at_home or (workspace != "" and self.may_read(f"{ROOT}/{workspace}/#", is_shared=False))
        )

    def _hash(self) -> int:
        blocks = [(block.read, block.write, block.retain, block.share) for block in self.blocks]
        more = [self.workspace, self.named_client] if self.workspace or self.named_client else []
        digest = sha256(json.dumps([blocks, self.clients, *more]).encode("ascii")).digest()
        return int.from_bytes(digest[:8], "big") or 1


def _is_covered(filter: str, allowed: tuple[str, ...]) -> bool:
    return any(covers(wide, filter) for wide in allowed)


ALL_RIGHTS: Final = Rights((), is_unlimited=True)
"""What a node may do: everything. No token has these rights."""
