"""Which refusals pass, by their reason (§8)."""

from __future__ import annotations

from typing import Final

from hbroker.protocol.packets import Reason

__all__ = ["PASSING_REASONS", "RETRIED_REASONS"]

PASSING_REASONS: Final = frozenset(
    {
        Reason.REASON_HANDOVER,
        Reason.REASON_QUOTA_EXCEEDED,
        Reason.REASON_OWNER_UNREACHABLE,
        Reason.REASON_NOT_SERVING,
    }
)
"""The client may ask the same node again later."""
RETRIED_REASONS: Final = PASSING_REASONS | {Reason.REASON_NOT_RESPONSIBLE}
"""The client may ask again: the same node later, or another node at once."""
