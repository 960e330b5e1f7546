"""Alerts, told to the network: each is a retained message, so that who comes later knows how things stand.

A thread of its own tells them, for a network may be away for as long as it likes while the analysis goes on.
What waits is the last state of each alert: its bound is the alerts that there are. What could not be told is
tried again, after longer and longer pauses.

What is in force is told again from time to time, word for word: a root keeps its retained messages in memory,
and one that was started again has lost them. It expires soon after the next time is missed, so that no alert
outlives who raised it by much.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING, Final

from hbroker.errors import HBrokerError

if TYPE_CHECKING:
    from hbroker.sync import Client

PREFIX: Final = "$SYS/analysis/alerts/"

REPEAT_S: Final = 300.0
_REPEATS_MISSED: Final = 3
"""Times that may be missed before the network forgets what is in force."""
CLEARED_EXPIRY_S: Final = 86_400
"""The network forgets an alert a day after it was cleared."""

_PAUSES_S: Final = (1.0, 30.0)


class Announcer:
    """Tells the network at `root`. `say` is called with a line when that fails, and when it goes on.

    A context manager. What waits at its end is tried once more.
    """

    def __init__(
        self, root: str, say: Callable[[str], None], *, timeout: float = 5.0, repeat_s: float = REPEAT_S
    ) -> None:
        self._root = root
        self._say = say
        self._timeout = timeout
        self._repeat_s = repeat_s
        self._repeat_at = time.monotonic() + repeat_s
        self._changed = threading.Condition()
        self._states: dict[str, tuple[bytes, bool]] = {}
        """What waits, and what is in force."""
        self._waiting: dict[str, None] = {}
        """Topics, in the order in which they came."""
        self._is_ending = False
        self._is_away = False
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)

    def __enter__(self) -> Announcer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        self._thread.join(3 * self._timeout)
        if self._waiting:
            self._say(f"{len(self._waiting)} alerts were not told")

    def tell(self, states: Mapping[str, tuple[bytes, bool]]) -> None:
        """New states of alerts, by their topic below PREFIX: what to say, and whether it is in force."""
        from hbroker import topic_is_valid

        with self._changed:
            for topic, state in states.items():
                if not topic_is_valid(PREFIX + topic):
                    self._say(f"{topic!r} is no topic: not told")
                    continue
                self._states[topic] = state
                self._waiting[topic] = None
            self._changed.notify_all()

    def _run(self) -> None:
        from hbroker import sync

        pause, longest = _PAUSES_S
        while self._next() is not None:
            try:
                with sync.connect(self._root, timeout=self._timeout) as client:
                    while (topic := self._next()) is not None:
                        self._publish(client, topic)
                        pause = _PAUSES_S[0]
            except (HBrokerError, OSError) as error:
                if not self._is_away:
                    self._say(f"alerts wait: {error}")
                self._is_away = True
                if self._rest(pause):
                    return
                pause = min(2 * pause, longest)

    def _next(self) -> str | None:
        """A topic that waits, as soon as there is one; None: it is over."""
        with self._changed:
            while not self._waiting:
                left = self._repeat_at - time.monotonic()
                if self._is_ending:
                    return None
                if left <= 0:
                    self._repeat_at += self._repeat_s
                    self._waiting = dict.fromkeys(self._states)
                else:
                    self._changed.wait(left)
            return next(iter(self._waiting))

    def _publish(self, client: Client, topic: str) -> None:
        with self._changed:
            state = payload, is_in_force = self._states[topic]
        client.publish(
            PREFIX + topic,
            payload,
            qos=1,
            retain=True,
            ack_queued=True,
            expiry_s=ceil(_REPEATS_MISSED * self._repeat_s) if is_in_force else CLEARED_EXPIRY_S,
            content_type="application/json",
        )
        with self._changed:
            if self._states[topic] == state:
                del self._waiting[topic]
                if not is_in_force:
                    del self._states[topic]
        if self._is_away:
            self._is_away = False
            self._say("alerts are told again")

    def _rest(self, seconds: float) -> bool:
        """Waits. Returns whether it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ending, seconds)
            return self._is_ending
