"""One order to a node, from its first datagram to its last answer (§5.7): the operator's side.

The order is repeated until the node has carried it out or refuses it. The node asks for two proofs: of the
address (CHALLENGE), and, if the network has a join key, of the key over a nonce of the node. So a recorded
order is useless later.
"""

from __future__ import annotations

from random import Random
from typing import Final

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.core import Core, Event
from hbroker.protocol.hierarchy.join_proofs import proof
from hbroker.protocol.packets import REQUEST_PADDING, Address, Reason, body_of, pack

__all__ = ["AdminClient", "order_credential"]

MOST_PROOFS: Final = 3
"""The most challenges for each try, and the most nonces, that the client answers without an answer that the
order is under way. An honest node sends no more."""
LONGEST_PAUSE: Final = timers.SECOND
"""The longest pause between two tries, in microseconds."""


class AdminClient:
    """Sends one order to the node at `address`. Times are microseconds of one monotonic clock."""

    def __init__(
        self, core: Core, random: Random, address: Address, order: pb.Order, join_key: bytes = b""
    ) -> None:
        self._core = core
        self._random = random
        self._address = address
        self._order = order
        self._join_key = join_key
        self._token = b""
        self._challenges = self._nonces = self._tries = 0
        self._sent = self._excused = 0
        """How many copies of the order were sent, and how many of these may still be refused because they
        lack the latest nonce."""
        self._due: int | None = None
        self.answer: pb.OrderAck | None = None
        """The node's last answer; None: there is none yet."""

    def start(self, now: int) -> None:
        """Sends the order."""
        self._order.request = self._random.getrandbits(64) or 1
        self._repeat(now)

    def handle_event(self, now: int, event: Event) -> None:
        """Handles one event of the native core."""
        if not isinstance(event, ControlEvent) or event.source != self._address or self.has_ended:
            return
        match body_of(event.packet):
            case pb.Challenge(token=token) if token != self._token and self._challenges < MOST_PROOFS:
                self._challenges += 1
                self._token = token
                self._send()
            case pb.OrderAck() as answer if answer.request == self._order.request:
                self._handle_answer(answer)

    def handle_timeout(self, now: int) -> None:
        """Repeats the order if that is due."""
        if self._due is not None and now >= self._due:
            self._repeat(now)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: the order has ended."""
        return None if self.has_ended else self._due

    @property
    def has_ended(self) -> bool:
        """Whether the order was carried out or refused; `answer` says which."""
        return self.answer is not None and (self.answer.done or self.answer.reason != Reason.REASON_SUCCESS)

    def _handle_answer(self, answer: pb.OrderAck) -> None:
        if not answer.nonce or not self._join_key:
            self.answer = answer
            self._nonces = 0  # An order that takes minutes outlives its nonce, again and again.
        elif answer.nonce == self._order.nonce and self._excused > 0:
            self._excused -= 1  # This answers a copy that was sent before the nonce was known.
        elif self._nonces >= MOST_PROOFS:
            self.answer = answer
        else:
            self._nonces += 1
            self._prove(answer.nonce)

    def _prove(self, nonce: int) -> None:
        if nonce != self._order.nonce:
            self._excused = self._sent - 1
            self._order.nonce = nonce
            self._order.credential = order_credential(self._join_key, self._order)
            self._send()

    def _repeat(self, now: int) -> None:
        self._due = now + min(timers.retry_after(self._tries, self._random), LONGEST_PAUSE)
        self._tries += 1
        self._challenges = 0
        self._send()

    def _send(self) -> None:
        self._sent += 1
        self._core.send_to(self._address, pack(self._order), self._token, REQUEST_PADDING)


def order_credential(key: bytes, order: pb.Order) -> bytes:
    """The proof of the join key for an order (§5.7); empty if there is no key."""
    numbers = (order.request, order.nonce, order.kind)
    return proof(key, b"hbroker order", numbers, (order.node, order.subtree))
