"""Clients that publish under another client's publisher id, which any subscriber of its messages knows.

Owners accept none of their messages (§7.9). So no subscriber receives them, and the sequence numbers that
they use are not taken. All promises to the true publisher hold: `deliveries`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hbroker.protocol.packets import Reason
from hbroker.protocol.results import Published

from .hosts import ClientHost
from .invariants import Invariant, Violation

if TYPE_CHECKING:
    from .world import Address, World

__all__ = ["PAYLOAD", "ImpostorHost"]

PAYLOAD: Final = b"impostor"
"""The begin of every impostor's payload, and of no other."""
_ACCEPTED = (Reason.REASON_SUCCESS, Reason.REASON_NO_MATCHING_SUBSCRIBERS)


class ImpostorHost(ClientHost):
    """`victim`: the publisher id that replaces its own in all that it sends."""

    def __init__(self, world: World, root: Address, victim: int) -> None:
        self._victim = victim.to_bytes(8, "little")
        self._checked = 0
        super().__init__(world, root, "impostor")

    def poll_transmit(self) -> list[tuple[Address, bytes]]:
        """Replaces the id in each datagram. An id has eight bytes on the wire, at any place."""
        return [(to, self._forged(data)) for to, data in super().poll_transmit()]

    def _forged(self, datagram: bytes) -> bytes:
        own = self.publisher.to_bytes(8, "little")
        if self.world.security is None:
            return datagram.replace(own, self._victim)
        opened = self.world.security.open(datagram)
        return datagram if opened is None else opened.with_data(opened.data.replace(own, self._victim))

    def publish_many(self, topic: str, qos: int, count: int, *, retain: bool) -> None:
        """Publishes `count` messages. If they were accepted, the victim's lowest sequence numbers would be
        used up."""
        for number in range(count):
            self.publish(topic, PAYLOAD + f" {number}".encode(), qos, retain)

    def check(self) -> Iterator[Violation]:
        """What an owner accepted of it."""
        results, self._checked = self.results[self._checked :], len(self.results)
        for result in results:
            if isinstance(result, Published) and result.reason in _ACCEPTED:
                text = f"an owner takes message {result.sequence} of an impostor"
                yield Violation(self.world.now, Invariant.GENUINE, text)
