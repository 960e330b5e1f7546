"""What Prometheus scrapes."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final

from litestar import Response, get
from litestar.datastructures import State

from hbroker.http_api.context import context_of
from hbroker.http_api.middleware.authentication import ApiRequest, may_read
from hbroker.http_api.problems import refusals
from hbroker.metrics.exposition import exposition
from hbroker.metrics.hot_topics import topic_rates
from hbroker.operations.live_network import LiveNetwork

__all__ = ["scrape", "scrape_of"]

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
    text, media_type = scrape_of(context_of(state).live, request.headers.get("Accept", ""))
    return Response(text, media_type=media_type)


def scrape_of(live: LiveNetwork, accept: str) -> tuple[bytes, str]:
    """The metrics of a network, and the media type of that text. `accept`: as in `exposition`."""
    now = time.monotonic()
    statuses = ((each.status, not each.is_silent(now)) for each in live.nodes().values())
    return exposition(statuses, topic_rates(live.hot_topics().values()), accept)
