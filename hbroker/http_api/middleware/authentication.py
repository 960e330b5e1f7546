"""Who calls, and what they may do.

A request has a token of the network (ADR 36) as bearer token (RFC 6750 §2.1). What it allows:

    to read what nodes and gateways say of themselves    the token may read `$SYS/#`
    to change the network                                the token may write `$SYS/#`
    to publish, to subscribe                             it may write the topic, or read with the filter

The last two are decided by the owners of the topics: the API shows them the caller's token.

Without tokens (`tokens: off`) whoever reaches the API may do everything, as whoever reaches a node.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers.base import BaseRouteHandler
from litestar.middleware.authentication import AbstractAuthenticationMiddleware, AuthenticationResult
from litestar.types import ASGIApp

from hbroker.http_api.problems import Refusal
from hbroker.identity.authority import AuthorityCertificate
from hbroker.identity.revocation_list import short_id
from hbroker.identity.revoked_file import load_list
from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.rights.rights import ALL_RIGHTS, Rights
from hbroker.rights.token import verify
from hbroker.rights.verified import InvalidToken, VerifiedToken

__all__ = ["ApiRequest", "Authentication", "Caller", "TokenVerifier", "may_change", "may_read"]

_OF_NODES: Final = "$SYS/#"
"""Who may read these topics may see all of the network, and who may write them may change it (§4.6)."""
_MOST_VERIFIED: Final = 10_000
_FRESH_US: Final = 5_000_000
"""For how long the outcome of a verification is used again. So it takes so long until a revocation counts."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. `token`: its text; None: none is required. `rights`: what it allows. `expires_at`:
    the last second of its validity, since the Unix epoch; None: it does not expire."""

    token: str | None = field(repr=False)
    rights: Rights
    expires_at: int | None = None

    @property
    def key(self) -> str:
        """What tells this caller apart from others, and is no secret."""
        return "" if self.token is None else sha256(self.token.encode()).hexdigest()

    @property
    def sees_network(self) -> bool:
        """Whether the caller may read what nodes and gateways say of themselves."""
        return self.rights.may_read(_OF_NODES, is_shared=False)

    @property
    def changes_network(self) -> bool:
        """Whether the caller may give orders."""
        return self.rights.may_write(_OF_NODES, retain=False)


ApiRequest = Request[Caller, str, State]


class TokenVerifier:
    """Verifies the tokens of callers.

    `authority`: the file with the certificate of the network's authority; the list of revoked tokens is
    beside it, on the host of the authority. None: no tokens are required.
    """

    def __init__(self, authority: Path | None) -> None:
        self._authority = authority
        self._verified: ExpiringCache[str, VerifiedToken] = ExpiringCache(_MOST_VERIFIED)

    @property
    def requires_tokens(self) -> bool:
        """Whether callers need a token."""
        return self._authority is not None

    def caller(self, token: str | None) -> Caller:
        """The caller with this token. Raises Refusal if it needs another one, OSError and ConfigError if the
        files of the authority cannot be read."""
        if self._authority is None:
            return Caller(None, ALL_RIGHTS)
        if token is None:
            raise _unauthorized("a token is needed: `Authorization: Bearer TOKEN`")
        now = time.time()
        found = self._verified.get(_us(now), token)
        if found is None:
            found = self._verify(token, now)
            self._verified.put(token, found, _us(now) + _FRESH_US)
        if found.expires_at is not None and now > found.expires_at:
            raise _unauthorized("the token has expired: get another one")
        return Caller(token, found.rights, found.expires_at)

    def _verify(self, token: str, now: float) -> VerifiedToken:
        assert self._authority is not None
        believed = AuthorityCertificate.load_file(self._authority)
        try:
            found = verify(token, [each.public_key for each in believed], now)
        except InvalidToken as error:
            raise _unauthorized(str(error)) from None
        if self._is_revoked(found, believed):
            raise _unauthorized("the token is revoked: get another one")
        return found

    def _is_revoked(self, found: VerifiedToken, believed: Sequence[AuthorityCertificate]) -> bool:
        assert self._authority is not None
        revoked = load_list(self._authority.parent, believed)
        return revoked is not None and any(short_id(id) in revoked for id in found.revocation_ids)


class Authentication(AbstractAuthenticationMiddleware):
    """Finds the caller of each request. Routes with `exclude_from_auth`, and the description of the API, have
    none."""

    def __init__(self, app: ASGIApp, verifier: TokenVerifier) -> None:
        super().__init__(app, exclude=r"^/openapi\.json$", exclude_http_methods=())
        self._verifier = verifier

    async def authenticate_request(
        self, connection: ASGIConnection[Any, Any, Any, Any]
    ) -> AuthenticationResult:
        """Raises Refusal (401) if the request has no valid token."""
        caller = self._verifier.caller(_bearer(connection))
        return AuthenticationResult(user=caller, auth=caller.key)


def may_read(connection: ASGIConnection[Any, Caller, Any, Any], _: BaseRouteHandler) -> None:
    """A guard: the caller may see the network. Raises Refusal (403)."""
    if not connection.user.sees_network:
        raise Refusal(HTTPStatus.FORBIDDEN, f"the token does not let its holder read {_OF_NODES}")


def may_change(connection: ASGIConnection[Any, Caller, Any, Any], _: BaseRouteHandler) -> None:
    """A guard: the caller may change the network. Raises Refusal (403)."""
    if not connection.user.changes_network:
        raise Refusal(HTTPStatus.FORBIDDEN, f"the token does not let its holder write {_OF_NODES}")


def _bearer(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    """The bearer token of a request; None: it has none. Raises Refusal if it has another credential."""
    given = connection.headers.get("Authorization")
    if given is None:
        return None
    scheme, _, token = given.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _unauthorized("the credential is no bearer token: `Authorization: Bearer TOKEN`")
    return token.strip()


def _unauthorized(detail: str) -> Refusal:
    return Refusal(HTTPStatus.UNAUTHORIZED, detail, {"WWW-Authenticate": 'Bearer realm="hbroker"'})


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
