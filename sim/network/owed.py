"""What was acknowledged before it came: it waits at an owner, and has to come by the end.

- A message that was acknowledged while a session was *away* (without a link) or stalled (§7.3) comes to its
  client, in this run or a later one, as long as the session is kept, and its owner lives, until then; also
  where the owner's lease ends meanwhile, if that owner serves the topic again (`ended_leases`).
- *Resumed*: a client that was told that every owner had its subscription from before (`Subscribed.resumed`,
  §6.4) gets what was acknowledged since that was made: for the first time, or again where an owner had said
  that it did not have it any more.

Of both, what was dropped for the session, because its queue was full or the message expired, need not come:
`losses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .applications import Application, Interest, Sent
from .invariants import Invariant, Violation
from .lapses import EndedLeases
from .losses import Losses

__all__ = ["PendingDeliveries"]


class PendingDeliveries:
    """What is to come."""

    def __init__(self, losses: Losses, ended_leases: EndedLeases) -> None:
        self._losses = losses
        self._ended_leases = ended_leases
        self._waiting: list[tuple[int, Interest, Sent]] = []
        self._missed: dict[Interest, list[Sent]] = {}
        """What was acknowledged while subscriptions of sessions that are kept were not whole."""
        self._resumed: list[tuple[int, Interest, Sent]] = []

    # Change

    def wait(self, session: int, interest: Interest, sent: Sent) -> None:
        """It was acknowledged, and waits for a session."""
        self._waiting.append((session, interest, sent))

    def miss(self, interest: Interest, sent: Sent) -> None:
        """It was acknowledged, and no owner may have it for this subscription."""
        self._missed.setdefault(interest, []).append(sent)

    def resume(self, session: int, interest: Interest, *, is_resumed: bool) -> None:
        """A client was told whether its subscription was there all the time."""
        missed = self._missed.pop(interest, [])
        if is_resumed:
            self._resumed += [(session, interest, sent) for sent in missed]

    # Look

    def check_at_end(self, applications: Mapping[int, Application], now: int) -> Iterator[Violation]:
        """Whether it came to those that are there."""
        kept = [w for w in self._waiting if self._is_kept(*w[1:])]
        for interest, name, sent in self._lost(kept, applications):
            text = f"{sent} was acknowledged, and never came to {name}'s {interest.title}"
            yield Violation(now, Invariant.NOTHING_LOST, text)
        for interest, name, sent in self._lost(self._resumed, applications):
            text = f"{name}'s {interest.title} was resumed, as it was told, and {sent} never came"
            yield Violation(now, Invariant.RESUMED, text)

    def _is_kept(self, interest: Interest, sent: Sent) -> bool:
        is_whole = interest.kept.get(sent.topic, sent.at + 1) <= sent.at
        return is_whole and not self._ended_leases.may_lack(sent.topic, sent.at)

    def _lost(
        self, due: Iterable[tuple[int, Interest, Sent]], applications: Mapping[int, Application]
    ) -> Iterator[tuple[Interest, str, Sent]]:
        """Of each session a message that is due and lacking, and that it cannot have lost (`losses`)."""
        lacking: dict[int, list[tuple[Interest, str, Sent]]] = {}
        for session, interest, sent in due:
            if name := _lacks(applications.get(session), interest, sent):
                lacking.setdefault(session, []).append((interest, name, sent))
        for session, of_session in lacking.items():
            lost = self._losses.unexplained([session], [sent for _, _, sent in of_session])
            yield from [one for one in of_session if one[2] is lost][:1]


def _lacks(application: Application | None, interest: Interest, sent: Sent) -> str:
    """The name of a client that is there, wants a message, and has not got it."""
    if application is None or application.is_gone or application.may_lack(sent):
        return ""
    return application.name if interest in application.interests.values() else ""
