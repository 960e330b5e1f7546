"""Subscribers of an owner that dies for good, and whose subtree another claims at once (§5.8).

While nobody serves a topic no subscription to it is whole. But who was connected when its owner died comes
back to whoever serves next, and that one waits for it: so what is published meanwhile, and acknowledged
later, reaches it (docs/guarantees.md, When a node dies). This is held to where nothing else goes wrong: the
new owner waits for ten seconds, and on bad paths, or where more die, a subscriber may need longer.
"""

from __future__ import annotations

from collections.abc import Iterable

from .applications import Application, Interest, Sent

__all__ = ["Successions"]


class Successions:
    """Who must be found by the next owner of a topic, as long as nothing else happens."""

    def __init__(self) -> None:
        self._pending: dict[str, set[Interest]] = {}
        """The subscriptions that were whole when the owner of a topic died."""
        self._is_disturbed = False

    # Change

    def begin(
        self, topics: Iterable[str], applications: Iterable[Application], known_before: int | None = None
    ) -> None:
        """The owner of some topics is about to die. `known_before`: since then its files may lack who made a
        subscription, or came back to it; None: they lack nobody."""
        if self._is_disturbed:
            return
        if known_before is not None:
            applications = [application for application in applications if not application.expiry]
        interests = [i for application in applications for i in application.interests.values()]
        for topic in topics:
            whole = {i for i in interests if i.qos and not i.group and i.is_made and topic in i.since}
            if known_before is not None:
                whole = {i for i in whole if max(i.made_at or 0, i.since[topic]) < known_before}
            self._pending[topic] = self._pending.get(topic, whole) & whole

    def disturb(self) -> None:
        """Something else goes wrong."""
        self._is_disturbed = True
        self._pending.clear()

    # Read

    def promises(self, interest: Interest, sent: Sent) -> bool:
        """Whether a subscription is to have a message, though it was not whole all the time."""
        is_after = interest.made_at is not None and interest.made_at <= sent.at
        return is_after and interest in self._pending.get(sent.topic, ())
