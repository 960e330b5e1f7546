"""A client's will (§6.6): finds the owner of its topic, registers the will, and registers it again after a
loss.

The owner publishes the will when the client's session with it breaks off, so the client keeps a link there.
If the will moves with its subtree, it keeps its message id. So if two nodes have it for a moment and both
publish it, subscribers recognise one message. If the will is registered again after its owner was lost, it
gets a new message id, because the former one may have been published.

If another client behind the same address has heard which node owns the topic (`caches`), the client
registers the will there first, and resolves the topic if that node is not the owner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Unpack

from hbroker._proto import packet_pb2 as pb
from hbroker.properties import MqttProperties
from hbroker.protocol.client_context import ClientContext
from hbroker.protocol.packets import PACKET_ROOM, RETRIED_REASONS, Address, Reason, pack
from hbroker.protocol.resolution.caches import HINT_TIMEOUT
from hbroker.protocol.resolution.resolver import Resolver
from hbroker.protocol.results import Resolution, ResolveFailed, WillRefused, WillSet
from hbroker.protocol.state_machine import StateMachine
from hbroker.protocol.timers import SECOND, earliest, retry_after

__all__ = ["TRANSITIONS", "WILL_ROOM", "ClientWill", "Event", "State", "Will", "will_message"]

WILL_ROOM: Final = PACKET_ROOM - 48
"""The largest message of a will, in bytes: WILL leaves in one datagram (§3.4)."""

_ACK_TIMEOUT: Final = 5 * SECOND
_LOOKUP_TIMEOUT: Final = 10 * SECOND


@dataclass(frozen=True, slots=True)
class Will:
    """The message that an owner publishes when the client's session breaks off. `message`: without id and
    time. `delay_s`: seconds that the owner waits for the client to come back."""

    message: pb.Publish
    delay_s: int = 0


def will_message(
    topic: str,
    payload: bytes,
    qos: int,
    *,
    retain: bool,
    **properties: Unpack[MqttProperties],
) -> pb.Publish:
    """The message of a will, without its id."""
    expiry_s, payload_format = properties.get("expiry_s"), properties.get("payload_format")
    message = pb.Publish(
        topic=topic,
        payload=payload,
        qos=pb.Qos.Name(qos),
        retain=retain,
        content_type=properties.get("content_type", ""),
        response_topic=properties.get("response_topic", ""),
        correlation_data=properties.get("correlation_data", b""),
        user_properties=[
            pb.UserProperty(name=name, value=value) for name, value in properties.get("user_properties", ())
        ],
    )
    if expiry_s is not None:
        message.expiry_s = expiry_s
    if payload_format is not None:
        message.MergeFrom(pb.Publish(payload_format=pb.PayloadFormat.Name(payload_format)))
    return message


class State(Enum):
    """What a will waits for."""

    RESOLVING = auto()
    """For the owner of its topic."""
    AWAIT_ACK = auto()
    """For the owner's WILLACK."""
    KEPT = auto()
    """For nothing: the owner has it."""
    BACKING_OFF = auto()
    """For the end of a pause, to find the owner again."""
    REFUSED = auto()
    """For nothing: no node accepts it."""


class Event(Enum):
    """What happens to a will."""

    RESOLVE = auto()
    """The owner was found."""
    KEEP = auto()
    """The owner has accepted it."""
    MOVE = auto()
    """Another node owns its topic, or will own it."""
    DEFER = auto()
    """No owner was found, or the owner is silent or asks the client to come back later."""
    LINK_DOWN = auto()
    """The link to the owner ended."""
    RESUME = auto()
    """The pause is over."""
    REFUSE = auto()
    """A node refused it for good."""


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.RESOLVING, Event.RESOLVE): State.AWAIT_ACK,
    (State.RESOLVING, Event.DEFER): State.BACKING_OFF,
    (State.RESOLVING, Event.REFUSE): State.REFUSED,
    (State.AWAIT_ACK, Event.KEEP): State.KEPT,
    (State.AWAIT_ACK, Event.MOVE): State.BACKING_OFF,
    (State.AWAIT_ACK, Event.DEFER): State.BACKING_OFF,
    (State.AWAIT_ACK, Event.LINK_DOWN): State.BACKING_OFF,
    (State.AWAIT_ACK, Event.REFUSE): State.REFUSED,
    (State.KEPT, Event.MOVE): State.BACKING_OFF,
    (State.KEPT, Event.LINK_DOWN): State.BACKING_OFF,
    (State.BACKING_OFF, Event.RESUME): State.RESOLVING,
}


class ClientWill:
    """One client's will.

    `resolver`: returns the resolver, which is made when it is first needed. `lookup_id`: the will's ticket at
    the resolver.
    """

    __slots__ = (
        "_attempts",
        "_context",
        "_deadline",
        "_due_at",
        "_link",
        "_owner",
        "_reason",
        "_request",
        "_resolver",
        "_sequence",
        "_state_machine",
        "_tried",
        "_will",
        "lookup_id",
    )

    def __init__(self, context: ClientContext, resolver: Callable[[], Resolver], lookup_id: int) -> None:
        self._context = context
        self._resolver = resolver
        self.lookup_id: Final = lookup_id
        self._will: Will | None = None
        self._state_machine = StateMachine(TRANSITIONS, State.RESOLVING)
        self._sequence = 0
        self._request = 0
        self._link: int | None = None
        self._owner: tuple[str, Address] | None = None
        self._attempts = 0
        self._due_at: int | None = None
        self._deadline: int | None = None
        self._reason = 0
        self._tried: tuple[str, ...] = ()

    # In: the application

    def start(self, now: int, will: Will, timeout: int) -> None:
        """Registers a will in place of the one before. `WillSet` or `WillRefused` follows within `timeout`
        (microseconds). From then on the will is registered again whenever that is necessary."""
        self._will = will
        self._state_machine = StateMachine(TRANSITIONS, State.RESOLVING)
        self._link = self._due_at = None
        self._sequence += 1
        self._attempts = self._reason = 0
        self._deadline = now + timeout
        hint = self._context.caches.owner_cache.sole_owner(now, will.message.topic)
        if hint is None:
            self._resolve(now)
        else:
            self._send_will(now, will, (hint.node, hint.address), HINT_TIMEOUT)

    def stop(self) -> None:
        """Registers the will no more. LEAVE ends it at its owner."""
        self._will = None
        self._due_at = self._deadline = None

    # In: the network

    def handle_resolved(self, now: int, resolution: Resolution) -> None:
        """The owner of its topic was found."""
        if self._will is not None and self._state_machine.accepts(Event.RESOLVE):
            self._send_will(now, self._will, (resolution.owner, resolution.address), _ACK_TIMEOUT)

    def handle_unresolved(self, now: int, failed: ResolveFailed) -> None:
        """No owner was found."""
        self._tried = failed.tried
        self._refused(now, failed.reason or Reason.REASON_OWNER_UNREACHABLE)

    def handle_ack(self, now: int, link: int, ack: pb.WillAck) -> None:
        """Handles WILLACK: the owner's answer or, with request 0, the notice that the will has moved."""
        if link != self._link or ack.request not in (0, self._request):
            return
        if ack.reason in (Reason.REASON_HANDOVER, Reason.REASON_NOT_RESPONSIBLE):
            if self._state_machine.accepts(Event.MOVE):
                self._forget_owner()
                self._pause(now, Event.MOVE)
        elif not ack.request or not self._state_machine.accepts(Event.KEEP):
            return
        elif ack.reason == Reason.REASON_SUCCESS:
            self._handle_registered()
        else:
            self._refused(now, ack.reason)

    def handle_link_down(self, now: int, link: int, *, is_refused: bool = False) -> None:
        """§6.6: the owner may publish the will now, so the next registration has a new message id.
        `is_refused`: the owner refused the session, because it has too many."""
        if link == self._link and self._state_machine.accepts(Event.LINK_DOWN):
            if is_refused:
                self._reason = Reason.REASON_QUOTA_EXCEEDED
            self._sequence += 1
            self._forget_owner()
            self._pause(now, Event.LINK_DOWN)

    def handle_timeout(self, now: int) -> None:
        """Finds the owner again if that is due, and reports a registration that took too long."""
        if self._deadline is not None and self._deadline <= now:
            reason = self._reason or Reason.REASON_OWNER_UNREACHABLE
            self._end(reason, answered=reason == Reason.REASON_QUOTA_EXCEEDED)
        if self._due_at is None or now < self._due_at:
            return
        self._due_at = None
        if self._state_machine.accepts(Event.RESUME):
            self._state_machine.handle(Event.RESUME)
            self._resolve(now)
        elif self._state_machine.accepts(Event.DEFER):
            self._forget_owner()
            self._pause(now, Event.DEFER)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(self._due_at, self._deadline)

    @property
    def state(self) -> State | None:
        """What the will waits for; None: there is no will."""
        return None if self._will is None else self._state_machine.state

    def _resolve(self, now: int) -> None:
        if self._will is not None:
            topic = self._will.message.topic
            self._resolver().resolve(now, self.lookup_id, topic, trace=False, timeout=_LOOKUP_TIMEOUT)

    def _send_will(self, now: int, will: Will, owner: tuple[str, Address], timeout: int) -> None:
        self._state_machine.handle(Event.RESOLVE)
        self._owner = owner
        address = owner[1]
        self._link = self._context.core.connect(address, self._context.caches.tokens.get(now, address) or b"")
        self._request = self._context.random.getrandbits(64) or 1
        message = pb.Publish()
        message.CopyFrom(will.message)
        message.publisher, message.sequence = self._context.core.will_publisher(self._link), self._sequence
        body = pb.Will(
            request=self._request,
            publish=message.SerializeToString(),
            delay_s=will.delay_s,
            session_expiry_s=self._context.session_options.expiry_s,
        )
        self._due_at = now + timeout
        if not self._context.core.send(self._link, pack(body)):
            self._pause(now, Event.DEFER)

    def _handle_registered(self) -> None:
        self._state_machine.handle(Event.KEEP)
        self._attempts = 0
        self._due_at = None
        if self._deadline is not None:
            self._deadline = None
            self._context.on_result(WillSet("" if self._owner is None else self._owner[0]))

    def _forget_owner(self) -> None:
        """Removes the owner from the cache, because it is silent or does not own the topic."""
        if self._owner is not None:
            self._context.caches.owner_cache.forget(self._owner[1])

    def _pause(self, now: int, event: Event) -> None:
        self._state_machine.handle(event)
        self._link = None
        self._due_at = now + retry_after(self._attempts, self._context.random)
        self._attempts += 1

    def _refused(self, now: int, reason: int) -> None:
        self._reason = reason
        if reason in RETRIED_REASONS:
            if self._state_machine.accepts(Event.DEFER):
                self._pause(now, Event.DEFER)
        elif self._state_machine.accepts(Event.REFUSE):
            self._state_machine.handle(Event.REFUSE)
            self._due_at = None
            self._end(reason, answered=True)

    def _end(self, reason: int, *, answered: bool) -> None:
        """Reports the outcome. Unless the will was refused for good, the client goes on trying."""
        if self._deadline is None or self._will is None:
            return
        self._deadline = None
        topic = self._will.message.topic
        self._context.on_result(WillRefused(topic, reason, answered, self._tried))
