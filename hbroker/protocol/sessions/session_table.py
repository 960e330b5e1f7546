"""The sessions of a node's clients: connected, offline, ended (§6.4).

A session is known by its id, whatever link and address it has now. A session that is not persistent ends with
its link. A persistent session is offline without a link: its subscriptions stay, its messages are queued in
the native core, and it ends when it has been offline for its expiry.

In two cases a session that is not persistent lingers: it stays, as if it were persistent, for an idle
timeout, so that its client can make its subscriptions again. Either its link ended because its client begins
another (§3.6), or this node was restarted (§5.8).

The core has the queues and links. This module has what a decision needs: which sessions are offline, since
when, and for how long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from hbroker._proto import packet_pb2 as pb
from hbroker.config import Limits
from hbroker.protocol import timers
from hbroker.protocol.core import NodeCore
from hbroker.protocol.packets import Address
from hbroker.protocol.sessions.subscription_store import SubscriptionStore
from hbroker.protocol.state_machine import step
from hbroker.protocol.storage import SavedSession, Storage
from hbroker.protocol.timers import SECOND, TimerQueue
from hbroker.subtree import is_within

if TYPE_CHECKING:
    from hbroker.protocol.handover.subtree_state import ReceivedState

__all__ = ["TRANSITIONS", "Event", "Session", "SessionTable", "State"]


class State(Enum):
    """The state of a session."""

    CONNECTED = auto()
    """It has a link."""
    OFFLINE = auto()
    """It is offline: it has no link, and its client may come back."""
    ENDED = auto()


class Event(Enum):
    """What happens to a session."""

    LINK_UP = auto()
    """It has a link, the first or a later one."""
    LINK_DOWN = auto()
    """Its link ended, and it is persistent or lingers."""
    EXPIRE = auto()
    """It has been offline for its expiry."""
    END = auto()
    """Its client ends it, or its link ended and it is not persistent."""


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.CONNECTED, Event.LINK_UP): State.CONNECTED,
    (State.CONNECTED, Event.LINK_DOWN): State.OFFLINE,
    (State.CONNECTED, Event.END): State.ENDED,
    (State.OFFLINE, Event.LINK_UP): State.CONNECTED,
    (State.OFFLINE, Event.EXPIRE): State.ENDED,
    (State.OFFLINE, Event.END): State.ENDED,
}


@dataclass(slots=True, eq=False)
class Session:
    """One client's session.

    - `link`: None: it is offline.
    - `expiry_s`: 0: it is not persistent.
    - `queue_messages`, `queue_bytes`: as its client asked; 0: the node's own bounds.
    - `offline_since`: when it went offline, in microseconds.
    - `is_unconfirmed`: its client has not subscribed since its last link ended, or since this node was
      restarted.
    - `asked_at`: when its client last subscribed, here or at the owner that handed it over, at the latest;
      None: it has not.
    - `is_saved`: it is saved for the next run.
    - `begun_by`: the run of its client that began it anew (`clean_start`), by the publisher id of its wills;
      0: none. `begun_at`: when it did.
    - `rights`: the key of the rights of its client, as of its latest link (§4.6).
    """

    id: int
    client: str = ""
    link: int | None = None
    expiry_s: int = 0
    queue_messages: int = 0
    queue_bytes: int = 0
    offline_since: int = 0
    state: State = State.CONNECTED
    is_unconfirmed: bool = False
    asked_at: int | None = None
    begun_by: int = 0
    begun_at: int = 0
    is_saved: bool = False
    rights: int = 0

    def handle(self, event: Event) -> None:
        """Handles an event. Raises ImpossibleTransition."""
        self.state = step(TRANSITIONS, self.state, event)

    def begin_anew(self, run: int, at: int) -> None:
        """A run of its client began it anew: everything that it has is of this run, or of a later one that
        resumed it."""
        self.begun_by, self.begun_at = run, at

    @property
    def is_persistent(self) -> bool:
        """Whether it outlives its links."""
        return self.expiry_s > 0

    @property
    def is_offline(self) -> bool:
        """Whether it is offline."""
        return self.state is State.OFFLINE


class SessionTable:
    """All sessions of one node, and the records that move with a subtree (§5.4).

    `clock` returns the time; with `unix_offset_us` added, it is in microseconds since the Unix epoch.
    Persistent sessions are saved in `storage` for the next run.
    """

    def __init__(
        self,
        core: NodeCore,
        limits: Limits,
        subscription_store: SubscriptionStore,
        clock: Callable[[], int],
        storage: Storage | None = None,
        unix_offset_us: int = 0,
    ) -> None:
        self._core = core
        self._limits = limits
        self._subscription_store = subscription_store
        self._by_id: dict[int, Session] = {}
        self._by_link: dict[int, Session] = {}
        self._expiries: TimerQueue[int] = TimerQueue()
        self._clock = clock
        self._storage = storage or Storage()
        self._unix_offset_us = unix_offset_us
        self._lost: set[str] = set()
        """Subtrees whose owner was lost, and that no other node has owned since. The former owner may come
        back."""

    # Change

    def connect(self, link: int, session: int, rights: int) -> Session:
        """A session has this link from now on, in place of an earlier one. `rights`: the key of those of its
        client."""
        known = self._by_id.get(session)
        if known is None:
            known = self._by_id[session] = Session(session)
        elif known.link is not None:
            del self._by_link[known.link]
        known.handle(Event.LINK_UP)
        known.link, known.rights = link, rights
        self._by_link[link] = known
        self._expiries.cancel(session)
        if known.is_saved:
            self._save(known)
        return known

    def disconnect(self, now: int, link: int, *, goes_on: bool = False) -> Session | None:
        """A link ended. Returns its session, which is now offline or ended; None: the link had none.
        `goes_on`: its client begins another link."""
        session = self._by_link.pop(link, None)
        if session is None:
            return None
        session.link = None
        if session.is_unconfirmed or (goes_on and not session.is_persistent):
            self._keep_unconfirmed(now, session)
        elif session.is_persistent:
            session.handle(Event.LINK_DOWN)
            session.offline_since = now
            self._save(session)
            self._await(session)
        else:
            self._forget(session, Event.END)
        return session

    def restore(self, now: int, session: int) -> bool:
        """After a restart: makes a session of the earlier run again, offline. Its client has an idle timeout
        to come back. False: there is no room for it."""
        if session in self._by_id:
            return True
        restored = Session(session)
        self._by_id[session] = restored
        if self._keep_unconfirmed(now, restored):
            return True
        self._forget(restored, Event.END)
        return False

    def restore_saved(self, now: int, saved: SavedSession) -> bool:
        """After a restart: makes a persistent session of the earlier run again, offline. If it had a link,
        its client has an idle timeout until it counts as offline, as after a link that breaks. False: it has
        expired, or there is no room for it."""
        session = Session(saved.session, saved.client, begun_by=saved.begun_by, is_saved=True)
        session.rights = saved.rights
        session.handle(Event.LINK_DOWN)
        session.expiry_s = min(saved.expiry_s, self._limits.session_expiry)
        session.queue_messages, session.queue_bytes = saved.queue_messages, saved.queue_bytes
        since = saved.offline_since
        if since is None:
            session.offline_since = now + timers.IDLE_TIMEOUT
        else:
            session.offline_since = min(now, since - self._unix_offset_us)
        session.asked_at = min(now, session.offline_since)
        session.begun_at = min(now, saved.begun_at - self._unix_offset_us) if saved.begun_by else 0
        self._by_id[session.id] = session
        is_alive = session.offline_since + session.expiry_s * SECOND > now and session.is_persistent
        if not is_alive or not self.open(session):
            self._forget(session, Event.END)
            return False
        self._await(session)
        self._save(session)
        return True

    def end_unconfirmed(self, session: int) -> None:
        """Ends a session whose client has not subscribed again. If it has a link, a session begins anew
        there."""
        known = self._by_id.get(session)
        if known is not None and known.is_unconfirmed and not self._subscription_store.has_any(session):
            self.end(known)

    def renew(self, session: Session, request: pb.Subscribe) -> bool:
        """§6.4: takes the options of a SUBSCRIBE. False: the node has no room for the session."""
        before = session.client, session.expiry_s, session.queue_messages, session.queue_bytes
        session.client = request.client
        session.asked_at = self._clock()
        session.is_unconfirmed = False
        session.expiry_s = min(request.session_expiry_s, self._limits.session_expiry)
        session.queue_messages = max(session.queue_messages, request.queue_messages)
        session.queue_bytes = max(session.queue_bytes, request.queue_bytes)
        if not self.open(session):
            return False
        after = session.client, session.expiry_s, session.queue_messages, session.queue_bytes
        if session.is_persistent and (after != before or not session.is_saved):
            self._save(session)
        elif session.is_saved and not session.is_persistent:
            self._end_saved(session)
        return True

    def begin_anew(self, session: Session, run: int) -> None:
        """A run of its client begins a session anew now."""
        session.begin_anew(run, self._clock())
        if session.is_saved:
            self._save(session)

    def open(self, session: Session) -> bool:
        """Makes the session in the native core. False: there is no room for it."""
        return self._core.open_session(
            session.id,
            persistent=session.is_persistent,
            queue_messages=session.queue_messages,
            queue_bytes=session.queue_bytes,
            rights=session.rights,
        )

    def note_loss(self, subtree: str) -> None:
        """The owner of a subtree was lost. If it comes back, it has sessions of before (§5.6)."""
        self._lost.add(subtree)

    def end(self, session: Session) -> None:
        """Ends a session because its client asks for it. If it has a link, a new session begins there."""
        self._core.end_session(session.id)
        link = session.link
        self._forget(session, Event.END)
        if link is not None:
            begun = self.connect(link, session.id, session.rights)
            begun.begin_anew(session.begun_by, session.begun_at)

    def expired(self, now: int) -> Iterator[Session]:
        """Ends and yields each session that has been offline for its expiry."""
        for id in self._expiries.due(now):
            session = self._by_id[id]
            self._core.end_session(id, "session_expired")
            self._forget(session, Event.EXPIRE)
            yield session

    # Read

    def poll_timeout(self) -> int | None:
        """When the next session expires, in microseconds; None: none does."""
        return self._expiries.next()

    def of_link(self, link: int) -> Session | None:
        """The session that has this link, or None."""
        return self._by_link.get(link)

    def get(self, session: int) -> Session | None:
        """The session with this id, or None."""
        return self._by_id.get(session)

    @property
    def longest(self) -> int:
        """The longest session expiry, in microseconds."""
        return self._limits.session_expiry * SECOND

    @property
    def connected(self) -> int:
        """The number of sessions with a link."""
        return len(self._by_link)

    @property
    def offline(self) -> int:
        """The number of sessions that are offline."""
        return len(self._by_id) - len(self._by_link)

    # Handover

    def records(self, subtree: str) -> list[pb.SessionRecord]:
        """The records of the sessions with subscriptions that touch a subtree."""
        touching = dict.fromkeys(
            subscription.session for subscription in self._subscription_store.touching(subtree)
        )
        is_lost = self.is_lost(subtree)
        return [self._record(self._by_id[id], is_lost=is_lost) for id in touching if id in self._by_id]

    def is_lost(self, subtree: str) -> bool:
        """Whether the owner of a subtree, or of a part of it, was lost, and it has not moved since."""
        return any(is_within(lost, subtree) or is_within(subtree, lost) for lost in self._lost)

    def install_state(self, now: int, received: ReceivedState) -> None:
        """Opens the sessions of a handover: those that were offline stay offline; for the others it opens
        links to their clients' addresses."""
        clients = {s.session: (s.address, s.rights) for s in received.subscriptions.values()}
        for record in received.sessions.values():
            session = self._by_id.get(record.session)
            is_offline = record.HasField("offline_us") and bool(record.session_expiry_s)
            if session is None and is_offline:
                session = self._by_id[record.session] = Session(record.session)
                session.handle(Event.LINK_DOWN)
                session.rights = record.rights
                session.offline_since = now - record.offline_us
            elif _is_wanted(session) and not is_offline and record.session in clients:
                session = self.adopt(record.session, *clients[record.session])
            if session is not None:
                self._amend(now, session, record)
                begun_at = received.begun_at.get(session.id)
                if begun_at is not None and (not session.begun_by or begun_at > session.begun_at):
                    session.begin_anew(record.begun_by, begun_at)
                if session.is_persistent and not session.is_unconfirmed:
                    self._save(session)

    def adopt(self, session: int, address: Address, rights: int) -> Session:
        """Opens a link to the client of a session that was handed over, if there is none. `rights`: the key
        of the client's rights."""
        known = self._by_id.get(session)
        if known is not None and known.link is not None and self._may_be_stale(known):
            self._core.close(known.link)
            self._forget(known, Event.END)
        elif known is not None and (known.link is not None or not _is_wanted(known)):
            return known
        return self.connect(self._core.adopt(session, address, rights), session, rights)

    def subtree_moved(self, subtree: str) -> None:
        """A subtree has another owner now."""
        self._lost = {lost for lost in self._lost if not is_within(lost, subtree)}

    def end_empty(self, session: int) -> None:
        """After a handover: ends a persistent session that has no subscription left here (§6.4)."""
        known = self._by_id.get(session)
        if known is not None and known.is_persistent and not self._subscription_store.has_any(session):
            self.end(known)

    def sweep(self, moving_subtrees: Sequence[str] = ()) -> None:
        """A grant ended without a handover. A persistent session without subscriptions here ends: at once if
        it is offline, else with its link, because messages that are on their way to it are nowhere else
        (§6.4)."""
        persistent = (session for session in self._by_id.values() if session.is_persistent)
        for session in [s for s in persistent if not self._subscription_store.has_any(s.id)]:
            if session.link is None:
                self.end(session)
            else:
                session.expiry_s = 0
                self._end_saved(session)
                self.open(session)

    def _may_be_stale(self, session: Session) -> bool:
        """The client has never answered on the session's link (§5.4). A node that was suspended may read late
        the datagram that opened a link, which the client has given up since. The one datagram that opened a
        link for an earlier handover may be lost. Nothing may be handed over on such a link, because the
        session would end with it."""
        is_bare = not session.is_persistent and not self._subscription_store.has_any(session.id)
        return is_bare and session.link is not None and self._core.is_half_open(session.link)

    def _amend(self, now: int, session: Session, record: pb.SessionRecord) -> None:
        most = self._limits.session_expiry
        session.asked_at = max(session.asked_at or 0, now - record.offline_us)
        session.expiry_s = max(session.expiry_s, min(record.session_expiry_s, most))
        session.queue_messages = max(session.queue_messages, record.queue_messages)
        session.queue_bytes = max(session.queue_bytes, record.queue_bytes)
        if session.is_offline:
            self._await(session)
        self.open(session)

    def _record(self, session: Session, *, is_lost: bool) -> pb.SessionRecord:
        record = pb.SessionRecord(
            session=session.id,
            session_expiry_s=session.expiry_s,
            queue_messages=session.queue_messages,
            queue_bytes=session.queue_bytes,
            begun_by=session.begun_by,
            lost=is_lost,
            rights=session.rights,
        )
        if session.is_offline:
            record.offline_us = max(0, self._clock() - session.offline_since)
        if session.begun_by:
            record.begun_us = max(0, self._clock() - session.begun_at)
        return record

    def _await(self, session: Session) -> None:
        self._expiries.set(session.id, session.offline_since + session.expiry_s * SECOND)

    def _keep_unconfirmed(self, now: int, session: Session) -> bool:
        session.is_unconfirmed, session.expiry_s = True, timers.IDLE_TIMEOUT // SECOND
        session.handle(Event.LINK_DOWN)
        session.offline_since = now
        self._await(session)
        return self.open(session)

    def _save(self, session: Session) -> None:
        session.is_saved = True
        self._storage.save_session(
            SavedSession(
                session.id,
                session.client,
                session.expiry_s,
                session.queue_messages,
                session.queue_bytes,
                session.offline_since + self._unix_offset_us if session.is_offline else None,
                session.begun_by,
                session.begun_at + self._unix_offset_us if session.begun_by else 0,
                session.rights,
            )
        )

    def _end_saved(self, session: Session) -> None:
        if session.is_saved:
            session.is_saved = False
            self._storage.end_session(session.id)

    def _forget(self, session: Session, event: Event) -> None:
        self._end_saved(session)
        session.handle(event)
        self._expiries.cancel(session.id)
        if session.link is not None:
            self._by_link.pop(session.link, None)
        del self._by_id[session.id]


def _is_wanted(session: Session | None) -> bool:
    """Whether an owner that has a link to this session's client must open one here, too."""
    return session is None or session.is_unconfirmed
