"""The periods of the control protocol (docs/protocol.md §9), in microseconds."""

from __future__ import annotations

from random import Random
from typing import Final

SECOND: Final = 1_000_000

KEEP_ALIVE: Final = 2 * SECOND
IDLE_TIMEOUT: Final = 15 * SECOND

LEASE: Final = 20 * SECOND
LEASE_RENEWALS: Final = 5
"""How often a lease is renewed during its length. If a parent was killed just before a renewal and is back
after 10 s, its children must still serve. With 1 s of drift and 4 s since the last renewal, 5 s are left."""
LEASE_DRIFT: Final = 1 * SECOND
"""The owner stops serving this long before its lease ends. The parent takes the subtree back this long
after."""

RETURN: Final = 10 * SECOND
"""The time that subscribers have to come to a parent that took a subtree back from their owner. The parent
took it back 21 s after it last heard from that owner, which may have fallen silent one renewal later. The
subscribers give the owner up after their idle timeout and a keep-alive. The rest is for a discovery over a
bad path."""

RETRY_FIRST: Final = SECOND // 4
RETRY_FACTOR: Final = 2
RETRY_MOST: Final = 4 * SECOND
RETRY_JITTER: Final = 0.25
SEARCH_MOST: Final = 1 * SECOND
"""The longest pause of a search for which others wait: messages for their owner (10 s), a subtree for its
parent. If a fifth of all datagrams is lost, two of five tries fail. One search in a thousand has seven such
failures in a row. They take 6 s; with `RETRY_MOST` they would take 16 s."""

ZONE_TTL: Final = 300 * SECOND
NEGATIVE_TTL: Final = 1 * SECOND


def retry_after(attempt: int, random: Random, most: int = RETRY_MOST) -> int:
    """The pause after try `attempt` (from 0) before the next: exponential with jitter, and at most `most`
    before the jitter."""
    doublings: int = RETRY_FACTOR ** min(attempt, 16)
    period = min(RETRY_FIRST * doublings, most)
    return round(period * random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER))
