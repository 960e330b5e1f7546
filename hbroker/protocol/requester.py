"""The way of a request: where it came from, where its answer goes, how much further it may go (§4.3).

A SUBSCRIBE for `#` goes to every child. Without a limit, a host that repeats it would make a node with a
thousand children send a thousand packets for each packet of its own. So each host has an allowance that
refills with time (a token bucket). A request beyond it is answered, and not forwarded.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.core import NodeCore
from hbroker.protocol.packets import Address, Body, address_of, pack
from hbroker.rights.rights import ALL_RIGHTS, Rights

__all__ = ["MOST_HOPS", "ForwardingLimits", "Requester"]

MOST_HOPS: Final = 64
"""The most nodes that forward one request. No tree is as deep; the bound limits a defect."""

MOST_FORWARDED: Final = 20_000
"""Packets that a node forwards for one host at once."""
FORWARDED_A_SECOND: Final = 2_000
"""Packets per second by which an allowance refills."""
MOST_HOSTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Requester:
    """The way of one request. `address` has proved its address, to this node or to a parent that vouches for
    it."""

    address: Address
    hops: int = 0
    session_link: int | None = None
    """The link of the client or child that sent the request within its session."""
    parent_link: int | None = None
    """The link to the parent that forwarded the request."""
    rights: Rights = ALL_RIGHTS
    """What it may do. The node that received the request first has checked it, so here what a parent forwards
    is allowed."""
    rights_key: int = 0
    """Of its rights, also if a parent forwarded the request (§4.6)."""

    def answer(self, core: NodeCore, body: Body) -> None:
        """Answers the requester directly: within its session if it has one here, else outside of sessions."""
        self.answer_packed(core, pack(body))

    def answer_packed(self, core: NodeCore, packet: bytes) -> None:
        """As `answer`, with a serialised packet."""
        if self.session_link is not None:
            core.send(self.session_link, packet)
        else:
            core.send_to(self.address, packet, rights=self.rights_key)

    def forwarded_origin(self) -> pb.Origin | None:
        """The `origin` of the forwarded request; None: the request has been forwarded as often as it may."""
        if self.hops >= MOST_HOPS:
            return None
        return pb.Origin(address=address_of(self.address), hops=self.hops + 1, rights=self.rights_key)


class ForwardingLimits:
    """What is left for each host. A host that is not listed has its whole allowance."""

    def __init__(self) -> None:
        self._allowances: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By host, the one that asked last at the end: how many packets were left, and when
        (microseconds)."""

    def try_consume(self, now: int, host: Address, packets: int) -> bool:
        """Takes this number of packets from a host's allowance. False: fewer are left, and they stay.

        If a host has its whole allowance, any number is allowed.
        """
        key = _network_of(host[0])
        left, at = self._allowances.pop(key, (float(MOST_FORWARDED), now))
        left = min(MOST_FORWARDED, left + FORWARDED_A_SECOND * (now - at) / timers.SECOND)
        is_allowed = packets <= left or left == MOST_FORWARDED
        self._allowances[key] = (max(0.0, left - packets) if is_allowed else left), now
        if len(self._allowances) > MOST_HOSTS:
            self._allowances.popitem(last=False)
        return is_allowed


def _network_of(ip: str) -> str:
    """The IPv4 address, or the IPv6 network of 64 bits, because a host chooses the other bits itself
    (§3.3)."""
    address = ip_address(ip)
    return ip if not isinstance(address, IPv6Address) else str(int(address) >> 64)
