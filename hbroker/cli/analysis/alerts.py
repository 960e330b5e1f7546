"""Publishes alerts to the network. Each is a retained message, so that later subscribers get it, too.

A thread publishes them, because the network may be unreachable for any time while the analysis goes on. The
queue has only the last state of each alert, so the number of alerts bounds it. After a failure the thread
tries again, with growing pauses.

Active alerts are published again from time to time, byte for byte: a root keeps retained messages in memory,
and loses them when it restarts. They expire after a few missed repetitions, so that no alert stays long after
the analysis has ended.
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
"""Repetitions that may be missed before an active alert expires."""
CLEARED_EXPIRY_S: Final = 86_400
"""A cleared alert expires after a day."""

_PAUSES_S: Final = (1.0, 30.0)


class Announcer:
    """Publishes alerts to the network at `root`. `say` is called with a line when that fails, and when it
    works again.

    A context manager. At its end it tries once more to publish what waits.
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
        """The states that wait, and those that are active: payload, and whether the alert is active."""
        self._waiting: dict[str, None] = {}
        """Topics that wait, in order."""
        self._is_ending = False
        self._is_offline = False
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
        """Queues new states of alerts, by topic below PREFIX: the payload, and whether the alert is
        active."""
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
                if not self._is_offline:
                    self._say(f"alerts wait: {error}")
                self._is_offline = True
                if self._rest(pause):
                    return
                pause = min(2 * pause, longest)

    def _next(self) -> str | None:
        """Waits for the next topic to publish; None: the announcer has ended."""
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
        if self._is_offline:
            self._is_offline = False
            self._say("alerts are told again")

    def _rest(self, seconds: float) -> bool:
        """Waits. Returns whether the announcer has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ending, seconds)
            return self._is_ending
