"""The JOINs of one claim (§5.1): what each says, and which of them wait for an answer."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.hierarchy.join_proofs import join_credential
from hbroker.protocol.packets import Address, address_of, pack

__all__ = ["JoinRequests", "PendingJoin"]

MOST_WAITING: Final = timers.LEASE_RENEWALS
"""Of how many an answer is known. One that comes later than so many newer JOINs is of no use."""


@dataclass(frozen=True, slots=True)
class PendingJoin:
    """A JOIN without an answer: when it was sent, and over which nonce of the node that was asked."""

    at: int
    nonce: int


class JoinRequests:
    """`address`, `incarnation`: the claiming node's."""

    def __init__(
        self, subtree: str, settings: NodeSettings, address: Address, incarnation: int, random: Random
    ) -> None:
        self._subtree = subtree
        self._settings = settings
        self._address = address
        self._incarnation = incarnation
        self._random = random
        self._sent: dict[int, PendingJoin] = {}
        """Those without an answer, by request."""

    def make(self, now: int, epoch: int, *, fenced: bool, nonce: int = 0, leaving: bool = False) -> bytes:
        """A JOIN that is sent now. `epoch`: what is held, or 0; `fenced`: whether the lease ends; `nonce`:
        outside of a session, what the node that is asked wants the join key proved over; 0: not known.
        `leaving`: the subtree is being handed back."""
        if len(self._sent) > MOST_WAITING:
            del self._sent[next(iter(self._sent))]
        request = self._random.getrandbits(64)
        self._sent[request] = PendingJoin(now, nonce)
        serve = self._settings.policy is LeasePolicy.SERVE
        join = pb.Join(
            request=request,
            node=self._settings.name,
            subtree=self._subtree,
            address=address_of(self._address),
            incarnation=self._incarnation,
            epoch=epoch,
            policy=pb.LEASE_POLICY_SERVE if serve else pb.LEASE_POLICY_FENCE,
        )
        join.fenced = fenced
        join.leaving = leaving
        if nonce:
            join.nonce = nonce
            join.credential = join_credential(self._settings.join_key, join)
        return pack(join)

    def is_open(self, request: int) -> bool:
        """Whether this is a JOIN of these without an answer."""
        return request in self._sent

    def answered(self, request: int) -> PendingJoin | None:
        """The JOIN that this answers: another answer counts no more. None: none of these, or one that was
        answered."""
        return self._sent.pop(request, None)

    def forget(self) -> None:
        """What was asked so far counts no longer, whatever is answered."""
        self._sent.clear()

    @property
    def are_waiting(self) -> bool:
        return bool(self._sent)
