"""The file with the list of revoked tokens: `revoked` beside `authority.crt` (mode 0644).

    `hbroker revoked tokens 1` and a line feed
    16 bytes: the id of the authority whose list it is
    the records (`hbroker.identity.revocation_list`)

The list is always that of one authority. While the authority is replaced (`hbroker.identity.rotation`) it is
that of the old one until the next one signs, and then that of the next one:

    after           signs    the file has the list of
    PREPARED        old      old
    SWITCHED        next     next: the records of the old list that have not expired, signed again
    FINISHED        next     next

Whoever believes both authorities keeps the lists of both. So a token that was revoked under the old authority
stays revoked until the old authority is not believed any more, and then none of its tokens is valid.

A record is appended in place, with one write, and is synced before the next one. So a crash leaves at most
one record that is not whole. Readers ignore it, and the next record takes its place.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from hbroker.errors import ConfigError, LocalError
from hbroker.identity.authority import Authority, AuthorityCertificate, locked
from hbroker.identity.revocation_list import (
    MOST_RECORDS,
    RECORD_BYTES,
    InvalidRecord,
    RevocationAuthority,
    RevocationList,
    RevokedToken,
    signed_content,
)
from hbroker.storage.disk import replace_file

__all__ = ["FILE_NAME", "RevokedFile", "load_list", "read_revoked", "revoke", "sign_again", "signed_record"]

FILE_NAME: Final = "revoked"
_MAGIC: Final = b"hbroker revoked tokens 1\n"
_HEADER_BYTES: Final = len(_MAGIC) + 16
_MODE: Final = 0o644
_EXPIRED_S: Final = 86_400
"""A record is kept for so long after its token has expired, because clocks differ. Seconds."""


class RevokedFile(NamedTuple):
    """The content of the file, of which nothing has been verified. `authority`: the id of the authority.
    `records`: one behind the other; the last one may be incomplete."""

    authority: bytes
    records: bytes


def read_revoked(file: Path) -> RevokedFile | None:
    """Reads the file; None: there is none. Raises OSError, and ConfigError if it is no such file."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _HEADER_BYTES or not data.startswith(_MAGIC):
        _damaged(file, "it is no list of revoked tokens")
    return RevokedFile(data[len(_MAGIC) : _HEADER_BYTES], data[_HEADER_BYTES:])


def load_list(folder: Path, believed: Sequence[AuthorityCertificate]) -> RevocationList | None:
    """The list in the folder of an authority; None: there is none. `believed`: the authorities whose list it
    may be. Of the signatures only the last one is verified: nodes verify all.

    Raises OSError, and ConfigError if it is damaged or of another authority.
    """
    file = folder / FILE_NAME
    content = read_revoked(file)
    return None if content is None else _parsed(file, content, believed)


def revoke(
    folder: Path, id: bytes, expires_at: int, copies: Iterable[Mapping[bytes, Sequence[bytes]]] = ()
) -> tuple[RevokedToken, bool]:
    """Revokes the block with this `short_id`. Returns its record, and whether that is new.

    `expires_at`: the last second at which a token with this block is valid; 0: it does not expire. `copies`:
    the records that nodes have, by the id of the authority. If the file has fewer, because it was lost or is
    an old copy, it is completed first: nodes would not take a second record with the same number.

    Raises LocalError if the list is full; ConfigError as `load_list`, and if the list of a node differs; and
    OSError, also if the key of the authority is not here.
    """
    with locked(folder):
        authority = Authority.load(folder)
        sign_again(folder, authority, 0)
        revoked = load_list(folder, [authority])
        for copy in copies:
            revoked = _completed(folder, authority, revoked, copy)
        known = () if revoked is None or id not in revoked else revoked.tokens()
        for token in known:
            if token.id == id and (not token.expires_at or 0 < expires_at <= token.expires_at):
                return token, False
        count = 0 if revoked is None else len(revoked)
        if count >= MOST_RECORDS:
            raise LocalError(
                f"{MOST_RECORDS} blocks of tokens are revoked already, which are the most: replace the "
                "authority (`hbroker keys rotate`), which removes the records of expired tokens"
            )
        token = RevokedToken(count + 1, id, expires_at)
        if revoked is None:
            _replace(folder, authority, [token])
        else:
            _append(folder / FILE_NAME, _HEADER_BYTES + count * RECORD_BYTES, signed_record(authority, token))
        return token, True


def sign_again(folder: Path, authority: Authority, now: float) -> None:
    """If the list is that of the former authority, signs it again as the list of this one, without records
    whose tokens had expired at `now`. Verifies all signatures before. The caller has locked the folder.
    Raises OSError, and ConfigError as `load_list`."""
    file = folder / FILE_NAME
    content = read_revoked(file)
    if content is None or content.authority == RevocationAuthority.of(authority.public_key).id:
        return
    former = _parsed(file, content, AuthorityCertificate.load_all(folder), verifies_all=True)
    kept = (token for token in former.tokens() if not 0 < token.expires_at < now - _EXPIRED_S)
    _replace(folder, authority, [RevokedToken(n, each.id, each.expires_at) for n, each in enumerate(kept, 1)])


def signed_record(authority: Authority, token: RevokedToken) -> bytes:
    """The record that the authority makes of this."""
    content, signed = signed_content(token)
    return content + authority.key.sign(signed)


def _completed(
    folder: Path,
    authority: Authority,
    revoked: RevocationList | None,
    copy: Mapping[bytes, Sequence[bytes]],
) -> RevocationList | None:
    """The list, or else that of a node if that has more. Raises ConfigError and OSError."""
    found = RevocationList(RevocationAuthority.of(authority.public_key))
    records = copy.get(found.authority.id, ())
    if not records or (revoked is not None and revoked.holds(b"".join(records))):
        return revoked
    try:
        for record in records:
            found.append(record)
    except InvalidRecord:
        return revoked  # The file of the node is damaged.
    if revoked is not None and not revoked.is_beginning_of(b"".join(records)):
        raise ConfigError(
            "the nodes of this network have a list with other records",
            file=str(folder / FILE_NAME),
            remedy="put back its newest copy, or replace the authority (`hbroker keys rotate`)",
        )
    _replace(folder, authority, found.tokens())
    return found


def _parsed(
    file: Path, content: RevokedFile, believed: Sequence[AuthorityCertificate], *, verifies_all: bool = False
) -> RevocationList:
    """The list, without an incomplete record at its end. Raises ConfigError."""
    authorities = (RevocationAuthority.of(each.public_key) for each in believed)
    authority = next((each for each in authorities if each.id == content.authority), None)
    if authority is None:
        _damaged(file, "it is the list of another authority")
    found = RevocationList(authority)
    records = [
        content.records[start : start + RECORD_BYTES]
        for start in range(0, len(content.records), RECORD_BYTES)
    ]
    try:
        if verifies_all:
            for record in records[:-1]:
                found.append(record)
        found.restore(records[len(found) : -1])
    except InvalidRecord as wrong:
        _damaged(file, f"record {len(found) + 1}: {wrong}")
    try:
        for last in records[-1:]:
            found.append(last)
    except InvalidRecord:
        pass  # It was being written when its host lost power.
    return found


def _replace(folder: Path, authority: Authority, tokens: Sequence[RevokedToken]) -> None:
    """Replaces the list. Raises OSError."""
    header = _MAGIC + RevocationAuthority.of(authority.public_key).id
    file = folder / FILE_NAME
    replace_file(file, [header, *(signed_record(authority, token) for token in tokens)])
    file.chmod(_MODE)


def _append(file: Path, size: int, record: bytes) -> None:
    """Writes a record at the end of the list, which has `size` bytes. Raises OSError; the list is then as it
    was."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        written = os.pwrite(descriptor, record, size)
        if written < len(record):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damaged(file: Path, fault: str) -> NoReturn:
    remedy = "put back the file as hbroker wrote it"
    raise ConfigError(f"not usable: {fault}", file=str(file), remedy=remedy)
