"""Messages that were read from the core and wait for one consumer, bounded.

Where reading is not handling, a message counts as handled when its consumer asks for the next one, or closes
the inbox: what a consumer that is killed had not finished with then comes again. What it never took is told
apart from that when it closes: it may be somebody else's (§6.5).

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
    """The queue of one `Subscription`. `on_ready`: there is something to take. `on_room`: it blocks no more.
    `on_handled`: told of each message that its consumer is done with, and whether another one waits;
    `on_unread`: of each that it closed without having taken; None: nobody wants to know."""

    def __init__(
        self,
        limit: int,
        qos: int,
        on_ready: Callable[[], None],
        on_room: Callable[[], None],
        on_handled: Callable[[Message, bool], None] | None = None,
        on_unread: Callable[[Message], None] | None = None,
    ) -> None:
        self._limit = limit
        self._qos = qos
        self._on_ready = on_ready
        self._on_room = on_room
        self._on_handled = on_handled
        self._on_unread = on_unread
        self._in_hand: Message | None = None
        self._messages: deque[Message] = deque()
        self._is_closed = False
        self._error: Exception | None = None
        self.dropped = 0
        """QoS 0 messages that found it full."""

    def put(self, message: Message) -> None:
        """Adds a message, or drops and counts it."""
        if self._is_closed:
            return
        waiting = len(self._messages)
        if waiting >= self._limit and message.qos == 0:
            self.dropped += 1
            return
        self._messages.append(message)
        if not waiting:  # else its consumer takes what is there, and then this, before it waits again
            self._on_ready()

    def take(self) -> Message | None:
        """The next message; None: there is none. At the end it raises the error that ended the inbox."""
        if self._on_handled is not None:
            self._finish()
        if not self._messages:
            if self._error is not None:
                raise self._error
            return None
        was_blocking = self._qos > 0 and self.is_blocking
        message = self._messages.popleft()
        if self._on_handled is not None:
            self._in_hand = message
        if was_blocking and not self.is_blocking:
            self._on_room()
        return message

    def close(self, error: Exception | None = None, *, keep: bool = False) -> None:
        """Takes no more. With an error what is in it can still be taken, and then the error is raised. Else
        it is dropped, for good unless `keep`: then it comes to the session's next run."""
        was_blocking = self.is_blocking
        self._finish()
        self._is_closed = True
        self._error = error
        if error is None:
            self._drop_unread(keep)
        self._on_ready()
        if was_blocking:
            self._on_room()

    def _drop_unread(self, keep: bool) -> None:
        unread, self._messages = self._messages, deque()
        if self._on_unread is not None and not keep:
            for message in unread:
                self._on_unread(message)

    def _finish(self) -> None:
        message, self._in_hand = self._in_hand, None
        if message is not None and self._on_handled is not None:
            self._on_handled(message, bool(self._messages))

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        return self._is_closed

    @property
    def is_blocking(self) -> bool:
        """Whether the reading from the core has to wait for the consumer."""
        return self._qos > 0 and not self._is_closed and len(self._messages) >= self._limit
