"""One block of a token. As Datalog it consists of these statements only:

    read("home/+/temperature");     the holder may subscribe with this filter, and with what it covers
    write("home/kitchen/#");        it may publish to the topics that match
    retain(true);                   it may publish retained messages
    share(true);                    it may subscribe in shared groups
    client("kitchen-oven");         it has this client id
    workspace("acme");              it is a client of this workspace: see `Contents.workspace`
    check if time($time), $time <= 2030-01-01T00:00:00Z;

A block that has one of the first four has exactly the rights that it names. A block that has none of them
leaves the rights as they are.

Biscuit prints a text as it is, without escapes. To a person a text with a quote, a backslash or a line break
could look like other statements. So no text of a block has one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hbroker._native import filter_is_valid
from hbroker.errors import LocalError
from hbroker.rights.rights import BlockRights
from hbroker.workspace import name_is_valid

__all__ = ["MOST_FILTERS", "Block", "utc"]

MOST_FILTERS: Final = 64
"""Filters of one block, to read and to write."""
_LAST_SECOND: Final = 253_402_300_799
"""9999-12-31T23:59:59Z: Biscuit cannot print a later time."""

_TEXT: Final = re.compile(r'[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+')


@dataclass(frozen=True, slots=True)
class Block:
    """One block: what it grants, or how it narrows the token that it is appended to.

    `rights`: None: it names none, and leaves them as they are. `client`: the client id that the holder has;
    None: any. `expires_at`: the last second at which the token is valid, since the Unix epoch; None: it does
    not expire. `workspace`: the workspace that it names; None: none.

    Raises LocalError if a filter, the client id or the workspace cannot be in a token, if there are too many
    filters, or if the time is before 1970 or after 9999.
    """

    rights: BlockRights | None = None
    client: str | None = None
    expires_at: int | None = None
    workspace: str | None = None

    def __post_init__(self) -> None:
        rights = self.rights or BlockRights()
        if self.rights is not None and self.rights == BlockRights():
            raise LocalError("a block whose rights allow nothing is of no use: name a filter")
        filters = (*rights.read, *rights.write)
        for filter in filters:
            if not _TEXT.fullmatch(filter) or not filter_is_valid(filter):
                raise LocalError(
                    f"{filter[:80]!r} cannot be a filter of a token: it is not valid, or has a quote, a "
                    "backslash or a control character"
                )
        if len(filters) > MOST_FILTERS:
            raise LocalError(f"a block of a token has {MOST_FILTERS} filters at most, not {len(filters)}")
        if self.client is not None and not _TEXT.fullmatch(self.client):
            raise LocalError(
                f"{self.client[:80]!r} cannot be the client id of a token: it is empty, or has a quote, a "
                "backslash or a control character"
            )
        if self.expires_at is not None and not 0 <= self.expires_at <= _LAST_SECOND:
            raise LocalError(
                f"a token cannot expire {self.expires_at} seconds after 1970: 9999 is the last year"
            )
        if self.workspace is not None and not name_is_valid(self.workspace):
            raise LocalError(
                f"{self.workspace[:80]!r} is no name of a workspace: use 1 to 64 of a-z, 0-9 and `-`"
            )

    def to_datalog(self) -> str:
        """The statements of the block, each on a line."""
        rights = self.rights or BlockRights()
        statements = [
            *(f'read("{filter}");' for filter in rights.read),
            *(f'write("{filter}");' for filter in rights.write),
        ]
        if rights.retain:
            statements.append("retain(true);")
        if rights.share:
            statements.append("share(true);")
        if self.client is not None:
            statements.append(f'client("{self.client}");')
        if self.workspace is not None:
            statements.append(f'workspace("{self.workspace}");')
        if self.expires_at is not None:
            statements.append(f"check if time($time), $time <= {utc(self.expires_at)};")
        return "".join(f"{statement}\n" for statement in statements)


def utc(seconds: int) -> str:
    """A time as Datalog writes it: `2030-01-01T00:00:00Z`. `seconds`: since the Unix epoch."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
