"""The application: all routes, who may call them, and their description (OpenAPI 3.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from litestar import Litestar, Router
from litestar.config.compression import CompressionConfig
from litestar.datastructures.headers import MutableScopeHeaders
from litestar.middleware import DefineMiddleware
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, License, SecurityScheme
from litestar.plugins.pydantic import PydanticPlugin
from litestar.routes import BaseRoute, HTTPRoute
from litestar.types import Message, Scope

from hbroker.http_api.context import ApiContext, NetworkAccess
from hbroker.http_api.middleware.authentication import Authentication, TokenVerifier
from hbroker.http_api.middleware.idempotency import MOST_BODY_BYTES, Idempotency
from hbroker.http_api.middleware.rate_limit import RateLimit
from hbroker.http_api.middleware.request_origin import RequestOrigin
from hbroker.http_api.problems import exception_handlers
from hbroker.http_api.routes.clients import ClientRoutes, SessionRoutes
from hbroker.http_api.routes.dashboard import dashboard_file, dashboard_page
from hbroker.http_api.routes.health import healthz, readyz
from hbroker.http_api.routes.messages import MessageRoutes
from hbroker.http_api.routes.metrics import scrape
from hbroker.http_api.routes.network import NetworkRoutes
from hbroker.http_api.routes.orders import OrderRoutes
from hbroker.http_api.routes.plans import PlanRoutes
from hbroker.http_api.routes.tokens import TokenRoutes, read_caller
from hbroker.http_api.routes.workspaces import WorkspaceRoutes

__all__ = ["application"]

_REQUESTS: Final = (200, 1_000)
"""Requests of one address: in a second, and at once."""
_DESCRIPTION: Final = (
    "See and steer a network of hbroker. Every request has a token of the network as bearer token; "
    "lists come in pages; errors are problem details (RFC 9457)."
)
_STREAMS: Final = [r"^/v1/events$", r"^/v1/messages$"]


def application(access: NetworkAccess, version: str, hosts: Sequence[str] = ()) -> Litestar:
    """The API of one network. `hosts`: the names under which it is called, beside those of this host.

    Where no tokens are required, a request with another name is refused, and one from a page of another web
    site (`RequestOrigin`).
    """

    @asynccontextmanager
    async def running(app: Litestar) -> AsyncIterator[None]:
        context = ApiContext(access)
        app.state.context = context
        context.start()
        try:
            yield
        finally:
            await context.stop()

    verifier = TokenVerifier(access.authority if access.requires_tokens else None)
    v1 = Router(
        "/v1",
        route_handlers=[
            ClientRoutes,
            MessageRoutes,
            NetworkRoutes,
            OrderRoutes,
            PlanRoutes,
            SessionRoutes,
            TokenRoutes,
            WorkspaceRoutes,
            read_caller,
        ],
    )
    return Litestar(
        [v1, scrape, healthz, readyz, dashboard_page, dashboard_file],
        before_send=[_name_all_methods],
        compression_config=CompressionConfig("gzip", minimum_size=4_096, exclude=_STREAMS),
        exception_handlers=exception_handlers(),
        lifespan=[running],
        logging_config=None,
        middleware=[
            RateLimit(*_REQUESTS),
            *([] if verifier.requires_tokens else [RequestOrigin(hosts)]),
            DefineMiddleware(Authentication, verifier=verifier),
            Idempotency(),
        ],
        openapi_config=_described(version),
        plugins=[PydanticPlugin(prefer_alias=True)],
        request_max_body_size=MOST_BODY_BYTES,
    )


async def _name_all_methods(message: Message, scope: Scope) -> None:
    """Completes the `Allow` of the answer to OPTIONS (RFC 9110 §10.2.1): Litestar names the methods of one
    handler of the path only."""
    if message["type"] != "http.response.start" or scope.get("method") != "OPTIONS":
        return
    path = scope.get("path_template")
    methods = {
        method
        for route in scope["litestar_app"].routes
        if route.path_format == path
        for method in _methods(route)
    }
    if methods:
        MutableScopeHeaders.from_message(message)["Allow"] = ", ".join(sorted(methods))


def _methods(route: BaseRoute) -> Iterable[str]:
    return (
        (method for handler in route.route_handlers for method in handler.http_methods)
        if isinstance(route, HTTPRoute)
        else ()
    )


def _described(version: str) -> OpenAPIConfig:
    return OpenAPIConfig(
        title="hbroker",
        version=version,
        description=_DESCRIPTION,
        license=License(name="Apache-2.0", identifier="Apache-2.0"),
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        path="/openapi.json",  # Litestar serves the plugin below it, and `/` is that of the dashboard.
        render_plugins=[JsonRenderPlugin(path="/")],
        use_handler_docstrings=True,
    )
