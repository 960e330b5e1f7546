"""How many requests of one host a node forwards to its children (§4.3).

A SUBSCRIBE for `#` goes to every child. Without a limit, a host that repeats it would make a node with a
thousand children send a thousand packets for each packet of its own. So each host has an allowance that
refills with time (a token bucket). A request beyond it is answered, and not forwarded.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

from hbroker.protocol import timers
from hbroker.protocol.packets import Address

__all__ = ["ForwardingLimits"]

MOST: Final = 20_000
"""Packets that a node forwards for one host at once."""
A_SECOND: Final = 2_000
"""Packets per second by which an allowance refills."""
MOST_HOSTS: Final = 10_000


class ForwardingLimits:
    """What is left for each host. A host that is not listed has its whole allowance."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By host, the one that asked last at the end: how many packets were left, and when
        (microseconds)."""

    def take(self, now: int, host: Address, packets: int) -> bool:
        """Takes this number of packets from a host's allowance. False: fewer are left, and they stay.

        If a host has its whole allowance, any number is allowed.
        """
        key = _network_of(host[0])
        left, at = self._left.pop(key, (float(MOST), now))
        left = min(MOST, left + A_SECOND * (now - at) / timers.SECOND)
        is_allowed = packets <= left or left == MOST
        self._left[key] = (max(0.0, left - packets) if is_allowed else left), now
        if len(self._left) > MOST_HOSTS:
            self._left.popitem(last=False)
        return is_allowed


def _network_of(ip: str) -> str:
    """The IPv4 address, or the IPv6 network of 64 bits, because a host chooses the other bits itself
    (§3.3)."""
    address = ip_address(ip)
    return ip if not isinstance(address, IPv6Address) else str(int(address) >> 64)
