"""Proofs of the join key (§5.5, §5.7), and the nonces that make a recorded proof useless.

A proof is an HMAC over a purpose, numbers and texts, so a proof for one purpose counts for no other. A nonce
is the receiver's: a keyed hash of the period and of what it is for, so the receiver stores nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.packets import Address, address_from

__all__ = ["NONCE_PERIOD", "Nonces", "invitation_credential", "is_proof", "join_credential", "proof"]

NONCE_PERIOD: Final = 60 * timers.SECOND
"""In microseconds. A nonce is good for its period and the next one."""


class Nonces:
    """The nonces of one run of a node. `secret`: random bytes that only this run has."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def current(self, now: int, *subject: object) -> int:
        """The present nonce for `subject`; never 0."""
        return self.of(now // NONCE_PERIOD, *subject)

    def is_valid(self, now: int, nonce: int, *subject: object) -> bool:
        """Whether a nonce is the one of this period, or of the last."""
        period = now // NONCE_PERIOD
        return nonce in (self.of(period, *subject), self.of(period - 1, *subject))

    def of(self, *subject: object) -> int:
        """A nonce for the whole run; never 0."""
        text = " ".join(map(str, subject)).encode()
        return int.from_bytes(blake2b(text, key=self._secret, digest_size=8).digest(), "big") or 1


def proof(key: bytes, purpose: bytes, numbers: Iterable[int], texts: Iterable[str]) -> bytes:
    """HMAC-SHA256 of the purpose, the numbers (8 bytes each, big endian) and the texts (each after its
    length, 2 bytes); empty if there is no key."""
    if not key:
        return b""
    made = hmac.new(key, purpose, digestmod="sha256")
    for number in numbers:
        made.update(number.to_bytes(8, "big"))
    for text in texts:
        encoded = text.encode()
        made.update(len(encoded).to_bytes(2, "big") + encoded)
    return made.digest()


def is_proof(made: bytes, claimed: bytes) -> bool:
    """Whether they are equal, compared in constant time."""
    return hmac.compare_digest(made, claimed)


def join_credential(key: bytes, join: pb.Join) -> bytes:
    """The credential of a JOIN outside of a session (§5.5)."""
    numbers = (join.request, join.nonce, join.incarnation, join.epoch, join.policy, join.fenced)
    return proof(key, b"hbroker join", numbers, (join.node, join.subtree, _text(join.address)))


def invitation_credential(key: bytes, ack: pb.JoinAck) -> bytes:
    """The credential of the JOINACK that answers such a JOIN."""
    holder = ack.holder
    numbers = (ack.request, ack.nonce, ack.reason, holder.epoch)
    texts = (ack.node, ack.subtree, _text(ack.address), holder.subtree, holder.node, _text(holder.address))
    return proof(key, b"hbroker joinack", numbers, texts)


def _text(address: pb.Address) -> str:
    found: Address | None = address_from(address)
    return "" if found is None else f"{found[0]}:{found[1]}"
