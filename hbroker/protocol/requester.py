"""Where a request came from, and therefore where its answer goes and how far it may travel (§4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import NodeCore
from hbroker.protocol.packets import Address, Body, address_of, pack

__all__ = ["MOST_HOPS", "Requester"]

MOST_HOPS: Final = 64
"""Nodes that may pass one request down. A tree is never as deep; a defect may be."""


@dataclass(frozen=True, slots=True)
class Requester:
    """One request's way here. `origin` has proved itself, to this node or to a parent that vouches for it."""

    origin: Address
    hops: int = 0
    session_link: int | None = None
    """The link of the client or child that sent it within its session."""
    parent_link: int | None = None
    """The link to the parent that passed it down."""

    def answer(self, core: NodeCore, body: Body) -> None:
        """Answers the one who asked, directly: within its session where it has one here."""
        self.answer_packed(core, pack(body))

    def answer_packed(self, core: NodeCore, packet: bytes) -> None:
        """As `answer`, with a serialised packet."""
        if self.session_link is not None:
            core.send(self.session_link, packet)
        else:
            core.send_to(self.origin, packet)

    def onward(self) -> pb.Origin | None:
        """What to vouch for when the request is passed down; None: it went far enough."""
        if self.hops >= MOST_HOPS:
            return None
        return pb.Origin(address=address_of(self.origin), hops=self.hops + 1)
