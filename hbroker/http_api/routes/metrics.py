"""What Prometheus scrapes."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final

from litestar import Response, get
from litestar.datastructures import State

from hbroker.http_api.authentication import may_read
from hbroker.http_api.context import context_of
from hbroker.http_api.problems import refusals
from hbroker.metrics.exposition import CONTENT_TYPE_LATEST, exposition

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
async def scrape(state: State) -> Response[bytes]:
    """The metrics of all nodes, as OpenMetrics text. Prometheus shows the token with
    `authorization: {credentials_file: FILE}`."""
    now = time.monotonic()
    nodes = context_of(state).live.nodes().values()
    text = exposition((each.status, not each.is_silent(now)) for each in nodes)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
