"""What a simulated network needs to seal its datagrams: certificates, and a log of the keys for the checks.

Keys are random, also if a seed is repeated. A run still depends on its seed alone, because what is random has
no effect on lengths and times: Ed25519 has signatures of one length, and only serial numbers of one length
are taken.
"""

from __future__ import annotations

import hashlib
import os
import time
import weakref
from base64 import urlsafe_b64decode
from functools import lru_cache
from tempfile import mkstemp
from typing import Final

from hbroker._native import Credentials
from hbroker.identity.authority import Authority
from hbroker.identity.node_identity import Identity
from hbroker.identity.revocation_list import RECORD_BYTES, RevocationAuthority, RevokedToken, short_id
from hbroker.identity.revoked_file import RevokedFile, signed_record
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create, inspect, verify
from hbroker.rights.verified import VerifiedToken
from hbroker.runtime.key_log import KeyLog, Opened

__all__ = ["SimulatedSecurity"]

_LONG: Final = 152
"""A positive number of 152 to 159 bits has 20 bytes in DER."""


class SimulatedSecurity:
    """The security of one world. `requires_tokens`: each client has a token with rights of its own, which
    allow all that it does."""

    def __init__(self, *, requires_tokens: bool = False) -> None:
        self.requires_tokens: Final = requires_tokens
        descriptor, self._file = mkstemp(prefix="hbroker-sim-", suffix=".keys")
        os.close(descriptor)
        weakref.finalize(self, os.unlink, self._file)
        self._key_log = KeyLog(self._file)
        self._tokens: dict[int, bytes] = {}
        self._revoked = b""

    def credentials(self, node: str = "", session: int = 0) -> Credentials:
        """The credentials of one process. `node`: its name; empty: it is the client with this session."""
        identity = _identity(node) if node else None
        proof = None if identity is None else (identity.chain, identity.key)
        has_token = self.requires_tokens and not node
        if has_token and session not in self._tokens:
            made = create(_authority().key, Block(_rights(session)))
            self._tokens[session] = urlsafe_b64decode(made)
        token = self._tokens[session] if has_token else None
        return Credentials([_authority().certificate], proof, self._file, token)

    def verify_token(self, token: bytes, now: float) -> VerifiedToken:
        """As a node does it. Raises InvalidToken."""
        return verify(token, [_authority().public_key], now)

    def authorities(self) -> list[RevocationAuthority]:
        """Whose lists of revoked tokens a node believes."""
        return [RevocationAuthority.of(_authority().public_key)]

    def revoke(self, session: int) -> RevokedFile:
        """The authority revokes the token of the client with this session. Returns its list."""
        id = short_id(inspect(self._tokens[session]).revocation_ids[-1])
        sequence = len(self._revoked) // RECORD_BYTES + 1
        self._revoked += signed_record(_authority(), RevokedToken(sequence, id, 0))
        (authority,) = self.authorities()
        return RevokedFile(authority.id, self._revoked)

    def token_key(self, node: str) -> bytes:
        """The key of a node's address tokens and resets: the same in all its runs (§4.2)."""
        return hashlib.sha256(node.encode()).digest()[:16]

    def open(self, datagram: bytes) -> Opened | None:
        """What a host sealed in a datagram; None: it belongs to a handshake, or was changed."""
        return self._key_log.open(datagram)


def _rights(session: int) -> BlockRights:
    """No two clients have the same: one filter names the client."""
    everything = ("#", "$SYS/#", f"of/{session:016x}")
    return BlockRights(everything, everything, retain=True, share=True)


@lru_cache(maxsize=1)
def _authority() -> Authority:
    return Authority.create("simulation", time.time())


@lru_cache(maxsize=1_024)
def _identity(node: str) -> Identity:
    while True:
        identity = _authority().issue(node, [""], time.time())
        if identity.certificate.serial.bit_length() >= _LONG:
            return identity
