"""A claim's requests to the root for its parent, outside of sessions, and which answers it believes (§4.1,
§5.1, §5.5).

Anybody can send such an answer. So a claim follows a few challenges in each try, and proves each nonce once.
An answer that does not prove the join key ends nothing: it delays the next try, once in each. An answer that
proves the key still counts when it arrives.
"""

from __future__ import annotations

from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.hierarchy.child.context import UplinkContext
from hbroker.protocol.hierarchy.child.join_requests import JoinRequests
from hbroker.protocol.hierarchy.child.lease_holder import LeaseHolder
from hbroker.protocol.hierarchy.join_proofs import invitation_credential, is_proof
from hbroker.protocol.packets import REQUEST_PADDING

__all__ = ["ParentDiscovery"]

MOST_CHALLENGES: Final = 3
"""The most challenges that a claim follows in one try (§9)."""


class ParentDiscovery:
    """The requests of one claim. `join_requests`: its JOINs. `lease_holder`: what it holds meanwhile."""

    def __init__(
        self, context: UplinkContext, join_requests: JoinRequests, lease_holder: LeaseHolder
    ) -> None:
        self._context = context
        self._join_requests = join_requests
        self._lease_holder = lease_holder
        self.token = b""
        """Proves this node's address to the node that sent it, and to all nodes with the same key (§4.2)."""
        self._nonce = 0
        """The root's nonce for the proof of the join key."""
        self._challenges = 0
        """The challenges that were followed in this try."""
        self._is_doubted = False
        """Whether this try got an answer that proves nothing."""

    # Change

    def begin(self, now: int) -> None:
        """Begins a try."""
        self._challenges = 0
        self._is_doubted = False
        self._send(now)

    def obey(self, now: int, token: bytes) -> None:
        """Handles a CHALLENGE of the root: sends the request again, with the token."""
        if self._join_requests.are_waiting and token != self.token and self._challenges < MOST_CHALLENGES:
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

    # Read

    def is_proved(self, ack: pb.JoinAck) -> bool:
        """§5.5: whether an answer from outside of sessions was made with the join key."""
        key = self._context.settings.join_key
        return not key or is_proof(invitation_credential(key, ack), ack.credential)

    def _send(self, now: int) -> None:
        packet = self._join_requests.make(
            now, self._lease_holder.epoch, fenced=self._lease_holder.fenced, nonce=self._nonce
        )
        self._context.core.send_to(self._context.root, packet, self.token, REQUEST_PADDING)
