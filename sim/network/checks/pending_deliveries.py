"""Messages that were acknowledged before their subscriber received them: they must come by the end.

- A message that was acknowledged while a session was offline or stalled (§7.3) comes to its client, in this
  run or a later one, if the session has not ended and its owner lives until then. That also holds if the
  owner's lease ends in the meantime and the owner serves the topic again (`ended_leases`).
- *Resumed*: every owner reported to a client that it still had the subscription (`Subscribed.resumed`, §6.4).
  Then the client receives what was acknowledged since the subscription was made, for the first time, or again
  after an owner reported that it did not have it any more.

In both cases a message need not come if it was dropped for the session because its queue was full, or because
the message expired: `losses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..invariants import Invariant, Violation
from .applications import Application, Interest, Sent
from .ended_leases import EndedLeases
from .losses import Losses

__all__ = ["PendingDeliveries"]


class PendingDeliveries:
    """Messages that must still come."""

    def __init__(self, losses: Losses, ended_leases: EndedLeases) -> None:
        self._losses = losses
        self._ended_leases = ended_leases
        self._pending: list[tuple[int, Interest, Sent]] = []
        self._missed: dict[Interest, list[Sent]] = {}
        """Messages that were acknowledged while subscriptions of persistent sessions were not whole."""
        self._resumed: list[tuple[int, Interest, Sent]] = []
        self._excused: dict[str, int] = {}
        """By topic, until when what was sent may be damaged without the knowledge of its owner's next run."""

    # Change

    def wait(self, session: int, interest: Interest, sent: Sent) -> None:
        """A message was acknowledged, and waits for a session."""
        self._pending.append((session, interest, sent))

    def miss(self, interest: Interest, sent: Sent) -> None:
        """A message was acknowledged, and perhaps no owner has it for this subscription."""
        self._missed.setdefault(interest, []).append(sent)

    def resume(self, session: int, interest: Interest, *, is_resumed: bool) -> None:
        """A client learned whether its owners had its subscription all the time."""
        missed = self._missed.pop(interest, [])
        if is_resumed:
            self._resumed += [(session, interest, sent) for sent in missed]

    def excuse(self, topics: Iterable[str], now: int) -> None:
        """What was stored until now may be damaged, and clients were told that their sessions were kept."""
        self._excused |= dict.fromkeys(topics, now)

    # Checks

    def check_at_end(self, applications: Mapping[int, Application], now: int) -> Iterator[Violation]:
        """Checks whether the messages came to the clients that are present."""
        kept = [w for w in self._pending if self._is_kept(*w[1:])]
        for interest, name, sent in self._lost(kept, applications):
            text = f"{sent} was acknowledged, and never came to {name}'s {interest.title}"
            yield Violation(now, Invariant.NOTHING_LOST, text)
        resumed = [w for w in self._resumed if w[2].at > self._excused.get(w[2].topic, 0)]
        for interest, name, sent in self._lost(resumed, applications):
            text = f"{name}'s {interest.title} was resumed, as it was told, and {sent} never came"
            yield Violation(now, Invariant.RESUMED, text)

    def _is_kept(self, interest: Interest, sent: Sent) -> bool:
        is_whole = interest.kept.get(sent.topic, sent.at + 1) <= sent.at
        return is_whole and not self._ended_leases.may_lack(sent.topic, sent.at)

    def _lost(
        self, due: Iterable[tuple[int, Interest, Sent]], applications: Mapping[int, Application]
    ) -> Iterator[tuple[Interest, str, Sent]]:
        """Of each session a message that is due and missing, and that the session cannot have lost
        (`losses`)."""
        lacking: dict[int, list[tuple[Interest, str, Sent]]] = {}
        for session, interest, sent in due:
            if name := _lacks(applications.get(session), interest, sent):
                lacking.setdefault(session, []).append((interest, name, sent))
        for session, of_session in lacking.items():
            lost = self._losses.unexplained([session], [sent for _, _, sent in of_session])
            yield from [one for one in of_session if one[2] is lost][:1]


def _lacks(application: Application | None, interest: Interest, sent: Sent) -> str:
    """The name of the client, if it runs, wants the message, and has not received it; otherwise empty."""
    if application is None or application.has_ended or application.may_lack(sent):
        return ""
    return application.name if interest in application.interests.values() else ""
