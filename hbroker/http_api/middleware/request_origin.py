"""Which requests are taken where no tokens are required: those that no page of another web site can send.

Without tokens, any page in the browser of who runs the API could give orders in two ways:

    by a name of its own that resolves to this host (DNS rebinding)     `Host` is another name: 400
    by a POST to this host, whose answer it cannot read                 `Origin` is another site: 403

Browsers set both headers, and no page can change them (Fetch, forbidden request-headers).
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from hbroker.http_api.problems import Refusal

__all__ = ["RequestOrigin"]

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class RequestOrigin(ASGIMiddleware):
    """Refuses requests that pages of other web sites may have sent. `hosts`: the names under which the API is
    called, beside those of this host."""

    scopes = (ScopeType.HTTP,)

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = {*_LOCAL, *(name.lower() for name in hosts)}

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Passes the request on. Raises Refusal."""
        headers = Headers.from_scope(scope)
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if _name(host) not in self._hosts:
            text = f"the API is not called {host!r} here: `hbroker admin --host NAME` adds names"
            raise Refusal(HTTPStatus.BAD_REQUEST, text)
        if origin is not None and origin.partition("://")[2] != host:
            text = f"a page of {origin} has sent the request: without tokens, only pages of the API may"
            raise Refusal(HTTPStatus.FORBIDDEN, text)
        await next_app(scope, receive, send)


def _name(host: str) -> str | None:
    """The name of a `Host` header without its port (RFC 9110 §7.2); None: it has none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
