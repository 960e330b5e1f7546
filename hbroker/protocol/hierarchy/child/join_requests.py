"""The JOINs of one claim (§5.1): their fields, and which of them wait for an answer."""

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
"""The most JOINs that wait for an answer. An answer to an older one is useless."""


@dataclass(frozen=True, slots=True)
class PendingJoin:
    """A JOIN that waits for an answer: when it was sent, and which nonce of the asked node it proves."""

    at: int
    nonce: int


class JoinRequests:
    """The JOINs of one claim. `address`, `incarnation`: this node's."""

    def __init__(
        self, subtree: str, settings: NodeSettings, address: Address, incarnation: int, random: Random
    ) -> None:
        self._subtree = subtree
        self._settings = settings
        self._address = address
        self._incarnation = incarnation
        self._random = random
        self._sent: dict[int, PendingJoin] = {}
        """The JOINs that wait for an answer, by request."""

    def make(self, now: int, epoch: int, *, fenced: bool, nonce: int = 0, leaving: bool = False) -> bytes:
        """A JOIN to be sent now.

        - `epoch`: the one that is held; 0: none.
        - `fenced`: whether the lease ends.
        - `nonce`: outside of a session, the asked node's nonce for the proof of the join key; 0: unknown.
        - `leaving`: the subtree is being handed back.
        """
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
        """Whether a JOIN with this request waits for an answer."""
        return request in self._sent

    def answered(self, request: int) -> PendingJoin | None:
        """Removes and returns the JOIN with this request, so no second answer counts; None: none waits."""
        return self._sent.pop(request, None)

    def forget(self) -> None:
        """Forgets all JOINs: no answer to them counts."""
        self._sent.clear()

    @property
    def are_waiting(self) -> bool:
        """Whether a JOIN waits for an answer."""
        return bool(self._sent)
