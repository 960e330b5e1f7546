"""The JOINs of one claim (§5.1): their fields, which of them wait for an answer, and which answers it
believes.

The claim asks the root for its parent outside of sessions. Anybody can send an answer there. So a claim
follows a few challenges in each try (§4.1), and proves each nonce once (§5.5). An answer that does not prove
the join key ends nothing: it delays the next try, once in each. An answer that proves the key still counts
when it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.context import NodeContext
from hbroker.protocol.hierarchy.child.lease import Lease
from hbroker.protocol.hierarchy.join_proofs import invitation_credential, is_proof, join_credential
from hbroker.protocol.packets import REQUEST_PADDING, address_of, pack

__all__ = ["JoinRequests", "PendingJoin"]

MOST_WAITING: Final = timers.LEASE_RENEWALS
"""The most JOINs that wait for an answer. An answer to an older one is useless."""
MOST_CHALLENGES: Final = 3
"""The most challenges that a claim follows in one try (§9)."""


@dataclass(frozen=True, slots=True)
class PendingJoin:
    """A JOIN that waits for an answer: when it was sent, and which nonce of the asked node it proves."""

    at: int
    nonce: int


class JoinRequests:
    """The JOINs of one claim. `lease`: what it holds meanwhile."""

    def __init__(self, subtree: str, context: NodeContext, lease: Lease) -> None:
        self._subtree = subtree
        self._context = context
        self._lease = lease
        self._sent: dict[int, PendingJoin] = {}
        """The JOINs that wait for an answer, by request."""
        self.token = b""
        """Proves this node's address to the node that sent it, and to all nodes with the same key (§4.2)."""
        self._nonce = 0
        """The root's nonce for the proof of the join key; 0: unknown."""
        self._challenges = 0
        """The challenges that were followed in this try."""
        self._is_doubted = False
        """Whether this try got an answer that proves nothing."""

    # Change

    def make(self, now: int, *, nonce: int = 0, leaving: bool = False) -> bytes:
        """A JOIN to be sent now.

        - `nonce`: outside of a session, the asked node's nonce for the proof of the join key; 0: unknown.
        - `leaving`: the subtree is being handed back.
        """
        if len(self._sent) > MOST_WAITING:
            del self._sent[next(iter(self._sent))]
        request = self._context.random.getrandbits(64)
        self._sent[request] = PendingJoin(now, nonce)
        settings = self._context.settings
        serve = settings.policy is LeasePolicy.SERVE
        join = pb.Join(
            request=request,
            node=settings.name,
            subtree=self._subtree,
            address=address_of(self._context.settings.address),
            incarnation=self._context.incarnation,
            epoch=self._lease.epoch,
            policy=pb.LEASE_POLICY_SERVE if serve else pb.LEASE_POLICY_FENCE,
            fenced=self._lease.fenced,
            leaving=leaving,
            keeps_queues=self._context.has_restored_queues,
            revoked=self._context.revocations.counts(),
        )
        if nonce:
            join.nonce = nonce
            join.credential = join_credential(settings.join_key, join)
        return pack(join)

    def ask_root(self, now: int) -> None:
        """Begins a try: asks the root for the parent."""
        self._challenges = 0
        self._is_doubted = False
        self._send(now)

    def obey(self, now: int, token: bytes) -> None:
        """Handles a CHALLENGE of the root: sends the request again, with the token."""
        if self._sent and token != self.token and self._challenges < MOST_CHALLENGES:
            self._challenges += 1
            self.token = token
            self._send(now)

    def learn(self, nonce: int) -> bool:
        """Takes the root's nonce. Returns whether it is a new one."""
        before, self._nonce = self._nonce, nonce
        return nonce != before

    def doubt(self) -> bool:
        """Notes an answer that does not prove the join key. Returns whether it is the first of this try."""
        before, self._is_doubted = self._is_doubted, True
        return not before

    def answered(self, request: int) -> PendingJoin | None:
        """Removes and returns the JOIN with this request, so no second answer counts; None: none waits."""
        return self._sent.pop(request, None)

    def forget(self) -> None:
        """Forgets all JOINs: no answer to them counts."""
        self._sent.clear()

    # Read

    def is_open(self, request: int) -> bool:
        """Whether a JOIN with this request waits for an answer."""
        return request in self._sent

    def is_proved(self, ack: pb.JoinAck) -> bool:
        """§5.5: whether an answer from outside of sessions was made with the join key."""
        key = self._context.settings.join_key
        return not key or is_proof(invitation_credential(key, ack), ack.credential)

    def _send(self, now: int) -> None:
        packet = self.make(now, nonce=self._nonce)
        self._context.core.send_to(self._context.root, packet, self.token, REQUEST_PADDING)
