"""What clients may do at a node that requires tokens (§4.6).

The core asks once for each association, with the token that the client has sent, and keeps the client's
datagrams until `set_rights`. From then on everything that comes from the client names its rights by their key
(`Rights.key`). Tokens with equal rights have equal keys, so a client that shows a new token with the same
rights goes on as before.

A token that is not valid gives no rights. Its client is told so, with NOT_AUTHORIZED, in the answer to each
of its requests. When a token expires or is revoked, or its authority is not believed any more, its client has
no rights from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker._native import RightsRequestedEvent
from hbroker.identity.revocation_list import short_id
from hbroker.protocol import timers
from hbroker.protocol.context import NodeContext
from hbroker.protocol.events import Suppression, TokenRefused
from hbroker.protocol.timers import TimerQueue
from hbroker.rights.rights import ALL_RIGHTS, BlockRights, Rights
from hbroker.rights.verified import InvalidToken, VerifiedToken

__all__ = ["NO_RIGHTS", "ClientRights", "VerifyToken"]

VerifyToken: TypeAlias = Callable[[bytes, float], VerifiedToken]
"""Verifies a token at a time, in seconds since the Unix epoch. Raises InvalidToken."""

NO_RIGHTS: Final = Rights((BlockRights(),))
"""The rights of a client without a valid token: it may do nothing."""

_MOST_VERIFIED: Final = 8_388_608
"""The most bytes of tokens that are not verified again when a client comes back with them."""
_LOOKS: Final = 2
"""For each new association, so many old ones are looked at, if they have ended."""
_REVIEWS: Final = 64
"""So many tokens are verified again at a time: a lease must not wait for all of them."""


@dataclass(slots=True)
class _Association:
    """A client's association: its token, the key of its rights, and the `short_id` of each block of the
    token."""

    token: bytes
    key: int
    blocks: tuple[bytes, ...]


class ClientRights:
    """The rights of all clients of one node. `verify`: None: no tokens are required."""

    def __init__(self, context: NodeContext, verify: VerifyToken | None) -> None:
        self._core = context.core
        self._verify = verify
        self._diagnostics = context.diagnostics
        self._revocations = context.revocations
        self._unix_offset_us = context.unix_offset_us
        self._verified: dict[bytes, VerifiedToken] = {}
        """The tokens that were verified last."""
        self._verified_bytes = 0
        self._associations: dict[int, _Association] = {}
        """Those that were looked at last are at the end."""
        self._reviews: deque[int] = deque()
        """The associations whose tokens are to be verified again."""
        self._rights = {NO_RIGHTS.key: NO_RIGHTS}
        self._holders: dict[bytes, set[int]] = {}
        """The associations by the blocks of their tokens."""
        self._users: dict[int, int] = {}
        """How many associations have the rights of each key."""
        self._expiries: TimerQueue[int] = TimerQueue()
        self._refusals = Suppression()

    # Change

    def handle_request(self, now: int, event: RightsRequestedEvent) -> None:
        """A client has shown its token: says what it may do."""
        if self._verify is None:
            return
        self._forget_ended()
        self._decide(now, event.association, event.token, lambda why: self._refuse(now, event, why))

    def review(self, now: int) -> None:
        """The authorities have changed: every token is to be verified again."""
        self._verified.clear()
        self._verified_bytes = 0
        self._reviews = deque(self._associations)

    def handle_revoked(self, blocks: Sequence[bytes]) -> None:
        """These blocks were revoked: the tokens that have one are to be verified again. `blocks`: the
        `short_id` of each."""
        for block in blocks:
            self._reviews.extend(self._holders.get(block, ()))

    def handle_timeout(self, now: int) -> None:
        """Takes the rights of clients whose tokens have expired, or are not valid any more."""
        for _ in range(min(_REVIEWS, len(self._reviews))):
            association = self._reviews.popleft()
            known = self._associations.get(association)
            if known is not None:
                self._decide(now, association, known.token, lambda why: None)
        for association in self._expiries.due(now):
            self._diagnostics.count("tokens_expired")
            self._set(association, self._associations[association].token, NO_RIGHTS)

    # Read

    def of(self, key: int) -> Rights:
        """The rights with this key. 0: everything is allowed."""
        return ALL_RIGHTS if key == 0 else self._rights.get(key, NO_RIGHTS)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return 0 if self._reviews else self._expiries.next()

    def _decide(self, now: int, association: int, token: bytes, refuse: Callable[[str], None]) -> None:
        try:
            verified = self._verified_token(now, token)
        except InvalidToken as why:
            refuse(str(why))
            self._set(association, b"", NO_RIGHTS)
            return
        blocks = tuple(map(short_id, verified.revocation_ids))
        if self._set(association, token, verified.rights, blocks) and verified.expires_at is not None:
            # A token is valid during the whole of its last second.
            self._expiries.set(association, (verified.expires_at + 1) * timers.SECOND - self._unix_offset_us)

    def _verified_token(self, now: int, token: bytes) -> VerifiedToken:
        """Raises InvalidToken."""
        assert self._verify is not None
        seconds = (now + self._unix_offset_us) / timers.SECOND
        if not token:
            raise InvalidToken("the client has no token")
        known = self._verified.pop(token, None)
        self._verified_bytes -= 0 if known is None else len(token)
        if known is None or (known.expires_at is not None and seconds > known.expires_at):
            known = self._verify(token, seconds)
        self._verified[token] = known  # The last ones are kept.
        self._verified_bytes += len(token)
        while self._verified_bytes > _MOST_VERIFIED:
            oldest = next(iter(self._verified))
            del self._verified[oldest]
            self._verified_bytes -= len(oldest)
        if self._revocations.are_revoked(map(short_id, known.revocation_ids)):
            self._diagnostics.count("tokens_revoked")
            raise InvalidToken("revoked")
        return known

    def _set(
        self, association: int, token: bytes, rights: Rights, token_blocks: tuple[bytes, ...] = ()
    ) -> bool:
        """Returns whether the association still exists."""
        self._forget(association)
        blocks = [(block.write, block.retain) for block in rights.blocks]
        if not self._core.set_rights(association, rights.key, blocks, rights.is_empty):
            return False
        self._associations[association] = _Association(token, rights.key, token_blocks)
        for block in token_blocks:
            self._holders.setdefault(block, set()).add(association)
        self._rights[rights.key] = rights
        self._users[rights.key] = self._users.get(rights.key, 0) + 1
        return True

    def _forget(self, association: int) -> None:
        self._expiries.cancel(association)
        known = self._associations.pop(association, None)
        if known is None:
            return
        for block in set(known.blocks):
            self._holders[block].remove(association)
            if not self._holders[block]:
                del self._holders[block]
        self._users[known.key] -= 1
        if not self._users[known.key]:
            del self._users[known.key]
            if known.key != NO_RIGHTS.key:
                del self._rights[known.key]

    def _forget_ended(self) -> None:
        """Looks at some associations, and forgets those that the core does not have any more. More are looked
        at than come, so there are soon no more than the core has."""
        for _ in range(min(_LOOKS, len(self._associations))):
            association = next(iter(self._associations))
            if self._core.has_association(association):
                self._associations[association] = self._associations.pop(association)
            else:
                self._forget(association)

    def _refuse(self, now: int, event: RightsRequestedEvent, why: str) -> None:
        self._diagnostics.count("tokens_refused")
        suppressed = self._refusals.suppressed_before(now)
        if suppressed is not None:
            self._diagnostics.add_event(TokenRefused(event.source, why, suppressed))
