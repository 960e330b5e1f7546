"""How many requests one address may send: a token bucket for each IPv4 address, or IPv6 network of 64 bits.

The API verifies a signature for each token that it does not know, and asks nodes for some requests. A client
that sends without end would take that from all others.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from typing import Final

from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from hbroker.http_api.problems import Refusal

__all__ = ["MOST_ADDRESSES", "RateLimit", "bucket_of"]

MOST_ADDRESSES: Final = 10_000
"""Addresses that are known. Of more, those are forgotten that have not sent for the longest time."""


class RateLimit(ASGIMiddleware):
    """Refuses what is too much. `a_second`: requests of one address in the long run. `at_once`: in a
    burst."""

    def __init__(self, a_second: float, at_once: int) -> None:
        self._a_second = a_second
        self._at_once = at_once
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Of each address, how many requests it may send now, and when that was."""

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Passes the request on. Raises Refusal (429)."""
        client = scope.get("client")
        if not self.takes(time.monotonic(), client[0] if client else ""):
            wait = max(1, round(1 / self._a_second))
            text = f"over {self._a_second:g} requests a second come from this address"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, text, {"Retry-After": str(wait)})
        await next_app(scope, receive, send)

    def takes(self, now: float, host: str) -> bool:
        """Whether a request of this host may pass. `now`: seconds of a monotonic clock."""
        bucket = bucket_of(host)
        left, at = self._left.pop(bucket, (float(self._at_once), now))
        left = min(float(self._at_once), left + (now - at) * self._a_second)
        passes = left >= 1
        self._left[bucket] = (left - 1 if passes else left, now)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return passes


def bucket_of(host: str) -> str:
    """What of an address counts as one client: an IPv6 host has a whole network of 64 bits for itself."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(ip_network(f"{address}/64", strict=False)) if address.version == 6 else host
