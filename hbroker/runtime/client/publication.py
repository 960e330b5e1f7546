"""Encodes payloads for `publish`, splits many messages into parts for the native core, and collects their
outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from hbroker.protocol.results import Published, Result
from hbroker.runtime.client.failure import of_publication

__all__ = ["Batch", "Messages", "Receipt", "encoded", "parts"]

Messages: TypeAlias = Iterable[tuple[str, bytes | str]]
"""Each message is (topic, payload)."""

_TOGETHER: Final = 256
"""Messages of one part. They are few enough for the core to do other work in between."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of a published message. `reason`: `REASON_SUCCESS` or `REASON_NO_MATCHING_SUBSCRIBERS`;
    None: the message has QoS 0, and is only queued. `sequence`: the client's publisher id and this number
    together are the message's id (docs/protocol.md §7.9)."""

    topic: str
    sequence: int
    qos: int
    reason: int | None


def encoded(payload: bytes | str) -> bytes:
    """The bytes of a payload: text is encoded in UTF-8, and the bytes of a buffer are copied. Raises
    TypeError for anything else, because only the publisher knows how a number becomes bytes."""
    if type(payload) is bytes:
        return payload
    if isinstance(payload, str):
        return payload.encode()
    try:
        return bytes(memoryview(payload))
    except TypeError:
        kind = type(payload).__name__
        raise TypeError(f"a payload is bytes or str, not {kind}: publish str(value), or encode it") from None


def parts(messages: Messages) -> Iterator[list[tuple[str, bytes]]]:
    """The messages in order, in parts. The iterable is read as the parts are taken."""
    coming = iter(messages)
    while part := [
        (topic, payload if type(payload) is bytes else encoded(payload))
        for topic, payload in islice(coming, _TOGETHER)
    ]:
        yield part


class Batch:
    """The messages whose outcome is pending, and the first error. `on_outcome` is called after each
    outcome."""

    def __init__(self, on_outcome: Callable[[], None]) -> None:
        self._on_outcome = on_outcome
        self.pending: set[int] = set()
        self.error: Exception | None = None

    def set(self, result: Result | Exception) -> None:
        """Takes one outcome. An exception: no further outcome follows."""
        if isinstance(result, Published):
            self.pending.discard(result.sequence)
            self.error = self.error or of_publication(result)
        elif isinstance(result, Exception):
            self.pending.clear()
            self.error = self.error or result
        self._on_outcome()

    @property
    def is_over(self) -> bool:
        """Whether no outcome is pending, or there was an error."""
        return not self.pending or self.error is not None
