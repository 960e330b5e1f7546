"""Every period of the control protocol (docs/protocol.md §9), in microseconds.

Each machine keeps its own deadlines; these say how far ahead they lie.
"""

from __future__ import annotations

from random import Random
from typing import Final

SECOND: Final = 1_000_000

KEEP_ALIVE: Final = 2 * SECOND
IDLE_TIMEOUT: Final = 15 * SECOND

LEASE: Final = 20 * SECOND
LEASE_RENEWALS: Final = 5
"""How often a lease is renewed in its length. A parent that was killed just before a renewal, and is back
after 10 s, must find its children serving: 1 s of drift and 4 s since the last renewal leave it 5 s more."""
LEASE_DRIFT: Final = 1 * SECOND
"""The owner stops this long before its lease ends; the parent takes back this long after."""

RETURN: Final = 10 * SECOND
"""How long subscribers may take to come to a parent that took back what was their owner's. It took back 21 s
after it last heard from that owner, which may have fallen silent a renewal later; its subscribers give it up
when their idle timeout and a keep-alive have passed. The rest is for a discovery over a bad path."""

RETRY_FIRST: Final = SECOND // 4
RETRY_FACTOR: Final = 2
RETRY_MOST: Final = 4 * SECOND
RETRY_JITTER: Final = 0.25
SEARCH_MOST: Final = 1 * SECOND
"""The most for who looks for a node that others wait for: messages their owner (ten seconds), a subtree its
parent. Where a fifth of all datagrams is lost two of five tries are in vain. Seven such in a row, which one
search in a thousand meets, take 6 s; with `RETRY_MOST` they would take 16 s."""

ZONE_TTL: Final = 300 * SECOND
NEGATIVE_TTL: Final = 1 * SECOND


def retry_after(attempt: int, random: Random, most: int = RETRY_MOST) -> int:
    """How long to wait for an answer to try `attempt` (from 0) before the next: jittered, exponential, and
    but for the jitter at most `most`."""
    doublings: int = RETRY_FACTOR ** min(attempt, 16)
    period = min(RETRY_FIRST * doublings, most)
    return round(period * random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER))
