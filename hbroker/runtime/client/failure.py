"""Turns outcomes into exceptions, which say who is at fault, what was requested, and who was asked."""

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


def of_request(result: ResolveFailed | SubscriptionFailed, timeout: float) -> HBrokerError:
    """The exception for a look-up or subscription that failed."""
    subject = f"topic {result.topic!r}" if isinstance(result, ResolveFailed) else f"filter {result.filter!r}"
    name = reason_name(result.reason)
    tried = ", ".join(result.tried) or "nobody"
    if result.answered:
        return Refused(f"{subject} was refused: {name} (asked: {tried})", result.reason)
    return Unreachable(f"{subject}: {name}, no answer within {timeout:g} s from: {tried}", result.reason)


def of_root(result: ResolveFailed, timeout: float) -> HBrokerError:
    """The exception for a root that did not answer, or refused."""
    tried = ", ".join(result.tried)
    if result.answered:
        text = f"the root at {tried} refused: {reason_name(result.reason)}"
        if result.reason == Reason.REASON_NOT_AUTHORIZED:
            text += ". Its network requires tokens: does HBROKER_TOKEN name a file with a valid one?"
        return Refused(text, result.reason)
    check = (
        "Is a node running there, and does UDP get through in both directions? "
        "If the network's security is on: does HBROKER_AUTHORITY name the certificate of its authority?"
    )
    return Unreachable(f"no root answers at {tried} within {timeout:g} s. {check}", result.reason)


def of_publication(result: Published) -> HBrokerError | None:
    """The exception for a message that was not distributed; None: it was."""
    text = f"message for {result.topic!r} failed: {reason_name(result.reason)}"
    match result.reason:
        case Reason.REASON_SUCCESS | Reason.REASON_NO_MATCHING_SUBSCRIBERS:
            return None
        case Reason.REASON_TOPIC_NAME_INVALID:
            return InvalidTopic(text)
        case Reason.REASON_PACKET_TOO_LARGE:
            return PayloadTooLarge(text)
        case Reason.REASON_OWNER_UNREACHABLE:
            return Unreachable(text, result.reason)
    return Refused(text, result.reason)


def of_will(result: WillRefused, timeout: float) -> HBrokerError:
    """The exception for a will that no node accepted."""
    failed = ResolveFailed(0, result.topic, result.reason, result.answered, result.tried)
    return of_request(failed, timeout)


def of_takeover(client_id: str) -> SessionTakenOver:
    """The exception for a session that another run took over."""
    reason = Reason.REASON_SESSION_TAKEN_OVER
    return SessionTakenOver(f"another run of client {client_id!r} took its session over", reason)


def publication_timeout(topic: str, timeout: float) -> Unreachable:
    """The exception for a message that was not acknowledged in time. It may still be distributed."""
    reason = Reason.REASON_OWNER_UNREACHABLE
    return Unreachable(f"message for {topic!r} was not acknowledged within {timeout:g} s", reason)
