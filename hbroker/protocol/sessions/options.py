"""The session that a client asks for at every owner (§6.4).

An owner knows a client by its session id. If the session is to outlive its links, the next run of the client
must have the same id, from wherever it connects. So the id is computed from the client's name and a key that
its runs share. Whoever knows both can take the session over. Any other session has 64 random bits as its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

__all__ = ["LONGEST_EXPIRY_S", "SessionOptions", "session_id"]

LONGEST_EXPIRY_S: Final = 0xFFFF_FFFF
_KEY_BYTES: Final = 64


def session_id(client_id: str, key: bytes = b"") -> int:
    """The first 64 bits of the keyed BLAKE2b hash of a name; 1 for 0. A key longer than 64 bytes is hashed
    first."""
    if len(key) > _KEY_BYTES:
        key = blake2b(key).digest()
    digest = blake2b(client_id.encode(), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big") or 1


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """`client`: the client's name, which owners show to operators. `session`: the session id. `expiry_s`:
    seconds that the session lives without a link; 0: it ends with its link. `clean_start`: what an earlier
    run left is discarded first."""

    client: str = ""
    session: int = 0
    expiry_s: int = 0
    clean_start: bool = False

    @property
    def is_named(self) -> bool:
        """Whether other runs of the client have the same session id."""
        return self.is_persistent or self.clean_start

    @property
    def is_persistent(self) -> bool:
        """Whether the session outlives its links."""
        return self.expiry_s > 0
