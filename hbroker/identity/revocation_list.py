"""The list of revoked tokens of one authority (§5.11, ADR 36).

The list is append-only. Each record stands for itself, so whoever passes records on can withhold them, and
cannot forge, change or reorder them. A record has 92 bytes, all numbers big endian:

    sequence      4 bytes: 1 for the first record of the list, and one more for each further one
    id            16 bytes: the first bytes of SHA-256 of the revocation id of a block of a token
    expires_at    8 bytes: the last second at which a token with this block is valid, since the Unix epoch;
                  0: it does not expire
    signature     64 bytes: Ed25519 of the authority, over `hbroker revoked token`, a zero byte, and the above

A token is revoked if one of its blocks is. So revoking a block also revokes all tokens that were narrowed
from it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = [
    "MOST_RECORDS",
    "RECORD_BYTES",
    "InvalidRecord",
    "RevocationAuthority",
    "RevocationList",
    "RevokedToken",
    "short_id",
    "signed_content",
]

MOST_RECORDS: Final = 100_000
"""The longest list."""
_ID_BYTES: Final = 16
_CONTENT: Final = struct.Struct(f">I{_ID_BYTES}sQ")
_DOMAIN: Final = b"hbroker revoked token\0"
RECORD_BYTES: Final = _CONTENT.size + 64


class InvalidRecord(ValueError):
    """The record is malformed, is not the next one of its list, or was not signed by the authority."""


class RevokedToken(NamedTuple):
    """A record without its signature."""

    sequence: int
    id: bytes
    expires_at: int
    """0: it does not expire."""


@dataclass(frozen=True, slots=True)
class RevocationAuthority:
    """An authority that is believed. `id`: names its list. `has_signed`: whether it made a signature, the
    second argument, of the first."""

    id: bytes
    has_signed: Callable[[bytes, bytes], bool] = field(compare=False)

    @classmethod
    def of(cls, key: Ed25519PublicKey) -> RevocationAuthority:
        """The authority with this public key."""
        from cryptography.exceptions import InvalidSignature

        def has_signed(content: bytes, signature: bytes) -> bool:
            try:
                key.verify(signature, content)
            except InvalidSignature:
                return False
            return True

        return cls(short_id(key.public_bytes_raw()), has_signed)


class RevocationList:
    """The records of one authority that this process has, from 1 on without a gap."""

    def __init__(self, authority: RevocationAuthority) -> None:
        self.authority: Final = authority
        self._records = bytearray()
        self._ids: set[bytes] = set()

    # Change

    def append(self, record: bytes) -> RevokedToken:
        """Adds the next record. Raises InvalidRecord if it is not, and the list stays as it was."""
        found = self._next(record)
        if not self.authority.has_signed(_DOMAIN + record[: _CONTENT.size], record[_CONTENT.size :]):
            raise InvalidRecord("the authority has not signed it")
        self._add(found, record)
        return found

    def restore(self, records: Iterable[bytes]) -> None:
        """Adds the next records, whose signatures were verified before. Raises InvalidRecord at the first one
        that is not the next."""
        for record in records:
            self._add(self._next(record), record)

    # Read

    def __len__(self) -> int:
        return len(self._records) // RECORD_BYTES

    def __contains__(self, id: object) -> bool:
        """Whether a block is revoked, by its `short_id`."""
        return id in self._ids

    def records(self, first: int, most: int) -> list[bytes]:
        """At most so many records from the one with the number `first` on."""
        ends = range(first * RECORD_BYTES, len(self._records) + 1, RECORD_BYTES)
        return [bytes(self._records[end - RECORD_BYTES : end]) for end in ends[:most] if first > 0]

    def tokens(self) -> list[RevokedToken]:
        """All records without their signatures."""
        return [_parsed(record) for record in self.records(1, len(self))]

    def is_beginning_of(self, records: bytes) -> bool:
        """Whether these records, one behind the other, begin with all that are in the list."""
        return records.startswith(self._records)

    def holds(self, records: bytes) -> bool:
        """Whether the list begins with these records."""
        return self._records.startswith(records)

    def _next(self, record: bytes) -> RevokedToken:
        """The record, which has to be the next one. Raises InvalidRecord."""
        found = _parsed(record)
        if found.sequence != len(self) + 1:
            raise InvalidRecord(f"it has the number {found.sequence}, and {len(self) + 1} is next")
        if found.sequence > MOST_RECORDS:
            raise InvalidRecord(f"a list has {MOST_RECORDS} records at most")
        return found

    def _add(self, found: RevokedToken, record: bytes) -> None:
        self._records += record
        self._ids.add(found.id)


def short_id(data: bytes) -> bytes:
    """The first 16 bytes of SHA-256: of the revocation id of a block, or of the public key of an
    authority."""
    return sha256(data).digest()[:_ID_BYTES]


def signed_content(token: RevokedToken) -> tuple[bytes, bytes]:
    """The beginning of a record, and what the authority signs. Behind the former follows the signature."""
    content = _CONTENT.pack(*token)
    return content, _DOMAIN + content


def _parsed(record: bytes) -> RevokedToken:
    if len(record) != RECORD_BYTES:
        raise InvalidRecord(f"it has {len(record)} bytes, and not {RECORD_BYTES}")
    return RevokedToken(*_CONTENT.unpack_from(record))
