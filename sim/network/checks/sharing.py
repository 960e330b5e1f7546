"""What a shared group receives (§6.5), as exact rules. Its members have no other subscriptions here.

- *One* member of a group receives each message. No member receives a message that another has, unless the
  members or the topic's owner changed since the message was published (a member joined, ended, lost a link,
  was stalled; an owner learned that one had left). What had not been acknowledged then goes to another
  member. That one may receive what the first already had, and after newer messages. At QoS 0 nothing goes to
  another member.
- When a publisher learns that its message of QoS 1 or 2 is distributed, a member has it, or had it when it
  died, if a subscription of QoS 1 or 2 in the group was whole since the message was published. If a member
  was offline or stalled in the meantime, the message waits for that one. It comes to some member by the end,
  as long as such a subscription is whole until then, and unless a member's session is offline at the end: it
  may wait there. A fragmented message is not promised any more once a member has ended, nor is one that
  expired while it waited.
- When all faults are over, a message comes to a group if a member with such a subscription runs. If none
  runs, the message waits for one that is offline, which a run does not show.
- Order holds for each member, except for what another member received first (`deliveries`): if a member
  changed since the message was published, what it was sent and had not acknowledged comes after newer
  messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field

from ..invariants import Invariant, Ownership, Violation
from .applications import Application, Interest, MessageId, Sent
from .losses import Losses

__all__ = ["Sharing"]


@dataclass(slots=True)
class _Group:
    """A shared group. `changed_at`: when something happened to a member. `ended_at`: when a member's process
    or session ended."""

    title: str
    members: set[Interest] = field(default_factory=set)
    sessions: set[int] = field(default_factory=set)
    """Of all members that there ever were: an owner may still count a former member."""
    changed_at: int = 0
    ended_at: int = 0
    received_by: dict[MessageId, set[int]] = field(default_factory=dict)
    """By message, the sessions that received it."""
    pending: list[Sent] = field(default_factory=list)
    """Messages that were acknowledged before a member received them."""

    def promises(self, sent: Sent, among: Set[Interest] | None = None) -> bool:
        """Whether a message must come to a member, because of the subscriptions `among`; None: of all."""
        members = self.members if among is None else self.members & among
        is_whole = any(i.qos and i.since.get(sent.topic, sent.at + 1) <= sent.at for i in members)
        return is_whole and not (sent.may_be_in_parts and self.ended_at >= sent.at)

    def is_offline(self, topic: str, present: Set[Interest]) -> bool:
        """Whether a member is offline whose session may hold messages of a topic."""
        return any(topic in interest.since for interest in self.members - present)


class Sharing:
    """All shared groups of one run."""

    def __init__(self, ownership: Ownership, now: Callable[[], int], losses: Losses) -> None:
        self._losses = losses
        self._ownership = ownership
        self._now = now
        self._groups: dict[tuple[str, str], _Group] = {}
        self._of_session: dict[int, _Group] = {}

    # Change

    def join(self, session: int, interest: Interest) -> None:
        """A client asks to be a member."""
        group = self._groups.setdefault((interest.group, interest.filter), _Group(interest.title))
        group.members.add(interest)
        group.sessions.add(session)
        group.changed_at = self._now()
        self._of_session[session] = group

    def leave(self, session: int, interest: Interest) -> None:
        """A client does not want to be a member any more."""
        if group := self._of_session.get(session):
            group.members.discard(interest)
            self.end(session)

    def handle_unsubscribe(self, name: str, filter: str) -> None:
        """An owner learns that a member has left. Until then it counted it as one."""
        if group := self._groups.get((name, filter)):
            group.changed_at = self._now()

    def end(self, session: int) -> None:
        """A member's process ended, or its session may have ended."""
        self.change(session)
        if group := self._of_session.get(session):
            group.ended_at = self._now()

    def change(self, session: int) -> None:
        """Something happened to a member's link, or the member is stalled."""
        if group := self._of_session.get(session):
            group.changed_at = self._now()

    def has_changed(self, session: int, sent: Sent) -> bool:
        """Whether a member may receive a message that another one received first."""
        group = self._of_session.get(session)
        is_changed = group is not None and group.changed_at >= sent.at
        return is_changed or self._ownership.changed.get(sent.topic, 0) >= sent.at

    # Checks

    def receive(self, application: Application, sent: Sent) -> Iterator[Violation]:
        """A client received a message."""
        session = application.host.session
        group = self._of_session.get(session)
        if group is None:
            return
        receivers = group.received_by.setdefault(sent.id, set())
        if receivers - {session} and (sent.qos == 0 or not self.has_changed(session, sent)):
            text = f"{application.name} gets {sent}, which another member of {group.title} has"
            yield Violation(self._now(), Invariant.SHARED, text)
        receivers.add(session)

    def distribute(self, sent: Sent, stalled: dict[int, int]) -> Iterator[Violation]:
        """A message is acknowledged. `stalled`: by session, when it was last seen stalled or offline."""
        for group in self._groups.values():
            if sent.id in group.received_by or not group.promises(sent):
                continue
            if any(stalled.get(session, 0) >= sent.at for session in group.sessions):
                group.pending.append(sent)
            else:
                text = f"{sent} is acknowledged, and no member of {group.title} has it"
                yield Violation(self._now(), Invariant.SHARED, text)

    def groups_lacking(self, sent: Sent, present: Set[Interest]) -> Iterator[str]:
        """The groups that lack a message. `present`: the subscriptions of clients that run."""
        for group in self._groups.values():
            if sent.id not in group.received_by and group.promises(sent, present):
                yield group.title

    def check_at_end(self, present: Set[Interest]) -> Iterator[Violation]:
        """Checks whether what waited for a member came to one. `present`: as in `groups_lacking`."""
        for group in self._groups.values():
            due = [s for s in group.pending if group.promises(s) and not group.is_offline(s.topic, present)]
            lacking = [sent for sent in due if sent.id not in group.received_by]
            if (lost := self._losses.unexplained(group.sessions, lacking)) is not None:
                text = f"{lost} was acknowledged, and never came to a member of {group.title}"
                yield Violation(self._now(), Invariant.SHARED, text)
