"""Messages that were read from the core and wait for one consumer, bounded.

A consumer that falls behind costs itself alone where it can: at QoS 0 the messages beyond the limit are
dropped and counted. At QoS 1 and 2 nothing is dropped: a full inbox stops the reading from the core, so
that nothing more is acknowledged, and the owners hold the messages back (§7.3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hbroker._native import Message

__all__ = ["Inbox"]


class Inbox:
    """The queue of one `Subscription`. `on_ready`: something can be taken. `on_room`: it blocks no more."""

    def __init__(
        self, limit: int, qos: int, on_ready: Callable[[], None], on_room: Callable[[], None]
    ) -> None:
        self._limit = limit
        self._qos = qos
        self._on_ready = on_ready
        self._on_room = on_room
        self._messages: deque[Message] = deque()
        self._is_closed = False
        self._error: Exception | None = None
        self.dropped = 0
        """QoS 0 messages that found it full."""

    def put(self, message: Message) -> None:
        """Adds a message, or drops and counts it."""
        if self._is_closed:
            return
        if message.qos == 0 and len(self._messages) >= self._limit:
            self.dropped += 1
            return
        self._messages.append(message)
        self._on_ready()

    def take(self) -> Message | None:
        """The next message; None: there is none. At the end it raises the error that ended the inbox."""
        if not self._messages:
            if self._error is not None:
                raise self._error
            return None
        was_blocking = self.is_blocking
        message = self._messages.popleft()
        if was_blocking and not self.is_blocking:
            self._on_room()
        return message

    def close(self, error: Exception | None = None) -> None:
        """Takes no more. With an error what is in it can still be taken, and then the error is raised."""
        was_blocking = self.is_blocking
        self._is_closed = True
        self._error = error
        if error is None:
            self._messages.clear()
        self._on_ready()
        if was_blocking:
            self._on_room()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        return self._is_closed

    @property
    def is_blocking(self) -> bool:
        """Whether the reading from the core has to wait for the consumer."""
        return self._qos > 0 and not self._is_closed and len(self._messages) >= self._limit
