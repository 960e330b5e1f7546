"""The way of a request: where it came from, where its answer goes, how much further it may go (§4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import NodeCore
from hbroker.protocol.packets import Address, Body, address_of, pack

__all__ = ["MOST_HOPS", "Requester"]

MOST_HOPS: Final = 64
"""The most nodes that forward one request. No tree is as deep; the bound limits a defect."""


@dataclass(frozen=True, slots=True)
class Requester:
    """The way of one request. `origin` has proved its address, to this node or to a parent that vouches for
    it."""

    origin: Address
    hops: int = 0
    session_link: int | None = None
    """The link of the client or child that sent the request within its session."""
    parent_link: int | None = None
    """The link to the parent that forwarded the request."""

    def answer(self, core: NodeCore, body: Body) -> None:
        """Answers the requester directly: within its session if it has one here, else outside of sessions."""
        self.answer_packed(core, pack(body))

    def answer_packed(self, core: NodeCore, packet: bytes) -> None:
        """As `answer`, with a serialised packet."""
        if self.session_link is not None:
            core.send(self.session_link, packet)
        else:
            core.send_to(self.origin, packet)

    def onward(self) -> pb.Origin | None:
        """The `origin` of the forwarded request; None: the request has been forwarded as often as it may."""
        if self.hops >= MOST_HOPS:
            return None
        return pb.Origin(address=address_of(self.origin), hops=self.hops + 1)
