"""A bounded queue of messages that were read from the native core and wait for one consumer.

If the client acknowledges handled messages only, a message counts as handled when its consumer asks for the
next one or closes the inbox. If the consumer is killed before that, the message is sent again. Messages that
the consumer never took are reported apart when it closes, because they may go to another member of a shared
group (§6.5).

A slow consumer affects others as little as possible. At QoS 0 the inbox discards and counts messages beyond
its limit. At QoS 1 and 2 it discards nothing: while it is full, no message is read from the core. So nothing
more is acknowledged, and the owners queue the messages (§7.3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hbroker._native import Message

__all__ = ["Inbox"]


class Inbox:
    """The queue of one `Subscription`.

    `on_ready`: called when there is something to take. `on_unblocked`: called when the inbox stops blocking.
    `on_handled`: called with each message that the consumer has handled, and whether another one waits.
    `on_unread`: called with each message that was in the inbox when it closed. None: not called.
    """

    def __init__(
        self,
        limit: int,
        qos: int,
        on_ready: Callable[[], None],
        on_unblocked: Callable[[], None],
        on_handled: Callable[[Message, bool], None] | None = None,
        on_unread: Callable[[Message], None] | None = None,
    ) -> None:
        self._limit = limit
        self._qos = qos
        self._on_ready = on_ready
        self._on_unblocked = on_unblocked
        self._on_handled = on_handled
        self._on_unread = on_unread
        self._current: Message | None = None
        self._messages: deque[Message] = deque()
        self.is_closed = False
        """Whether no further message can arrive."""
        self._error: Exception | None = None
        self.dropped = 0
        """Messages of QoS 0 that were discarded because the inbox was full."""

    def put(self, message: Message) -> None:
        """Adds a message, or discards and counts it."""
        if self.is_closed:
            return
        waiting = len(self._messages)
        if waiting >= self._limit and message.qos == 0:
            self.dropped += 1
            return
        self._messages.append(message)
        # Otherwise the consumer takes the waiting messages and then this one, before it waits again.
        if not waiting:
            self._on_ready()

    def pop(self) -> Message | None:
        """The next message; None: there is none. If an error closed the inbox, raises it once the inbox is
        empty."""
        if self._on_handled is not None:
            self._finish()
        if not self._messages:
            if self._error is not None:
                raise self._error
            return None
        was_blocking = self._qos > 0 and self.is_blocking
        message = self._messages.popleft()
        if self._on_handled is not None:
            self._current = message
        if was_blocking and not self.is_blocking:
            self._on_unblocked()
        return message

    def close(self, error: Exception | None = None, *, keep: bool = False) -> None:
        """Takes no more messages. With an error, the waiting messages can still be taken, and then the error
        is raised. Without an error they are discarded, and reported to `on_unread` unless `keep`: then they
        go to the session's next run."""
        was_blocking = self.is_blocking
        self._finish()
        self.is_closed = True
        self._error = error
        if error is None:
            self._drop_unread(keep)
        self._on_ready()
        if was_blocking:
            self._on_unblocked()

    def _drop_unread(self, keep: bool) -> None:
        unread, self._messages = self._messages, deque()
        if self._on_unread is not None and not keep:
            for message in unread:
                self._on_unread(message)

    def _finish(self) -> None:
        message, self._current = self._current, None
        if message is not None and self._on_handled is not None:
            self._on_handled(message, bool(self._messages))

    @property
    def is_blocking(self) -> bool:
        """Whether messages must stay in the core until the consumer has taken some."""
        return self._qos > 0 and not self.is_closed and len(self._messages) >= self._limit
