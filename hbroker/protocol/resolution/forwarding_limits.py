"""How many requests one host may have passed down to a node's children (§4.3).

One SUBSCRIBE for `#` goes to every child. A host that asks for it all the time would have a node with a
thousand children send a thousand packets for each of its own. So each host has an allowance that fills up
with time (a token bucket), and what goes beyond it is answered, but not passed down.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

from hbroker.protocol import timers
from hbroker.protocol.packets import Address

__all__ = ["ForwardingLimits"]

MOST: Final = 20_000
"""Packets that a host may have passed down at once."""
A_SECOND: Final = 2_000
MOST_HOSTS: Final = 10_000


class ForwardingLimits:
    """What is left for each host. A host that has asked for nothing lately has all."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By host, the one that asked last at the end: how many packets were left, and when (µs)."""

    def take(self, now: int, host: Address, packets: int) -> bool:
        """Takes so many packets of a host's allowance. False: it has not so many left, and keeps them.

        More packets at once than any host may have are allowed to a host that has all.
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
    """An IPv4 host; of IPv6 the network of 64 bits, since a host chooses the rest as it likes (§3.3)."""
    address = ip_address(ip)
    return ip if not isinstance(address, IPv6Address) else str(int(address) >> 64)
