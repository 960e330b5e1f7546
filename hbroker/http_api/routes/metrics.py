"""What Prometheus scrapes."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final

from litestar import Response, get
from litestar.datastructures import State

from hbroker.http_api.authentication import ApiRequest, may_read
from hbroker.http_api.context import context_of
from hbroker.http_api.problems import refusals
from hbroker.metrics.exposition import exposition

__all__ = ["scrape"]

_REFUSALS: Final = refusals(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


@get(
    "/metrics",
    guards=[may_read],
    responses=_REFUSALS,
    tags=["metrics"],
    media_type="text/plain",
    operation_id="Scrape",
)
async def scrape(request: ApiRequest, state: State) -> Response[bytes]:
    """The metrics of all nodes, as text, or as OpenMetrics for those who accept that. Prometheus shows the
    token with `authorization: {credentials_file: FILE}`."""
    now = time.monotonic()
    nodes = context_of(state).live.nodes().values()
    statuses = ((each.status, not each.is_silent(now)) for each in nodes)
    text, media_type = exposition(statuses, request.headers.get("Accept", ""))
    return Response(text, media_type=media_type)
