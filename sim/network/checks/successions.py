"""Subscribers of an owner that dies for good, and whose subtree another node claims at once (§5.8).

While a topic has no owner, no subscription to it is whole. But each subscriber that was connected when its
owner died comes back to the next owner, and that one waits for it. So it receives what is published in the
meantime and acknowledged later (docs/guarantees.md, "When a node dies"). The check holds only if nothing else
fails: the new owner waits for ten seconds, and on bad paths, or if more nodes die, a subscriber may need
longer.
"""

from __future__ import annotations

from collections.abc import Iterable

from .applications import Application, Interest, Sent

__all__ = ["Successions"]


class Successions:
    """The subscribers that the next owner of a topic must find, as long as nothing else fails."""

    def __init__(self) -> None:
        self._pending: dict[str, set[Interest]] = {}
        """By topic, the subscriptions that were whole when its owner died."""
        self.is_disturbed = False
        """Whether something else fails."""

    # Change

    def begin(
        self, topics: Iterable[str], applications: Iterable[Application], saved_before: int | None = None
    ) -> None:
        """The owner of some topics is about to die.

        `saved_before`: its files may lack subscriptions that were made, and clients that came back, since
        then; None: they are complete.
        """
        if self.is_disturbed:
            return
        if saved_before is not None:
            applications = [application for application in applications if not application.expiry]
        interests = [i for application in applications for i in application.interests.values()]
        for topic in topics:
            whole = {i for i in interests if i.qos and not i.group and i.is_made and topic in i.since}
            if saved_before is not None:
                whole = {i for i in whole if max(i.made_at or 0, i.since[topic]) < saved_before}
            self._pending[topic] = self._pending.get(topic, whole) & whole

    def end(self, topic: str, interest: Interest) -> None:
        """The session of a subscription ended at the owner of a topic, by its own policy."""
        self._pending.get(topic, set()).discard(interest)

    def disturb(self) -> None:
        """Something else fails."""
        self.is_disturbed = True
        self._pending.clear()

    # Read

    def promises(self, interest: Interest, sent: Sent) -> bool:
        """Whether a subscription must receive a message, though it was not whole all the time."""
        is_after = interest.made_at is not None and interest.made_at <= sent.at
        return is_after and interest in self._pending.get(sent.topic, ())
