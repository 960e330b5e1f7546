"""Clients that publish under the id of another, which any subscriber of its messages knows.

§7.9: owners take nothing of theirs, so nobody gets it, and the numbers that they use up are nobody's. What
the rightful publisher is promised holds all the same: `deliveries`.
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
"""What an impostor's messages begin with, and no other's."""
_TAKEN = (Reason.REASON_SUCCESS, Reason.REASON_NO_MATCHING_SUBSCRIBERS)


class ImpostorHost(ClientHost):
    """`victim`: the publisher id that stands in all that it sends in place of its own."""

    def __init__(self, world: World, root: Address, victim: int) -> None:
        self._victim = victim.to_bytes(8, "little")
        self._looked = 0
        super().__init__(world, root, "impostor")

    def poll_transmit(self) -> list[tuple[Address, bytes]]:
        """Ids have eight bytes each on the wire, wherever they stand."""
        own = self.publisher.to_bytes(8, "little")
        return [(to, data.replace(own, self._victim)) for to, data in super().poll_transmit()]

    def publish_many(self, topic: str, qos: int, count: int, *, retain: bool) -> None:
        """Uses up so many of its victim's numbers, the lowest ones, where it is believed."""
        for number in range(count):
            self.publish(topic, PAYLOAD + f" {number}".encode(), qos, retain)

    def look(self) -> Iterator[Violation]:
        """What an owner took of it."""
        results, self._looked = self.results[self._looked :], len(self.results)
        for result in results:
            if isinstance(result, Published) and result.reason in _TAKEN:
                text = f"an owner takes message {result.sequence} of an impostor"
                yield Violation(self.world.now, Invariant.GENUINE, text)
