"""Whether the API lives, and whether it is of use. These routes need no token."""

from __future__ import annotations

from http import HTTPStatus

from litestar import Response, get
from litestar.datastructures import State

from hbroker.http_api.context import context_of
from hbroker.http_api.models.network import Health

__all__ = ["healthz", "readyz"]


@get("/healthz", exclude_from_auth=True, tags=["health"], security=[{}], operation_id="Healthz")
async def healthz() -> Health:
    """The process of the API lives."""
    return Health(status="ok")


@get("/readyz", exclude_from_auth=True, tags=["health"], security=[{}], operation_id="Readyz")
async def readyz(state: State) -> Response[Health]:
    """The API reaches the network, and knows at least one node. Otherwise 503."""
    live = context_of(state).live
    if live.client is not None and live.is_known:
        return Response(Health(status="ok"))
    return Response(Health(status="no network"), status_code=HTTPStatus.SERVICE_UNAVAILABLE)
