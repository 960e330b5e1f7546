"""`hbroker token revoke` and `revoked`: the authority's list of revoked tokens."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbroker.cli.exits import DONE
from hbroker.cli.flags import authority_of

if TYPE_CHECKING:
    from hbroker.identity.authority import AuthorityCertificate
    from hbroker.rights.token import Contents
    from hbroker.runtime.launcher.run_directory import RunDirectory

__all__ = ["expiry", "list_revoked", "revoke_block", "revoke_id", "revoked_blocks"]


def expiry(text: str) -> int:
    """Seconds since the Unix epoch from a time like `2030-01-01T00:00:00Z`. Raises ValueError."""
    try:
        return max(int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()), 1)
    except ValueError:
        raise ValueError(f"{text!r} is not a time like 2030-01-01T00:00:00Z") from None


def revoke_block(directory: RunDirectory, text: str, number: int | None) -> int:
    """Revokes a block of a token, from 1; None: the last one. Raises UsageError, InvalidToken, ConfigError,
    LocalError and OSError."""
    from hbroker.identity.authority import AuthorityCertificate
    from hbroker.rights.token import inspect, verify

    authority_of(directory)
    believed = AuthorityCertificate.load_all(directory.authority)
    verify(text, [each.public_key for each in believed], 0)  # Also if it has expired: clocks differ.
    contents = inspect(text)
    count = len(contents.blocks)
    if number is None:
        number = count
    elif number > count:
        raise click.UsageError(f"the token has {count} {'blocks' if count > 1 else 'block'}, and no {number}")
    # The other blocks may end this token sooner, and no other one that has this block.
    times = (block.expires_at for block in contents.blocks[:number])
    expires_at = min((each for each in times if each is not None), default=0)
    return _revoke(directory, contents.revocation_ids[number - 1], expires_at, f"block {number} of {count}")


def revoke_id(directory: RunDirectory, text: str, expires_at: int) -> int:
    """Revokes the block with this revocation id. `expires_at`: 0: it does not expire. Raises UsageError,
    ConfigError, LocalError and OSError."""
    if not re.fullmatch("[0-9a-fA-F]{128}", text):
        raise click.UsageError("a revocation id has 128 hexadecimal digits, as `hbroker token inspect` shows")
    authority_of(directory)
    return _revoke(directory, bytes.fromhex(text), expires_at, "the block with this id")


def list_revoked(directory: RunDirectory, as_json: bool) -> int:
    """Shows the list of revoked tokens. Raises ConfigError and OSError."""
    from hbroker.cli.output import print_json, print_table
    from hbroker.identity.authority import AuthorityCertificate
    from hbroker.identity.revoked_file import load_list
    from hbroker.rights.block import utc

    found = load_list(directory.authority, AuthorityCertificate.load_all(directory.authority))
    tokens = [] if found is None else found.tokens()
    if as_json:
        print_json([{"number": n, "id": id.hex(), "expires_at": at or None} for n, id, at in tokens])
        return DONE
    rows = [(number, id.hex(), utc(at) if at else "never") for number, id, at in tokens]
    print_table(("NUMBER", "ID", "EXPIRES"), rows)
    return DONE


def revoked_blocks(authority: Path, believed: list[AuthorityCertificate], contents: Contents) -> list[int]:
    """The numbers of the blocks of a token that are revoked, from 1. `authority`: the file with the
    certificate of the authority; the list is beside it, or there is none. Raises ConfigError and OSError."""
    from hbroker.identity.revocation_list import short_id
    from hbroker.identity.revoked_file import load_list

    found = load_list(authority.parent, believed)
    ids = map(short_id, contents.revocation_ids)
    return [number for number, id in enumerate(ids, 1) if found is not None and id in found]


def _revoke(directory: RunDirectory, signature: bytes, expires_at: int, what: str) -> int:
    from hbroker.identity.revocation_list import short_id
    from hbroker.identity.revoked_file import revoke
    from hbroker.runtime.node.state_files import saved_revoked

    copies = [saved_revoked(file) for file in sorted(directory.path.glob("*.cuts.revoked"))]
    token, is_new = revoke(directory.authority, short_id(signature), expires_at, copies)
    where = f"record {token.sequence} of {directory.network}"
    if not is_new:
        print(f"{what} is revoked already: {where}")
        return DONE
    print(f"revoked: {what}, and all tokens that were made of it: {where}")
    print("Nodes of this host see it within a second, and pass it on to the others.")
    return DONE
