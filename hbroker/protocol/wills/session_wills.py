"""The wills that a node keeps for clients, each until its session breaks off or ends (§6.6).

The owner of a will's topic keeps the will, one for each session. It publishes the will when the session has
lost its link for another reason than LEAVE, and has had no link for the will's delay. The message has the id
that the client gave it. So if two nodes publish it, after a handover whose end one of them did not learn of,
subscribers recognise one message.

If this node's lease of the will's topic has ended, it keeps the will *aside*, because the new owner does not
have it. When this node serves the topic again and the will is due, it publishes the will, unless the owner in
between says that the will has ended or been replaced, or that the client has come back.

If the node has a store, wills survive the process (§5.10). After a restart a client has an idle timeout to
come back, as after a lost link. Until the node serves a will's topic again, the will is aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from hbroker._native import topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.context import NodeContext
from hbroker.protocol.handover.recovery import DISCOVERY_TIME
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT, Delegation, Grant
from hbroker.protocol.packets import Reason, cut_of, pack
from hbroker.protocol.sessions.session_table import SessionTable
from hbroker.protocol.state_machine import StateMachine
from hbroker.protocol.storage import SavedWill
from hbroker.protocol.timers import IDLE_TIMEOUT, SECOND, TimerQueue
from hbroker.rights.rights import ALL_RIGHTS, Rights
from hbroker.subtree import is_within

if TYPE_CHECKING:
    from hbroker.protocol.handover.subtree_state import ReceivedState

__all__ = ["TRANSITIONS", "Event", "SessionWills", "State"]

NO_ROOM_PAUSE: Final = SECOND
"""Microseconds until the next try, if the node's queues have no room for a will that is due."""
DELEGATED_PAUSE: Final = IDLE_TIMEOUT
"""Microseconds until the next look at a will that is due, and whose topic another node owns."""
_MOST_QOS: Final = 2


class State(Enum):
    """The state of a will."""

    KEPT = auto()
    """Its session has a link."""
    DUE = auto()
    """Its session has no link: it is published when its delay is over."""
    PUBLISHED = auto()
    DROPPED = auto()
    """It was withdrawn, or moved with its subtree."""


class Event(Enum):
    """What happens to a will."""

    BREAK_OFF = auto()
    """The session lost its link without LEAVE."""
    COME_BACK = auto()
    """The session has a link again."""
    PUBLISH = auto()
    """The delay is over, or LEAVE asks for it."""
    DROP = auto()
    """LEAVE or the client withdraws it, or another node keeps it now."""


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.KEPT, Event.BREAK_OFF): State.DUE,
    (State.KEPT, Event.COME_BACK): State.KEPT,
    (State.KEPT, Event.PUBLISH): State.PUBLISHED,
    (State.KEPT, Event.DROP): State.DROPPED,
    (State.DUE, Event.BREAK_OFF): State.DUE,
    (State.DUE, Event.COME_BACK): State.KEPT,
    (State.DUE, Event.PUBLISH): State.PUBLISHED,
    (State.DUE, Event.DROP): State.DROPPED,
}


@dataclass(slots=True, eq=False)
class _Will:
    """`delay`: from the break to the publication, in microseconds. `due`: when to publish it, if its session
    has no link. `is_aside`: its client was told to register it with another owner. `is_presumed`: this node
    does not know that the session has broken off; the client has until `due` to come here."""

    session: int
    message: pb.Publish
    delay: int
    state_machine: StateMachine[State, Event]
    due: int = 0
    is_aside: bool = False
    is_presumed: bool = False


class SessionWills:
    """All wills of one node."""

    def __init__(self, context: NodeContext, sessions: SessionTable) -> None:
        self._context = context
        self._core = context.core
        self._jurisdiction = context.jurisdiction
        self._sessions = sessions
        self._diagnostics = context.diagnostics
        self._most = context.settings.limits.sessions
        self._storage = context.storage
        self._after_sync = context.after_sync
        self._is_saving = context.settings.has_store
        """Whether wills survive the process."""
        self._by_session: dict[int, _Will] = {}
        self._timers: TimerQueue[int] = TimerQueue()
        self._ended: dict[int, str] = {}
        """Where the owner before was lost: the topics of the wills that were published or withdrawn, by
        session. If that owner comes back, it must know."""

    # In

    def restore(self, now: int, saved: Sequence[SavedWill]) -> None:
        """After a restart: takes the wills of the earlier run, if this node has a store."""
        for record in saved:
            message = _message_from(record.publish)
            if message is None or not self._is_saving or len(self._by_session) >= self._most:
                self._storage.end_will(record.session)
                continue
            will = self._add(record.session, message, record.delay_s)
            will.is_aside = self._jurisdiction.lookup(message.topic) is None
            latest = now + IDLE_TIMEOUT + will.delay
            if record.due is None:
                self._presume_break(will, latest)
            else:
                self._break_off(will, min(max(now, record.due - self._context.unix_offset_us), latest))

    def handle_will(self, now: int, link: int, request: pb.Will, rights: Rights = ALL_RIGHTS) -> None:
        """Handles WILL: registers a will or withdraws it, and answers WILLACK. `rights`: the client's."""
        session = self._sessions.of_link(link)
        if session is None:
            self._diagnostics.drop("unexpected_packet")
            return
        ack = pb.WillAck(request=request.request)
        if not request.publish:
            self._withdraw(now, session.id)
        else:
            self._register(now, link, session.id, request, ack, rights)
        if not self._is_saving:
            self._core.send(link, pack(ack))
        elif not self._after_sync.send_reply(link, partial(self._core.send, link, pack(ack))):
            self._diagnostics.count("willacks_not_sent")

    def handle_link_up(self, session: int) -> None:
        """The session has a link, the first or another one. If another run of its client has it, the run of
        the will has broken off for good; a will without a delay, which had to wait, is published."""
        will = self._by_session.get(session)
        if will is None:
            return
        was_due = will.state_machine.state is State.DUE
        if self._is_of_former_run(self._link_of(session), will):
            self._publish(self._context.clock(), will)
            return
        will.state_machine.handle(Event.COME_BACK)
        will.is_presumed = False
        self._timers.cancel(session)
        if was_due:
            self._save(will)

    def review(self, now: int, session: int, rights: Rights) -> None:
        """The client of a session has these rights now: withdraws a will that they do not allow."""
        will = self._by_session.get(session)
        if will is not None and not rights.may_write(will.message.topic, will.message.retain):
            self._diagnostics.count("wills_not_authorized")
            self._withdraw(now, session)

    def handle_link_down(self, now: int, session: int, reason: str) -> None:
        """A link of the session ended. If another run of the client has taken the session over, the former
        run has broken off, although the session goes on (MQTT 5 §3.1.4). Its will then waits only if it has a
        delay."""
        will = self._by_session.get(session)
        if will is None or reason == "restarted":
            return
        is_back = self._link_of(session) is not None
        if not will.delay and (reason == "taken_over" or not is_back):
            self._publish(now, will)
        elif not is_back and will.state_machine.state is State.KEPT:
            self._break_off(will, now + will.delay)

    def handle_leave(self, now: int, session: int, reason: int) -> None:
        """§6.4: LEAVE withdraws the session's will, or has it published."""
        will = self._by_session.get(session)
        if will is not None and reason == Reason.REASON_DISCONNECT_WITH_WILL:
            self._publish(now, will)
        else:
            self._withdraw(now, session)

    def handle_timeout(self, now: int) -> None:
        """Publishes the wills that are due."""
        for session in self._timers.due(now):
            self._publish(now, self._by_session[session])

    def sweep(self, moving_subtrees: Sequence[str] = ()) -> None:
        """A grant ended without a handover, so the new owner of its topics has none of these wills. Clients
        with a link here are told to register their wills there. `moving_subtrees`: subtrees that are being
        handed over."""
        for will in self._by_session.values():
            is_moving = any(is_within(will.message.topic, subtree) for subtree in moving_subtrees)
            if not is_moving and not will.is_aside and not self._is_ours(will):
                will.is_aside = True
                self._send_willack(will.session, pb.WillAck(reason=pb.REASON_NOT_RESPONSIBLE))

    # Out

    def poll_timeout(self) -> int | None:
        """When the next will is due, in microseconds; None: none is."""
        return self._timers.next()

    def __len__(self) -> int:
        return len(self._by_session)

    # Handover

    def records(self, subtree: str) -> list[pb.WillRecord]:
        """The records of the wills whose topics lie in a subtree, and in no smaller subtree that another node
        granted."""
        held = self._jurisdiction.subtrees_granted_below(subtree)
        ended = [pb.WillRecord(session=s) for s, topic in self._ended.items() if is_within(topic, subtree)]
        kept = [
            self._record(will)
            for will in self._wills_below(subtree)
            if not will.is_aside and not any(is_within(will.message.topic, other) for other in held)
        ]
        return [*ended, *kept]

    def install_state(self, now: int, received: ReceivedState) -> None:
        """Takes in the wills of a handover. Their clients were told, and come to this node. If a client does
        not, it has gone in the meantime."""
        self._take_over(now, received)
        for will in [will for will in self._wills_below(received.subtree) if not self._is_ours(will)]:
            # It was handed over, and the child has not sent DONE. The child's record counts.
            if not will.is_aside:
                self._drop(will.session)
        for record in received.wills.values():
            message = _message_from(record.publish)
            if message is None or record.session in self._by_session or len(self._by_session) >= self._most:
                continue
            will = self._add(record.session, message, record.delay_s)
            if record.HasField("due_us"):
                self._break_off(will, now + record.due_us)
            elif self._link_of(record.session) is None:
                self._presume_break(will, now + IDLE_TIMEOUT + will.delay)

    def subtree_moved(self, subtree: str) -> None:
        """A subtree has another owner now. The clients of its wills are told to register there."""
        self._ended = {s: topic for s, topic in self._ended.items() if not is_within(topic, subtree)}
        for will in self._wills_below(subtree):
            owner = self._jurisdiction.lookup(will.message.topic)
            if isinstance(owner, Grant) or will.is_aside:
                continue
            ack = pb.WillAck(reason=pb.REASON_HANDOVER)
            if owner is not None:
                ack.referral.CopyFrom(cut_of(owner.as_cut()))
            self._send_willack(will.session, ack)
            self._drop(will.session)

    # One will

    def _register(
        self, now: int, link: int, session: int, request: pb.Will, ack: pb.WillAck, rights: Rights
    ) -> None:
        message = _message_from(request.publish)
        if message is None:
            ack.reason = Reason.REASON_PROTOCOL_ERROR
            return
        if message.publisher != self._core.will_publisher(link):
            # §7.9: under this id it would use up the numbers of another publisher.
            self._diagnostics.drop("foreign_publisher")
            ack.reason = Reason.REASON_NOT_AUTHORIZED
            return
        owner = self._jurisdiction.lookup(message.topic)
        if not topic_is_valid(message.topic):
            ack.reason = Reason.REASON_TOPIC_NAME_INVALID
        elif is_within(message.topic, STATUS_ROOT) or not rights.may_write(message.topic, message.retain):
            ack.reason = Reason.REASON_NOT_AUTHORIZED
        elif isinstance(owner, Delegation):
            ack.reason = Reason.REASON_NOT_RESPONSIBLE
            ack.referral.CopyFrom(cut_of(owner.as_cut()))
        elif owner is None:
            ack.reason = Reason.REASON_NOT_RESPONSIBLE
        elif not owner.serving:
            ack.reason = Reason.REASON_HANDOVER
        elif session not in self._by_session and len(self._by_session) >= self._most:
            ack.reason = Reason.REASON_QUOTA_EXCEEDED
        elif not self._is_replaceable(now, link, session):
            ack.reason = Reason.REASON_HANDOVER
        else:
            self._drop(session)
            self._add(session, message, min(request.delay_s, request.session_expiry_s))

    def _is_replaceable(self, now: int, link: int, session: int) -> bool:
        """Publishes the session's will first, if it is that of an earlier run that has broken off. False:
        this has to wait."""
        will = self._by_session.get(session)
        if will is None or not self._is_of_former_run(link, will):
            return True
        self._publish(now, will)
        # If its topic is another node's, nobody knows for how long it would wait.
        return session not in self._by_session or not self._is_ours(will)

    def _add(self, session: int, message: pb.Publish, delay_s: int) -> _Will:
        will = _Will(session, message, delay_s * SECOND, StateMachine(TRANSITIONS, State.KEPT))
        self._by_session[session] = will
        self._save(will)
        return will

    def _take_over(self, now: int, received: ReceivedState) -> None:
        """This node is about to serve the topics of wills that it kept aside. What the owner until now says
        about a session's will counts. A client that came back to that owner comes here, too, or has gone
        since."""
        for will in [will for will in self._by_session.values() if will.is_aside and self._is_ours(will)]:
            session = will.session
            is_back = session in received.sessions and not received.is_offline(session)
            is_over = session in received.wills or session in received.ended_wills
            will.is_aside = False
            if is_over:
                self._drop(session)
            elif will.state_machine.state is State.DUE:
                again = now + IDLE_TIMEOUT + will.delay if is_back else now + DISCOVERY_TIME
                self._break_off(will, max(will.due, again))

    def _break_off(self, will: _Will, due: int) -> None:
        will.state_machine.handle(Event.BREAK_OFF)
        will.due = due
        self._timers.set(will.session, due)
        self._save(will)

    def _presume_break(self, will: _Will, due: int) -> None:
        """The session has no link here. Its client counts as gone if it is not here when the will is due."""
        will.is_presumed = True
        self._break_off(will, due)

    def _is_of_former_run(self, link: int | None, will: _Will) -> bool:
        """Whether a will is due, and was that of another run than the one at this link. False also if the
        link has ended."""
        if link is None or will.delay or will.state_machine.state is not State.DUE:
            return False
        return self._core.will_publisher(link) not in (0, will.message.publisher)

    def _is_ours(self, will: _Will) -> bool:
        return isinstance(self._jurisdiction.lookup(will.message.topic), Grant)

    def _put_off(self, now: int, will: _Will) -> int | None:
        """When to try again to publish a will; None: now, because this node serves its topic and is not
        recovering. If this node has lost the topic, the will waits for at most the longest session expiry."""
        topic = will.message.topic
        owner = self._jurisdiction.lookup(topic)
        due = will.due if will.state_machine.state is State.DUE else now
        if not isinstance(owner, Grant):
            longest = due + self._sessions.longest
            again = longest if owner is None else min(longest, now + DELEGATED_PAUSE)
            return again if now < longest else None
        has_to_wait = not owner.serving or self._jurisdiction.is_in_doubt
        return now + SECOND if has_to_wait or self._jurisdiction.is_recovering(topic) else None

    def _publish(self, now: int, will: _Will) -> None:
        was_presumed, will.is_presumed = will.is_presumed, False
        again_at = self._put_off(now, will)
        if again_at is not None:
            if was_presumed:
                self._save(will)
            if will.state_machine.state is State.KEPT:
                self._break_off(will, now)
            self._timers.set(will.session, again_at)
            return
        will.message.published_at_us = max(0, now + self._context.unix_offset_us)
        reason = self._core.publish_raw(will.message.SerializeToString())
        if reason == Reason.REASON_QUOTA_EXCEEDED:
            # §7.7: the publisher is gone, so this node holds its message back.
            if will.state_machine.state is State.KEPT:
                self._break_off(will, now)
            self._timers.set(will.session, now + NO_ROOM_PAUSE)
            return
        self._note_end(will)
        self._forget(will, Event.PUBLISH)
        if reason != Reason.REASON_SUCCESS:
            self._diagnostics.drop("will_unpublished")

    def _note_end(self, will: _Will) -> None:
        if self._sessions.is_lost(will.message.topic) and len(self._ended) < self._most:
            self._ended[will.session] = will.message.topic

    def _withdraw(self, now: int, session: int) -> None:
        """The run at the session's link wants no will. That of a run before it is published."""
        will = self._by_session.get(session)
        if will is not None and self._is_of_former_run(self._link_of(session), will):
            self._publish(now, will)
        elif will is not None:
            self._note_end(will)
            self._forget(will, Event.DROP)

    def _drop(self, session: int) -> None:
        will = self._by_session.get(session)
        if will is not None:
            self._forget(will, Event.DROP)

    def _forget(self, will: _Will, event: Event) -> None:
        will.state_machine.handle(event)
        del self._by_session[will.session]
        self._timers.cancel(will.session)
        if not self._is_saving:
            return
        # A message that is not stored yet may be lost with this process; then the next run publishes it.
        end = partial(self._end_saved, will.session)
        if event is not Event.PUBLISH or not self._after_sync.run_when_durable(end):
            end()

    def _end_saved(self, session: int) -> None:
        if session not in self._by_session:
            self._storage.end_will(session)

    def _save(self, will: _Will) -> None:
        if self._is_saving:
            is_due = will.state_machine.state is State.DUE and not will.is_presumed
            due = will.due + self._context.unix_offset_us if is_due else None
            message = will.message.SerializeToString()
            self._storage.save_will(SavedWill(will.session, message, will.delay // SECOND, due))

    def _wills_below(self, subtree: str) -> list[_Will]:
        return [will for will in self._by_session.values() if is_within(will.message.topic, subtree)]

    def _record(self, will: _Will) -> pb.WillRecord:
        record = pb.WillRecord(
            session=will.session,
            publish=will.message.SerializeToString(),
            delay_s=will.delay // SECOND,
        )
        if will.state_machine.state is State.DUE:
            record.due_us = max(0, will.due - self._context.clock())
        return record

    def _send_willack(self, session: int, ack: pb.WillAck) -> None:
        link = self._link_of(session)
        if link is not None:
            self._core.send(link, pack(ack))

    def _link_of(self, session: int) -> int | None:
        known = self._sessions.get(session)
        return None if known is None else known.link


def _message_from(publish: bytes) -> pb.Publish | None:
    """The message of a will; None: it is not valid."""
    try:
        message = pb.Publish.FromString(publish)
    except DecodeError:
        return None
    is_whole = message.publisher and message.sequence and not message.HasField("fragment")
    return message if is_whole and message.qos <= _MOST_QOS else None
