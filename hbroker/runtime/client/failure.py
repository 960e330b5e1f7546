"""From outcomes to exceptions: who is at fault, what was asked for, and what was tried."""

from __future__ import annotations

from hbroker.errors import (
    HBrokerError,
    InvalidTopic,
    PayloadTooLarge,
    Refused,
    SessionTakenOver,
    Unreachable,
)
from hbroker.protocol.packets import Reason, reason_name
from hbroker.protocol.results import Published, ResolveFailed, SubscriptionFailed, WillRefused

__all__ = ["of_publication", "of_request", "of_root", "of_takeover", "of_will", "publication_timeout"]


def of_request(outcome: ResolveFailed | SubscriptionFailed, timeout: float) -> HBrokerError:
    """Why a look-up or a subscription failed."""
    what = f"topic {outcome.topic!r}" if isinstance(outcome, ResolveFailed) else f"filter {outcome.filter!r}"
    name = reason_name(outcome.reason)
    asked = ", ".join(outcome.tried) or "nobody"
    if outcome.answered:
        return Refused(f"{what} was refused: {name} (asked: {asked})", outcome.reason)
    return Unreachable(f"{what}: {name}, no answer within {timeout:g} s from: {asked}", outcome.reason)


def of_root(outcome: ResolveFailed, timeout: float) -> HBrokerError:
    """Why the network could not be reached."""
    asked = ", ".join(outcome.tried)
    if outcome.answered:
        return Refused(f"the root at {asked} refused: {reason_name(outcome.reason)}", outcome.reason)
    check = "Is a node running there, and does UDP get through in both directions?"
    return Unreachable(f"no root answers at {asked} within {timeout:g} s. {check}", outcome.reason)


def of_publication(outcome: Published) -> HBrokerError | None:
    """Why a message was not distributed; None: it was."""
    text = f"message for {outcome.topic!r} failed: {reason_name(outcome.reason)}"
    match outcome.reason:
        case Reason.REASON_SUCCESS | Reason.REASON_NO_MATCHING_SUBSCRIBERS:
            return None
        case Reason.REASON_TOPIC_NAME_INVALID:
            return InvalidTopic(text)
        case Reason.REASON_PACKET_TOO_LARGE:
            return PayloadTooLarge(text)
        case Reason.REASON_OWNER_UNREACHABLE:
            return Unreachable(text, outcome.reason)
    return Refused(text, outcome.reason)


def of_will(outcome: WillRefused, timeout: float) -> HBrokerError:
    """Why nobody keeps the client's will."""
    failed = ResolveFailed(0, outcome.topic, outcome.reason, outcome.answered, outcome.tried)
    return of_request(failed, timeout)


def of_takeover(client_id: str) -> SessionTakenOver:
    """Why the client ended."""
    reason = Reason.REASON_SESSION_TAKEN_OVER
    return SessionTakenOver(f"another run of client {client_id!r} took its session over", reason)


def publication_timeout(topic: str, timeout: float) -> Unreachable:
    """A message that was not acknowledged in time. It may still be distributed."""
    reason = Reason.REASON_OWNER_UNREACHABLE
    return Unreachable(f"message for {topic!r} was not acknowledged within {timeout:g} s", reason)
