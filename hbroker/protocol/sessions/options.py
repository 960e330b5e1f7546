"""What a client's session is to be at every owner, in its own words (§6.4).

The session id is what an owner knows a client by. One that is to outlive its links must be the same in the
next run of its program, from wherever: then it follows from the client's name and a key that its runs
share. Whoever knows both takes the session over; one that is not kept has 64 random bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

__all__ = ["LONGEST_EXPIRY_S", "SessionOptions", "session_id"]

LONGEST_EXPIRY_S: Final = 0xFFFF_FFFF
_KEY_BYTES: Final = 64


def session_id(client_id: str, key: bytes = b"") -> int:
    """The first 64 bits of the keyed BLAKE2b hash of a name. A key longer than 64 bytes is hashed itself."""
    if len(key) > _KEY_BYTES:
        key = blake2b(key).digest()
    digest = blake2b(client_id.encode(), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big") or 1


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """`client`: told to the owners, for those who operate the network. `session`: its id. `expiry_s`: how
    long the session lives on without a link; 0: not at all. `clean_start`: what an earlier run left ends
    first."""

    client: str = ""
    session: int = 0
    expiry_s: int = 0
    clean_start: bool = False

    @property
    def is_named(self) -> bool:
        """Whether other runs of the client have the session's id, too."""
        return self.is_persistent or self.clean_start

    @property
    def is_persistent(self) -> bool:
        """Whether the session outlives its links."""
        return self.expiry_s > 0
